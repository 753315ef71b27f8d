// SPDX-License-Identifier: MIT
//
// How a section's tensors are cut into tiles, and in which order the tiles stand.

#ifndef QSF_FORMAT_TILE_PLAN_H_
#define QSF_FORMAT_TILE_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "format/qsf_layout.h"

namespace qsf {

// One tile before it is written; the fields mean what they mean in TileInfo.
struct TilePlan {
  std::uint32_t tensor = 0;
  std::uint32_t first_row = 0;
  std::uint32_t n_rows = 0;
  std::uint32_t raw_bytes = 0;
  friend bool operator==(const TilePlan&, const TilePlan&) = default;
};

// Returns the tiles of `tensors`: first the one that holds all one-row tensors, then every other
// tensor in the given order, cut at multiples of 64 rows into tiles of at most `max_bytes` (at
// least 64 rows each). A gate directly followed by the up of the same shape and format alternates
// with it. Requires  tensors passed check_tensor; max_bytes <= kMaxTileBytes Fails     kUnsupported
// when 64 rows, or the one-row tensors together, exceed 4 MiB
Result<std::vector<TilePlan>> plan_tiles(std::span<const TensorInfo> tensors,
                                         std::uint64_t max_bytes);

}  // namespace qsf

#endif  // QSF_FORMAT_TILE_PLAN_H_
