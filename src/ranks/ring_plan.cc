// SPDX-License-Identifier: MIT

#include "ranks/ring_plan.h"

#include <algorithm>

namespace qsf {

RingPlan interleave(std::uint32_t n_layers, unsigned n_ranks, std::uint32_t window) {
  RingPlan plan;
  for (std::uint32_t first = 0; first < n_layers; first += window) {
    const std::uint32_t last = std::min(n_layers, first + window);
    const auto rank = static_cast<unsigned>(plan.size() % n_ranks);
    if (!plan.empty() && plan.back().rank == rank) {
      plan.back().last = last;  // one rank alone
    } else {
      plan.push_back({.rank = rank, .first = first, .last = last});
    }
  }
  return plan;
}

LayerCut cut_of(const RingPlan& plan, unsigned rank) {
  LayerCut cut;
  cut.has_ends = rank == 0;
  for (const RingWindow& window : plan) {
    if (window.rank != rank) continue;
    for (std::uint32_t layer = window.first; layer < window.last; ++layer) {
      cut.layers.push_back(layer);
    }
    cut.window_ends.push_back(static_cast<std::uint32_t>(cut.layers.size()));
  }
  return cut;
}

}  // namespace qsf
