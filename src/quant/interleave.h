// SPDX-License-Identifier: MIT
//
// Layout 1, the interleaving of 16 rows that kernels read: conversion from and to layout 0,
// decoding of single rows, and splitting of blocks of 128 or 256 columns into blocks of 64.
//
// quant/block_format.h and docs/format-blocks.md define the bytes. Codes and scales are moved, no
// value changes, and nothing allocates.

#ifndef QSF_QUANT_INTERLEAVE_H_
#define QSF_QUANT_INTERLEAVE_H_

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "quant/block_format.h"

namespace qsf {

// Byte offsets of one column block from the start of a group. Row r has its scale at scales + 2r,
// its min at mins + 2r, and bytes 4r .. 4r+3 of every line from codes on. In super-blocks scales
// and mins are d and dmin; ternary-row and trellis types have the f32 of the row, mxfp4 its byte,
// at scales + 4r. For types that share lines (q3_k, 3bit-table), codes are those of the pair of
// blocks.
struct GroupBlock {
  std::uint64_t scales;
  std::uint64_t mins;  // equal to scales for types without a min
  std::uint64_t codes;
};

// Byte offsets of the fields of one super-block of a group. Row r has
//   d         at d + 2r, and dmin, if the type has one, 32 bytes on
//   low bits  or whole fields at low + 4r; every four sub-blocks more (eight in 2bit-table and
//             3bit-table) are 64 bytes on
//   high bits if the type has them, at high + 2r, or at high + 4r for blocks of 32 with a min
struct GroupSuperBlock {
  std::uint64_t d;
  std::uint64_t low;
  std::uint64_t high;
};

// Returns the offsets of a super-block. Requires  `format` is of a super type and valid.
constexpr GroupSuperBlock locate_super_block(BlockFormat format,
                                             std::uint64_t super_index) noexcept {
  const std::uint64_t lines = kSuperColumns / format.block * code_line_bytes(format);
  if (scale_form(format.type) == ScaleForm::kSuperNibble) {
    const std::uint64_t base = super_index * (5 * kLineBytes + lines);
    return {base, base + kLineBytes, base};
  }
  if (scale_form(format.type) == ScaleForm::kSuperSigned) {
    const std::uint64_t pair = super_index / 2 * (kLineBytes + 2 * (4 * kLineBytes + lines));
    return {pair + super_index % 2 * 2 * kRowGroup,
            pair + kLineBytes + super_index % 2 * (4 * kLineBytes + lines), pair};
  }
  if (scale_form(format.type) == ScaleForm::kSuperCodebook) {
    const std::uint64_t body = 2 * kLineBytes + lines;
    if (format.block == 16) {
      const std::uint64_t pair = super_index / 2 * (kLineBytes + 2 * body);
      return {pair + super_index % 2 * 2 * kRowGroup, pair + kLineBytes + super_index % 2 * body,
              pair};
    }
    const std::uint64_t base = super_index * body;
    return {base, base + kLineBytes, base + 2 * kRowGroup};
  }
  if (format.block == 32) {
    const std::uint64_t base = super_index * (4 * kLineBytes + lines);
    return {base, base + kLineBytes, base + 3 * kLineBytes};
  }
  const std::uint64_t pair = super_index / 2 * (kLineBytes + 2 * (2 * kLineBytes + lines));
  const std::uint64_t d = pair + kLineBytes + super_index % 2 * (2 * kLineBytes + lines);
  return {d, d + kLineBytes, pair + super_index % 2 * 2 * kRowGroup};
}

// Returns the offset of the line with the 4-bit scale of a block: row r has it in its u32 at 4r.
// Requires  the scale form is kRowNibble
constexpr std::uint64_t nibble_line(BlockFormat format, std::uint64_t block_index) noexcept {
  return kLineBytes +
         block_index / kNibbleBlocks * (kLineBytes + kNibbleBlocks * code_line_bytes(format));
}

// Returns the offsets of column block `block_index`. Requires  `format` is valid.
constexpr GroupBlock locate_block(BlockFormat format, std::uint64_t block_index) noexcept {
  const std::uint64_t lines = code_line_bytes(format);
  switch (scale_form(format.type)) {
    case ScaleForm::kNone: return {block_index * lines, block_index * lines, block_index * lines};
    case ScaleForm::kRow: return {0, 0, kLineBytes + block_index * lines};
    case ScaleForm::kRowNibble: {
      const std::uint64_t base = nibble_line(format, block_index);
      return {0, 0, base + kLineBytes + block_index % kNibbleBlocks * lines};
    }
    case ScaleForm::kBlockMin: {
      const std::uint64_t base = block_index * (kLineBytes + lines);
      return {base, base + 2 * kRowGroup, base + kLineBytes};
    }
    case ScaleForm::kSuperBlock: {
      const std::uint64_t n_sub_blocks = kSuperColumns / format.block;
      const std::uint64_t d = locate_super_block(format, block_index / n_sub_blocks).d;
      const std::uint64_t field_lines = format.block == 32 ? 4 : 2;
      return {d, d + 2 * kRowGroup,
              d + field_lines * kLineBytes + block_index % n_sub_blocks * lines};
    }
    case ScaleForm::kSuperNibble:
    case ScaleForm::kSuperSigned:
    case ScaleForm::kSuperCodebook: {
      const std::uint64_t n_sub_blocks = kSuperColumns / format.block;
      const GroupSuperBlock at = locate_super_block(format, block_index / n_sub_blocks);
      const std::uint64_t index = block_index % n_sub_blocks;
      const std::uint64_t before =
          shares_lines(format.type) ? index / 2 * 2 * lines : index * lines;
      const std::uint64_t byte_lines = format.block == 32              ? 1
                                       : is_codebook_type(format.type) ? 2
                                                                       : 4;
      return {at.d, has_min(format.type) ? at.d + 2 * kRowGroup : at.d,
              at.low + byte_lines * kLineBytes + before};
    }
    case ScaleForm::kExponent: {
      const std::uint64_t base = block_index / 4 * (kLineBytes + 4 * lines);
      return {base + block_index % 4, base + block_index % 4,
              base + kLineBytes + block_index % 4 * lines};
    }
    case ScaleForm::kBlock: break;
  }
  const std::uint64_t base = block_index / 2 * (kLineBytes + 2 * lines);
  const std::uint64_t scales = base + block_index % 2 * 2 * kRowGroup;
  return {scales, scales, base + kLineBytes + block_index % 2 * lines};
}

// The block format that kernels read: ternary-row for ternary-base3, 64 columns for blocks of 128
// and 256, otherwise `format` itself.
constexpr BlockFormat kernel_format(BlockFormat format) noexcept {
  if (format.type == QuantType::kTernaryBase3) return block_format(QuantType::kTernaryRow, 0);
  return format.block <= 64 ? format : BlockFormat{format.type, 64};
}

// Interleaves up to 16 rows.
// Shapes      rows [n_rows * row_major_bytes(format, n_cols)], out [group_bytes(format, n_cols)]
// Requires    1 <= n_rows <= 16; out does not overlap rows
// Guarantees  every byte of out is written; padding rows and columns become zeros
// Threads     any
void interleave_group(BlockFormat format, std::uint32_t n_rows, std::uint64_t n_cols, ByteSpan rows,
                      MutableByteSpan out) noexcept;

// The inverse: the n_rows true rows of a group in layout 0, padding codes zero.
// Shapes  group [group_bytes], out [n_rows * row_major_bytes]
void deinterleave_group(BlockFormat format, std::uint32_t n_rows, std::uint64_t n_cols,
                        ByteSpan group, MutableByteSpan out) noexcept;

// Interleaves any number of rows, group after group.
// Shapes  rows [rows_bytes(format, kRowMajor, ..)], out [rows_bytes(format, kInterleaved, ..)]
void interleave_rows(BlockFormat format, std::uint64_t n_rows, std::uint64_t n_cols, ByteSpan rows,
                     MutableByteSpan out) noexcept;

// Converts one interleaved group, or all groups of n_rows rows, to kernel_format(format): blocks of
// 64 columns, each with a copy of its block's scale and min, or the 2-bit codes of ternary-base3.
// Decoded weights are equal bit for bit. Blocks that lie entirely past n_cols are dropped.
// Shapes    group [group_bytes(format, ..)], out [group_bytes(kernel_format(format), ..)]
// Requires  kernel_format(format) differs from format; out does not overlap the input
void expand_group(BlockFormat format, std::uint64_t n_cols, ByteSpan group,
                  MutableByteSpan out) noexcept;
void expand_rows(BlockFormat format, std::uint64_t n_rows, std::uint64_t n_cols, ByteSpan groups,
                 MutableByteSpan out) noexcept;

// Converts rows of a file, in either layout and any block size, to what kernels read: layout 1 of
// kernel_format(format), in one step.
// Shapes    bytes [rows_bytes(format, layout, ..)]
//           out   [rows_bytes(kernel_format(format), kInterleaved, ..)]
// Requires  out does not overlap bytes
void to_kernel_form(BlockFormat format, Layout layout, std::uint64_t n_rows, std::uint64_t n_cols,
                    ByteSpan bytes, MutableByteSpan out) noexcept;

// Decodes one row directly from an interleaved group, for embedding lookup and as the reference of
// kernel tests. The same bits as decode_row of the same row in layout 0.
// Shapes    group [group_bytes(format, n_cols)], out [n_cols]
// Requires  row_in_group < 16
void decode_group_row(BlockFormat format, ByteSpan group, std::uint32_t row_in_group,
                      std::uint64_t n_cols, std::span<float> out) noexcept;

}  // namespace qsf

#endif  // QSF_QUANT_INTERLEAVE_H_
