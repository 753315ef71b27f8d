// SPDX-License-Identifier: MIT
//
// H2oRanker: ranks the positions that H2O eviction (h2o_eviction.h) chooses from, in place of the
// attention that they received.

#ifndef QSF_KV_H2O_RANKER_H_
#define QSF_KV_H2O_RANKER_H_

#include <cstdint>
#include <span>

namespace qsf {

// The positions that compete for a head's slots when a block ends.
struct H2oCandidates {
  std::uint32_t layer = 0;
  std::uint32_t kv_head = 0;
  std::uint32_t n_kept = 0;  // how many of them stay
  std::uint32_t end = 0;     // rows so far: position p was seen by those from p to end - 1
  // Heavy ones by slot, then those that leave the window, ascending.
  std::span<const std::int32_t> positions;
  std::span<const float> sums;  // the attention that each received
};

// Ranks candidates in place of the mean attention.
struct H2oRanker {
  // `ranks` holds the mean attention. Larger ranks stay, of equal ones the smaller position; NaN
  // ranks last, and sinks stay in any case.
  // Threads  any, at once for different heads
  void (*rank)(const H2oCandidates& candidates, std::span<float> ranks, void* user) = nullptr;
  void* user = nullptr;
};

}  // namespace qsf

#endif  // QSF_KV_H2O_RANKER_H_
