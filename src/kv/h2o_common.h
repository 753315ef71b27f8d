// SPDX-License-Identifier: MIT
//
// Shared by sparse prefill (sparse_prefill_state.h) and H2O eviction (h2o_eviction.h): the ranking
// of positions by attention mass, and the layout of arrays in a planned region.

#ifndef QSF_KV_H2O_COMMON_H_
#define QSF_KV_H2O_COMMON_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/bit_cast.h"
#include "base/bytes.h"
#include "kv/kv_policy.h"

namespace qsf {

// Ranks are integer keys: positions with larger keys are kept. Keys of different positions differ,
// so the choice does not depend on how they are sorted.

// The mean is taken over at least this many queries: the mean over one or two is noise, and the
// newest positions would outrank all others.
inline constexpr std::uint32_t kH2oMinQueries = 32;

// Returns whether a number can be a sum of attention. False for NaN.
constexpr bool is_attention_sum(float value) noexcept {
  return value >= 0.0F && value <= std::numeric_limits<float>::max();
}

// The largest keys. Requires  position < 2^31, here and below
constexpr std::uint64_t h2o_sink_key(std::uint32_t position) noexcept {
  return std::uint64_t{UINT32_MAX} << 32 | ~position;
}

// Higher ranks have larger keys; of equal ranks the smaller position has. NaN, from a damaged
// model, ranks below all numbers.
inline std::uint64_t h2o_rank_key(float rank, std::uint32_t position) noexcept {
  const std::uint32_t bits = bit_cast<std::uint32_t>(rank + 0.0F);  // -0 becomes 0
  const std::uint32_t ordered = bits ^ (bits >> 31 != 0 ? UINT32_MAX : 0x80000000U);
  return std::uint64_t{rank != rank ? 0U : ordered} << 32 | ~position;
}

// The rank of a position with column sum `sum` for a memory set that is used from `end` on: all
// end - position queries since the position was computed, its own included, could attend to it.
inline float h2o_rank(H2oRanking ranking, float sum, std::uint32_t position,
                      std::uint32_t end) noexcept {
  if (ranking == H2oRanking::kSum) return sum;
  return sum / static_cast<float>(std::max(kH2oMinQueries, end - position));
}

// Larger offsets saturate here: no region has so many bytes.
inline constexpr std::uint64_t kMaxRegionBytes = std::uint64_t{1} << 62;

// Returns the offset behind [n_rows][n_columns] elements at `offset`, rounded up to 64 and
// saturated at kMaxRegionBytes.
inline std::uint64_t offset_behind(std::uint64_t offset, std::uint64_t n_rows,
                                   std::uint64_t n_columns, std::uint64_t element_bytes) noexcept {
  const std::uint64_t n_bytes = saturating_mul(saturating_mul(n_rows, n_columns), element_bytes);
  const std::uint64_t end = saturating_add(offset, n_bytes);
  return end > kMaxRegionBytes ? kMaxRegionBytes : align_up(end, 64);
}

}  // namespace qsf

#endif  // QSF_KV_H2O_COMMON_H_
