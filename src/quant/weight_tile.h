// SPDX-License-Identifier: MIT
//
// WeightTile: a view of whole groups of rows of one weight matrix in layout 1. The pager hands it
// out, the decoder names its target, and the backend multiplies with it.
//
// A tile has an identity: its bytes are the same whenever its id is seen, wherever they lie then. A
// backend with memory of its own copies a tile once and knows it by its id afterwards.

#ifndef QSF_QUANT_WEIGHT_TILE_H_
#define QSF_QUANT_WEIGHT_TILE_H_

#include <cstddef>
#include <cstdint>

#include "quant/block_format.h"

namespace qsf {

// Numbers the tiles of all matrices of a file.
using TileId = std::uint32_t;
inline constexpr TileId kNoTile = 0xFFFFFFFFU;

struct WeightTile {
  const std::byte* bytes = nullptr;  // groups of 16 rows, 64-byte aligned
  BlockFormat format{};              // block as kernels read it: kernel_format()
  std::size_t group_bytes = 0;       // from one group of 16 rows to the next
  std::uint32_t tensor = 0;          // index into the tensors of its section of the file
  std::uint32_t first_row = 0;       // in its matrix; a multiple of 16
  std::uint32_t n_rows = 0;          // true rows; the last group is padded with zeros
  std::uint32_t n_cols = 0;          // true columns
  std::uint32_t target = 0;          // of a product: index into MatmulArgs::targets
  TileId id = kNoTile;               // none: nothing may be kept of it
  std::uint32_t offset = 0;          // of `bytes` in the whole tile: a view may be a part of it
  std::uint32_t whole_bytes = 0;     // of the whole tile
};

}  // namespace qsf

#endif  // QSF_QUANT_WEIGHT_TILE_H_
