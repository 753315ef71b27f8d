// SPDX-License-Identifier: MIT

#include "stream/expert_cache.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/ranges.h"

namespace qsf {
namespace {

// What a pass counts in the groups when the next one is learned.
constexpr float kForget = 0.99F;
// Before anything is learned, every group counts as having been seen so often with the uses that
// its rate promises.
constexpr float kPriorSeen = 20.0F;

// Groups of rates in each halving.
constexpr float kRatesByHalving = 1.5F;

}  // namespace

ExpertCache::ExpertCache(std::span<const std::uint64_t> expert_bytes,
                         std::uint32_t experts_per_layer, std::vector<Slot> slots,
                         std::uint32_t read_once_slots)
    : experts_(expert_bytes.size()),
      experts_per_layer_(experts_per_layer),
      n_layers_(static_cast<std::uint32_t>(expert_bytes.size()) / experts_per_layer),
      slots_(std::move(slots)),
      n_slots_(static_cast<std::uint32_t>(slots_.size())),
      read_once_slots_(read_once_slots) {
  expect_waits();
  for (std::size_t i = 0; i < experts_.size(); ++i) {
    experts_[i].wait = groups_[experts_[i].group].wait;
    experts_[i].bytes = expert_bytes[i];
    largest_bytes_ = std::max(largest_bytes_, expert_bytes[i]);
  }
  for (ExpertSlot s = 0; s < n_slots_; ++s) {
    if (slots_[s].bytes >= largest_bytes_) ++n_largest_;
    if (slots_[s].expert != kNoExpert) experts_[slots_[s].expert].slot = s;
  }
}

std::uint64_t ExpertCache::heap_bytes(std::uint32_t n_experts, std::uint32_t n_slots) noexcept {
  return n_experts * sizeof(Expert) + n_slots * sizeof(Slot);
}

void ExpertCache::start_pass() noexcept {
  ++pass_;
  for (Expert& expert : experts_) expert.wanted = expert.guessed = false;
  expect_waits();
  for (Group& group : groups_) {
    group.seen *= kForget;
    group.used *= kForget;
  }
}

void ExpertCache::expect_waits() noexcept {
  for (std::uint32_t i = 0; i < kGroups; ++i) {
    Group& group = groups_[i];
    const float steps = static_cast<float>(i % kRates) + 0.5F;
    const float prior_used = kPriorSeen * std::exp2(-steps / kRatesByHalving);
    group.wait = (group.seen + kPriorSeen) / (group.used + prior_used);
  }
}

void ExpertCache::want(std::uint32_t layer, std::span<const ExpertUse> uses) noexcept {
  learn(layer, uses);
  const std::span<Expert> of_layer =
      std::span(experts_).subspan(std::size_t{layer} * experts_per_layer_, experts_per_layer_);
  const float keep = static_cast<float>(std::exp2(-1.0 / kRateHalfLife));
  auto use = uses.begin();
  for (std::uint32_t e = 0; e < experts_per_layer_; ++e) {
    Expert& expert = of_layer[e];
    expert.rate *= keep;
    if (use != uses.end() && use->expert == e) want_one(expert, (use++)->heat);
    expert.group = group_of(expert);
    expert.wait = groups_[expert.group].wait;
  }
}

// Counts which experts a layer uses, by the groups that they were in before. Prompts teach nothing:
// they use nearly all.
void ExpertCache::learn(std::uint32_t layer, std::span<const ExpertUse> uses) noexcept {
  if (ranges::none_of(uses, &ExpertUse::generates)) return;
  const std::size_t first = std::size_t{layer} * experts_per_layer_;
  for (std::uint32_t e = 0; e < experts_per_layer_; ++e)
    groups_[experts_[first + e].group].seen += 1;
  for (const ExpertUse& use : uses) {
    if (use.generates) groups_[experts_[first + use.expert].group].used += 1;
  }
}

void ExpertCache::want_one(Expert& expert, float heat) noexcept {
  expert.wanted = true;
  expert.rate += static_cast<float>(1.0 - std::exp2(-1.0 / kRateHalfLife)) * heat;
  const bool read_once = heat == 0.0F;
  if (!read_once) expert.last_pass = pass_;
  if (expert.slot == kNoExpertSlot) {
    expert.read_once = read_once;
  } else if (expert.read_once && !read_once) {
    expert.read_once = false;
    --n_read_once_;
  }
}

// Returns the group of an expert in the next pass.
std::uint8_t ExpertCache::group_of(const Expert& expert) const noexcept {
  const std::uint32_t passes = pass_ + 1 - expert.last_pass;
  const std::uint32_t age = expert.last_pass == 0
                                ? kAges - 1
                                : std::min<std::uint32_t>(std::bit_width(passes), kAges) - 1;
  constexpr float kLeast = 1e-9F;
  const float halvings = -std::log2(std::max(expert.rate, kLeast));
  const float rate = std::clamp(halvings * kRatesByHalving, 0.0F, static_cast<float>(kRates - 1));
  return static_cast<std::uint8_t>(age * kRates + static_cast<std::uint32_t>(rate));
}

// Returns the passes until an expert is used again, as seen from a layer that runs now.
float ExpertCache::expected_wait(ExpertId id, std::uint32_t layer) const noexcept {
  const std::uint32_t own = id / experts_per_layer_;
  const std::uint32_t layers_to_go = own > layer ? own - layer : own + n_layers_ - layer;
  return experts_[id].wait + static_cast<float>(layers_to_go) / static_cast<float>(n_layers_);
}

ExpertSlot ExpertCache::find_slot(ExpertId id) const noexcept {
  const Expert& expert = experts_[id];
  QSF_DCHECK(expert.slot == kNoExpertSlot);
  const bool from_read_once = expert.read_once && n_read_once_ >= read_once_slots_;
  const std::uint32_t layer = id / experts_per_layer_;
  ExpertSlot best = kNoExpertSlot;
  float longest = 0.0F;
  ExpertSlot guessed = kNoExpertSlot;
  ExpertSlot last_wanted = kNoExpertSlot;  // wanted later than this one: it is read once more
  for (ExpertSlot s = 0; s < slots_.size(); ++s) {
    const Slot& slot = slots_[s];
    if (slot.bytes < expert.bytes) continue;
    if (slot.expert == kNoExpert) return s;
    const Expert& other = experts_[slot.expert];
    if (other.holds != 0) continue;
    if (from_read_once && !other.read_once) continue;
    if (other.wanted) {
      const bool later = slot.expert > id;
      if (later && (last_wanted == kNoExpertSlot || slot.expert > slots_[last_wanted].expert)) {
        last_wanted = s;
      }
      continue;
    }
    if (other.guessed) {
      guessed = s;
      continue;
    }
    const float wait = expected_wait(slot.expert, layer);
    if (best != kNoExpertSlot && wait <= longest) continue;
    best = s;
    longest = wait;
  }
  if (best != kNoExpertSlot) return best;
  return guessed != kNoExpertSlot ? guessed : last_wanted;
}

ExpertSlot ExpertCache::find_guess_slot(ExpertId id) const noexcept {
  const std::uint32_t own = id / experts_per_layer_;
  const std::uint32_t layer = own == 0 ? n_layers_ - 1 : own - 1;
  ExpertSlot best = kNoExpertSlot;
  float longest = 0.0F;
  for (ExpertSlot s = 0; s < slots_.size(); ++s) {
    const Slot& slot = slots_[s];
    if (slot.bytes < experts_[id].bytes) continue;
    if (slot.expert == kNoExpert) return s;
    const Expert& other = experts_[slot.expert];
    if (!can_leave(slot.expert) || other.guessed) continue;
    const float wait = expected_wait(slot.expert, layer);
    if (best != kNoExpertSlot && wait <= longest) continue;
    best = s;
    longest = wait;
  }
  return best;
}

ExpertId ExpertCache::put(ExpertId id, ExpertSlot slot) noexcept {
  Slot& place = slots_[slot];
  const ExpertId other = std::exchange(place.expert, id);
  if (other != kNoExpert) {
    experts_[other].slot = kNoExpertSlot;
    if (std::exchange(experts_[other].read_once, false)) --n_read_once_;
  }
  experts_[id].slot = slot;
  if (experts_[id].read_once) ++n_read_once_;
  return other;
}

ExpertSlot ExpertCache::slot_to_drop() const noexcept {
  ExpertSlot best = kNoExpertSlot;
  for (ExpertSlot s = 0; s < slots_.size(); ++s) {
    const ExpertId id = slots_[s].expert;
    if (slots_[s].bytes == 0) continue;
    if (slots_[s].bytes >= largest_bytes_ && n_largest_ <= kLeastExpertSlots) continue;
    if (id == kNoExpert) return s;
    if (!can_leave(id)) continue;
    if (best == kNoExpertSlot || experts_[id].wait > experts_[slots_[best].expert].wait) best = s;
  }
  return best;
}

ExpertId ExpertCache::drop(ExpertSlot slot) noexcept {
  Slot& place = slots_[slot];
  const ExpertId id = std::exchange(place.expert, kNoExpert);
  if (id != kNoExpert) {
    experts_[id].slot = kNoExpertSlot;
    if (std::exchange(experts_[id].read_once, false)) --n_read_once_;
  }
  if (place.bytes >= largest_bytes_) --n_largest_;
  place.bytes = 0;
  --n_slots_;
  return id;
}

}  // namespace qsf
