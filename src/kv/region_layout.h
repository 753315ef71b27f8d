// SPDX-License-Identifier: MIT
//
// Arrays one behind the other in a region that its caller plans.

#ifndef QSF_KV_REGION_LAYOUT_H_
#define QSF_KV_REGION_LAYOUT_H_

#include <cstdint>

#include "base/bytes.h"

namespace qsf {

// What every larger offset is taken for: no region has so many bytes.
inline constexpr std::uint64_t kMaxRegionBytes = std::uint64_t{1} << 62;

// Returns the offset behind [n_rows][n_columns] elements at `offset`, at a multiple of 64;
// kMaxRegionBytes where it would be above that.
inline std::uint64_t offset_behind(std::uint64_t offset, std::uint64_t n_rows,
                                   std::uint64_t n_columns, std::uint64_t element_bytes) noexcept {
  const std::uint64_t n_bytes = saturating_mul(saturating_mul(n_rows, n_columns), element_bytes);
  const std::uint64_t end = saturating_add(offset, n_bytes);
  return end > kMaxRegionBytes ? kMaxRegionBytes : align_up(end, 64);
}

}  // namespace qsf

#endif  // QSF_KV_REGION_LAYOUT_H_
