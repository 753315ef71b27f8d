// SPDX-License-Identifier: MIT
//
// Which rank runs which layers: windows of neighbouring layers, dealt to the ranks in turn.

#ifndef QSF_RANKS_RING_PLAN_H_
#define QSF_RANKS_RING_PLAN_H_

#include <cstdint>
#include <vector>

#include "model/layer_cut.h"

namespace qsf {

// Layers [first, last) of the model.
struct RingWindow {
  unsigned rank = 0;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  friend bool operator==(const RingWindow&, const RingWindow&) = default;
};

// In the order of the layers, all of them; the first one is of rank 0. Neighbours are of different
// ranks.
using RingPlan = std::vector<RingWindow>;

// Deals windows of `window` layers to the ranks in turn; the last one may be shorter.
// Requires  n_layers, n_ranks and window are at least 1
RingPlan interleave(std::uint32_t n_layers, unsigned n_ranks, std::uint32_t window);

// The part of a rank; without a relay. Has no layers where the rank has no window.
LayerCut cut_of(const RingPlan& plan, unsigned rank);

}  // namespace qsf

#endif  // QSF_RANKS_RING_PLAN_H_
