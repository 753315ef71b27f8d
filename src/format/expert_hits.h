// SPDX-License-Identifier: MIT
//
// The curve of a mixture of experts that says how many of its uses of experts a cache finds, by the
// size of the cache. Measured on a calibration's text; a plan expects the reads of a token by it.

#ifndef QSF_FORMAT_EXPERT_HITS_H_
#define QSF_FORMAT_EXPERT_HITS_H_

#include <cstdint>
#include <span>

#include "base/status.h"

namespace qsf {

// Sizes of a curve. Small caches differ more from each other, so sizes are squares.
inline constexpr std::uint32_t kExpertHitSizes = 16;
// Returns size i as a share of all experts. Requires  i < kExpertHitSizes
constexpr double expert_hit_size(std::uint32_t i) noexcept {
  const double side = (i + 1.0) / kExpertHitSizes;
  return side * side;
}

// Checks that a curve is empty or has a share for each size.
Status check_expert_hits(std::span<const float> hits);

// Returns the share of uses that a cache of a share of all experts finds, between the sizes of the
// curve on a line. Without a curve any expert is as likely as any other.
// Requires  check_expert_hits(hits) is ok; cached 0 to 1
double expected_hits(std::span<const float> hits, double cached) noexcept;

}  // namespace qsf

#endif  // QSF_FORMAT_EXPERT_HITS_H_
