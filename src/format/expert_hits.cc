// SPDX-License-Identifier: MIT

#include "format/expert_hits.h"

namespace qsf {

Status check_expert_hits(std::span<const float> hits) {
  if (hits.empty()) return ok_status();
  if (hits.size() != kExpertHitSizes) {
    return invalid_argument("hits of experts: %zu values, expected %u", hits.size(),
                            kExpertHitSizes);
  }
  for (const float share : hits) {
    if (share >= 0.0F && share <= 1.0F) continue;  // not so of a NaN
    return invalid_argument("hits of experts: %g, expected 0 to 1", static_cast<double>(share));
  }
  return ok_status();
}

double expected_hits(std::span<const float> hits, double cached) noexcept {
  if (hits.empty()) return cached;
  double size_before = 0.0;
  double hits_before = 0.0;
  for (std::uint32_t i = 0; i < hits.size(); ++i) {
    const double size = expert_hit_size(i);
    const double share = hits[i];
    if (cached <= size) {
      return hits_before + (share - hits_before) * (cached - size_before) / (size - size_before);
    }
    size_before = size;
    hits_before = share;
  }
  return hits_before;
}

}  // namespace qsf
