// SPDX-License-Identifier: MIT
//
// Scales and mins of a block, read from either layout and moved between the layouts.

#ifndef QSF_QUANT_FIELDS_H_
#define QSF_QUANT_FIELDS_H_

#include <cstdint>

#include "base/bytes.h"
#include "quant/block_format.h"

namespace qsf {

// Scale and min of one block. A type without a scale has 1, a type without a min 0.
struct BlockScale {
  float scale;
  float min;
};

// Reads the fields of column block `block_index` of a row in layout 0, or of row `r` of a group.
// Requires    not a float type; the block exists
// Guarantees  scale and min of sub-blocks are the exact products
BlockScale row_block_scale(BlockFormat format, ByteSpan row, std::uint64_t block_index) noexcept;
BlockScale group_block_scale(BlockFormat format, ByteSpan group, std::uint32_t r,
                             std::uint64_t block_index) noexcept;

// Copies all fields of one row from layout 0 into row `r` of a group whose blocks have `to_block`
// columns, a divisor of format.block, each with a copy of its block's fields.
// Shapes    row [row_major_bytes], group [group_bytes({format.type, to_block}, n_cols)]
// Requires  not a float type
void put_row_fields(BlockFormat format, std::uint32_t to_block, ByteSpan row, std::uint32_t r,
                    std::uint64_t n_cols, MutableByteSpan group) noexcept;

// The inverse, for equal blocks.
void take_row_fields(BlockFormat format, ByteSpan group, std::uint32_t r, std::uint64_t n_cols,
                     MutableByteSpan row) noexcept;

}  // namespace qsf

#endif  // QSF_QUANT_FIELDS_H_
