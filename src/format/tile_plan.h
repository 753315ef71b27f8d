// SPDX-License-Identifier: MIT
//
// The tiles of a section's tensors, in file order, and the size of a .qsf file, which follows from
// its tensors before the first byte is written.

#ifndef QSF_FORMAT_TILE_PLAN_H_
#define QSF_FORMAT_TILE_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "format/model_spec.h"
#include "format/qsf_layout.h"

namespace qsf {

// One tile before it is written; the fields are those of TileInfo.
struct TilePlan {
  std::uint32_t tensor = 0;
  std::uint32_t first_row = 0;
  std::uint32_t n_rows = 0;
  std::uint32_t raw_bytes = 0;
  friend bool operator==(const TilePlan&, const TilePlan&) = default;
};

// Returns the tiles of `tensors`: first one tile with all one-row tensors, then every other tensor
// in the given order, cut at multiples of 64 rows into tiles of at most `max_bytes` (at least 64
// rows each). Tiles of a gate alternate with those of an up of the same shape and format right
// behind it. Requires  tensors passed check_tensor; max_bytes <= kMaxTileBytes Fails kUnsupported
// when 64 rows, or the one-row tensors together, exceed 4 MiB
Result<std::vector<TilePlan>> plan_tiles(std::span<const TensorInfo> tensors,
                                         std::uint64_t max_bytes);

// Returns the bytes of a tensor section without compression, in whole units of kSectionAlign.
// Fails  as plan_tiles()
Result<std::uint64_t> section_file_bytes(std::span<const TensorInfo> tensors,
                                         std::uint64_t max_tile_bytes);

// Returns the bytes of header, tokenizer, layer index and metadata together, for a file without
// other sections.
std::uint64_t other_file_bytes(const ModelSpec& spec, std::uint64_t tokenizer_bytes);

}  // namespace qsf

#endif  // QSF_FORMAT_TILE_PLAN_H_
