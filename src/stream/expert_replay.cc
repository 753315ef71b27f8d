// SPDX-License-Identifier: MIT

#include "stream/expert_replay.h"

#include <algorithm>

namespace qsf {

ExpertReplay::ExpertReplay(std::uint32_t n_layers, std::uint32_t experts_per_layer,
                           std::uint32_t n_slots)
    : experts_per_layer_(experts_per_layer),
      expert_bytes_(std::size_t{n_layers} * experts_per_layer, 1) {
  const auto n_experts = static_cast<std::uint32_t>(expert_bytes_.size());
  const std::uint32_t n_kept = std::min(std::max(n_slots, kLeastExpertSlots), n_experts);
  std::vector<ExpertCache::Slot> slots(n_kept);
  for (ExpertCache::Slot& slot : slots) slot.bytes = 1;
  cache_ = ExpertCache(expert_bytes_, experts_per_layer, std::move(slots), 0);
}

std::uint32_t ExpertReplay::use(std::uint32_t layer, std::span<const std::uint32_t> experts) {
  const ExpertId first = layer * experts_per_layer_;
  uses_.clear();
  std::uint32_t n_hits = 0;
  for (const std::uint32_t expert : experts) {
    uses_.push_back({.expert = expert, .heat = 1.0F, .generates = true});
    if (cache_.slot_of(first + expert) != kNoExpertSlot) ++n_hits;
  }
  cache_.want(layer, uses_);
  // One after the other, as in a pass: those that are computed may leave for those that are not.
  for (const std::uint32_t expert : experts) {
    const ExpertId id = first + expert;
    if (cache_.slot_of(id) == kNoExpertSlot) cache_.put(id, cache_.find_slot(id));
    cache_.done(id);
  }
  return n_hits;
}

}  // namespace qsf
