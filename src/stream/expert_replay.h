// SPDX-License-Identifier: MIT
//
// ExpertReplay: what an ExpertCache finds of the experts that a text uses, token by token, without
// reading any. So a calibration learns what a cache of any size is worth.

#ifndef QSF_STREAM_EXPERT_REPLAY_H_
#define QSF_STREAM_EXPERT_REPLAY_H_

#include <cstdint>
#include <span>
#include <vector>

#include "stream/expert_cache.h"

namespace qsf {

class ExpertReplay {
 public:
  // A cache of n_slots experts that are all of one size; more than there are, or fewer than
  // kLeastExpertSlots, are taken for these bounds.
  ExpertReplay(std::uint32_t n_layers, std::uint32_t experts_per_layer, std::uint32_t n_slots);

  // Returns the most bytes of a replay of this many experts.
  static std::uint64_t heap_bytes(std::uint32_t n_experts) noexcept {
    return ExpertCache::heap_bytes(n_experts, n_experts) +
           std::uint64_t{n_experts} * sizeof(std::uint64_t);
  }

  // Begins a token.
  void start_token() noexcept { cache_.start_pass(); }
  // The token uses these experts of a layer. Returns how many are in the cache.
  // Requires  ascending experts, none twice; layers ascend within a token
  std::uint32_t use(std::uint32_t layer, std::span<const std::uint32_t> experts);

 private:
  std::uint32_t experts_per_layer_;
  std::vector<std::uint64_t> expert_bytes_;
  std::vector<ExpertUse> uses_;
  ExpertCache cache_;
};

}  // namespace qsf

#endif  // QSF_STREAM_EXPERT_REPLAY_H_
