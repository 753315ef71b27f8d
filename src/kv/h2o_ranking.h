// SPDX-License-Identifier: MIT
//
// The order of heavy hitters, as integers: the larger key is kept first.
//
// Keys of different positions differ, so what is kept does not depend on how they are sorted.

#ifndef QSF_KV_H2O_RANKING_H_
#define QSF_KV_H2O_RANKING_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "kv/kv_policy.h"

namespace qsf {

// Fewer queries are counted as this many: the mean over one or two says little, and without it the
// newest positions would outrank all others.
inline constexpr std::uint32_t kH2oMinQueries = 32;

// Whether a number can be a sum of what was paid. False for NaN.
constexpr bool is_attention_sum(float value) noexcept {
  return value >= 0.0F && value <= std::numeric_limits<float>::max();
}

// Above every other key. Requires  position < 2^31, here and below
constexpr std::uint64_t h2o_sink_key(std::uint32_t position) noexcept {
  return std::uint64_t{UINT32_MAX} << 32 | ~position;
}

// Higher ranks have larger keys, and of equal ranks the smaller position. NaN, which a damaged
// model can give, lies below all numbers: the order stays one, and such a position is kept last.
inline std::uint64_t h2o_rank_key(float rank, std::uint32_t position) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(rank + 0.0F);  // -0 becomes 0
  const std::uint32_t ordered = bits ^ (bits >> 31 != 0 ? UINT32_MAX : 0x80000000U);
  return std::uint64_t{rank != rank ? 0U : ordered} << 32 | ~position;
}

// The rank of a position whose column sum is `sum`, for a memory set that begins to serve at `end`:
// since the position was computed every query could attend to it, its own included.
inline float h2o_rank(H2oRanking ranking, float sum, std::uint32_t position,
                      std::uint32_t end) noexcept {
  if (ranking == H2oRanking::kSum) return sum;
  return sum / static_cast<float>(std::max(kH2oMinQueries, end - position));
}

}  // namespace qsf

#endif  // QSF_KV_H2O_RANKING_H_
