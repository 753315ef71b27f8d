// SPDX-License-Identifier: MIT

#include "stream/expert_cache.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace qsf {
namespace {

// Beyond this all scores are scaled down, so that they stay finite.
constexpr double kLargestUnit = 0x1p500;

}  // namespace

ExpertCache::ExpertCache(std::span<const std::uint64_t> expert_bytes,
                         std::uint32_t experts_per_layer, std::vector<Slot> slots,
                         std::uint32_t read_once_slots, double half_life)
    : experts_(expert_bytes.size()),
      experts_per_layer_(experts_per_layer),
      n_layers_(static_cast<std::uint32_t>(expert_bytes.size()) / experts_per_layer),
      slots_(std::move(slots)),
      n_slots_(static_cast<std::uint32_t>(slots_.size())),
      read_once_slots_(read_once_slots),
      growth_(std::exp2(1.0 / half_life)) {
  for (std::size_t i = 0; i < experts_.size(); ++i) {
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
  for (Expert& expert : experts_) expert.wanted = false;
  unit_ *= growth_;
  if (unit_ < kLargestUnit) return;
  for (Expert& expert : experts_) expert.score /= unit_;
  unit_ = 1.0;
}

void ExpertCache::want(ExpertId id, float heat) noexcept {
  Expert& expert = experts_[id];
  expert.wanted = true;
  expert.score += static_cast<double>(heat) * unit_;
  const bool read_once = heat == 0.0F;
  if (expert.slot == kNoExpertSlot) {
    expert.read_once = read_once;
  } else if (expert.read_once && !read_once) {
    expert.read_once = false;
    --n_read_once_;
  }
}

// Returns the passes until an expert is used again, as seen from a layer that runs now. A score
// that stays the same from pass to pass is that of `rate` uses a pass.
double ExpertCache::expected_wait(ExpertId id, std::uint32_t layer) const noexcept {
  const double rate = experts_[id].score / unit_ * (1.0 - 1.0 / growth_);
  const std::uint32_t own = id / experts_per_layer_;
  const std::uint32_t layers_to_go = own > layer ? own - layer : own + n_layers_ - layer;
  return 1.0 / rate + static_cast<double>(layers_to_go) / n_layers_;
}

ExpertSlot ExpertCache::find_slot(ExpertId id) const noexcept {
  const Expert& expert = experts_[id];
  QSF_DCHECK(expert.slot == kNoExpertSlot);
  const bool from_read_once = expert.read_once && n_read_once_ >= read_once_slots_;
  const std::uint32_t layer = id / experts_per_layer_;
  ExpertSlot best = kNoExpertSlot;
  double longest = 0.0;
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
    const double wait = expected_wait(slot.expert, layer);
    if (best != kNoExpertSlot && wait <= longest) continue;
    best = s;
    longest = wait;
  }
  return best != kNoExpertSlot ? best : last_wanted;
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
    if (best == kNoExpertSlot || experts_[id].score < experts_[slots_[best].expert].score) best = s;
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
