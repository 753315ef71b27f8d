// SPDX-License-Identifier: MIT
//
// Block formats of weights and the sizes that follow from them. The types are in
// quant/weight_types.h.
//
// A weight type turns the columns of a *block*, neighbours in one row, into codes and scales. A
// layout is the order of the blocks of many rows in memory:
//
//   layout 0  row-major: row after row, block after block; used in files only
//   layout 1  row-interleaved: groups of 16 rows; kernels read it, and files hold it by default
//
// Layout 1 consists of *lines* of 64 bytes: 16 rows x 4 bytes, row r in bytes 4r .. 4r+3. For each
// of its 16 rows a line holds
//
//   f32               1 column    element r
//   f16, bf16         2 columns   element 2r + k                                  = column k
//   8-bit             4 columns   byte 4r + k                                     = column k
//   4-bit             8 columns   byte 4r + k, bits 4f .. 4f+3 (f = 0, 1)         = column 4f + k
//   2-bit, ternary   16 columns   byte 4r + k, bits 2f .. 2f+1 (f = 0 .. 3)       = column 4f + k
//   1-bit plane      32 columns   byte 4r + k, bit f (f = 0 .. 7)                 = column 4f + k
//
// so the operand of one 4-byte dot instruction is always four neighbouring columns of the input.
// The lines of a column block follow its scales:
//
//   2-bit asymmetric, 3-bit, 4-bit   per block: a line with 16 scales and 16 mins (f16), then the
//                                    code lines. 3-bit codes are the 2-bit lines of code >> 1,
//                                    then the 1-bit lines of code & 1
//   2-bit symmetric, ternary, 8-bit  per pair of blocks: a line with the 16 scales of the first and
//                                    the 16 scales of the second block, the code lines of the
//                                    first, the code lines of the second. An odd last block has
//                                    zeros for the second scales and no second code lines
//   mxfp4                            per four blocks: a line whose byte 4r + k is the exponent of
//                                    block k, the code lines of the blocks that exist
//   f32, f16, bf16                   lines only, columns padded to a multiple of 4
//   ternary-row, qk256               the code lines of every 64 columns; ternary-row has a line
//                                    with the 16 scales (f32) of its rows in front
//   ternary-base3                    the same line of scales, then 4 lines for every 80 columns, in
//                                    the order of quant/base3.h
//   2bit-trellis, 3bit-trellis       a line with the 16 scales (f32) of the rows, then for every
//                                    eight blocks a line with bits 4k .. 4k+3 of a row's u32 the
//                                    scale of block k, and the code lines of the blocks that exist
//   super-blocks                     see below
//
// A *super-block* is 256 columns: 4 sub-blocks of 64 or 8 of 32, each with a scale and a min of 6
// bits that multiply one pair of f16, d and dmin. Three kinds of lines hold these fields:
//
//   D    16 d, then 16 dmin (f16)
//   low  byte 4r + k of row r, sub-block k of 4: bits 0-3 the low bits of the scale, 4-7 of the min
//   H    the high bits: sub-block k has bits 4k, 4k+1 (scale) and 4k+2, 4k+3 (min) of one word per
//        row
//
//   sub-blocks of 64, per pair of super-blocks   H (u16: the first in bytes 0-31, the second in
//                                                32-63), then for each one D, low, its code lines
//   sub-blocks of 32, per super-block            D, low of sub-blocks 0-3, low of 4-7, H (u32), its
//                                                code lines
//
// Code lines are those of the plain type, sub-block after sub-block. 5-bit codes are the 4-bit
// lines of code & 15, then the 1-bit lines of code >> 4. The last super-block of a row has the
// lines of its ceil(rest / block) sub-blocks only. An odd last one has zeros in the second half of
// H.
//
// Super-blocks of 16 sub-blocks of 16 have one byte per sub-block: a signed scale, or a scale and a
// min of 4 bits. Four lines S hold them in the way that two lines low hold those of 8 sub-blocks.
//
//   q6_k, q3_k   per pair of super-blocks a line with the 16 d of the first and the 16 d of the
//                second, then for each one S, its code lines
//   q2_k         per super-block D, S, its code lines
//
// 6-bit codes are the 4-bit lines of code & 15, then the 2-bit line of code >> 4. 3-bit codes of 16
// columns fill half a 1-bit line: a pair of sub-blocks has the 2-bit line of each, then one 1-bit
// line, fields 0 to 3 of the first and 4 to 7 of the second. The last super-block has the code
// lines of whole 64 columns.
//
// Super-blocks of codebook types have signed scales of less than a byte, and codes that index the
// levels of the type. Their fields are laid out so that one shift of a row's word brings the fields
// of 64 columns to one place.
//
//   2bit-table, 3bit-table   per pair of super-blocks a line with the 16 d of the first and the 16
//                            d of the second, then for each one two lines T, its code lines as in
//                            q2_k and q3_k
//   4bit-table               per super-block a line with the 16 d and 16 words (u16) of bits 4 and
//                            5 of the scales, a line with 16 words (u32) of bits 0-3, its code
//                            lines
//
//   T, line t                byte 4r + k: sub-block 8t + k in bits 0-3, sub-block 8t + 4 + k in 4-7
//   words of 4bit-table      sub-block 2c + h: bits 4c + 16h of the u32, bits 2c + 8h of the u16
//
// Rows are padded to a multiple of 16 and columns to whole blocks: zero codes, scales and mins for
// padding rows, zero codes for padding columns.
//
// Based on: docs/format-blocks.md, which is the authority. Any change here needs a new type.

#ifndef QSF_QUANT_BLOCK_FORMAT_H_
#define QSF_QUANT_BLOCK_FORMAT_H_

#include <cstddef>
#include <cstdint>

#include "quant/weight_types.h"

namespace qsf {

inline constexpr std::uint32_t kRowGroup = 16;       // rows that layout 1 interleaves
inline constexpr std::size_t kLineBytes = 64;        // 16 rows x 4 bytes
inline constexpr std::uint32_t kMaxBlock = 256;      // columns of the largest block
inline constexpr std::uint32_t kSuperColumns = 256;  // columns of a super-block
inline constexpr std::uint32_t kColumnAlign = 64;    // activations are padded to whole 64 columns

enum class Layout : std::uint8_t { kRowMajor = 0, kInterleaved = 1 };

// How one tensor's weights are stored: the type and the columns of a block. `block` is
// fixed_block() where the type has one, otherwise 32, 64, 128 or 256 for types with scales per
// block (kernels read 32 and 64) and 32 or 64 for super-blocks.
struct BlockFormat {
  QuantType type;
  std::uint32_t block;
  friend bool operator==(const BlockFormat&, const BlockFormat&) = default;
};

// Returns the block format with `block` columns, or with the fixed block of the type.
constexpr BlockFormat block_format(QuantType type, std::uint32_t block) noexcept {
  return {type, fixed_block(type) != 0 ? fixed_block(type) : block};
}

// Returns whether the pair is one that files may hold.
constexpr bool is_valid(BlockFormat format) noexcept {
  if (fixed_block(format.type) != 0) return format.block == fixed_block(format.type);
  if (format.block == 32 || format.block == 64) return true;
  return !is_super_type(format.type) && (format.block == 128 || format.block == 256);
}

constexpr std::uint64_t blocks_per_row(BlockFormat format, std::uint64_t n_cols) noexcept {
  return (n_cols + format.block - 1) / format.block;
}
constexpr std::uint64_t super_blocks_per_row(std::uint64_t n_cols) noexcept {
  return (n_cols + kSuperColumns - 1) / kSuperColumns;
}

// Bytes of the codes of one block in layout 0.
constexpr std::uint64_t code_bytes(BlockFormat format) noexcept {
  if (format.type == QuantType::kTernaryBase3) return format.block / 5;
  return static_cast<std::uint64_t>(format.block) * code_bits(format.type) / 8;
}

// Blocks whose 4-bit scales are one word.
inline constexpr std::uint64_t kNibbleBlocks = 8;

// Bytes of the fields in front of the codes in layout 0: of a block, of the whole row for kRow, of
// eight blocks for kRowNibble (a row has 4 bytes more in front), of a super-block: d, dmin where
// there is one, and per sub-block one byte, a byte and a half (two fields of 6 bits), or half a
// byte or six bits (codebook types).
constexpr std::uint64_t field_bytes(BlockFormat format) noexcept {
  switch (scale_form(format.type)) {
    case ScaleForm::kNone: return 0;
    case ScaleForm::kExponent: return 1;
    case ScaleForm::kBlock: return 2;
    case ScaleForm::kBlockMin:
    case ScaleForm::kRow:
    case ScaleForm::kRowNibble: return 4;
    case ScaleForm::kSuperBlock: return 4 + kSuperColumns / format.block * 3 / 2;
    case ScaleForm::kSuperNibble: return 4 + kSuperColumns / format.block;
    case ScaleForm::kSuperSigned: return 2 + kSuperColumns / format.block;
    case ScaleForm::kSuperCodebook: return format.block == 16 ? 10 : 8;
  }
  return 0;
}

// Bytes of one block in layout 0: scale, min where the type has one, codes.
// Requires  the type has scales per block
constexpr std::uint64_t block_bytes(BlockFormat format) noexcept {
  return field_bytes(format) + code_bytes(format);
}

// Byte offsets of block `block_index` from the start of a row in layout 0: of its codes, and of its
// fields (its own, its super-block's or its row's; of kRowNibble the word of its scale).
// Requires  not a float type
struct RowBlock {
  std::uint64_t fields;
  std::uint64_t codes;
};
constexpr RowBlock locate_in_row(BlockFormat format, std::uint64_t block_index) noexcept {
  const std::uint64_t codes_before = block_index * code_bytes(format);
  switch (scale_form(format.type)) {
    case ScaleForm::kNone:
    case ScaleForm::kRow: return {0, field_bytes(format) + codes_before};
    case ScaleForm::kRowNibble: {
      const std::uint64_t word =
          4 + block_index / kNibbleBlocks * (4 + kNibbleBlocks * code_bytes(format));
      return {word, word + 4 + block_index % kNibbleBlocks * code_bytes(format)};
    }
    case ScaleForm::kBlock:
    case ScaleForm::kBlockMin:
    case ScaleForm::kExponent: break;
    case ScaleForm::kSuperBlock:
    case ScaleForm::kSuperNibble:
    case ScaleForm::kSuperSigned:
    case ScaleForm::kSuperCodebook: {
      const std::uint64_t n_sub_blocks = kSuperColumns / format.block;
      const std::uint64_t super_index = block_index / n_sub_blocks;
      const std::uint64_t fields_before = super_index * field_bytes(format);
      return {fields_before + super_index * n_sub_blocks * code_bytes(format),
              fields_before + field_bytes(format) + codes_before};
    }
  }
  const std::uint64_t fields = block_index * block_bytes(format);
  return {fields, fields + field_bytes(format)};
}

// Bytes of one row of `n_cols` columns in layout 0.
constexpr std::uint64_t row_major_bytes(BlockFormat format, std::uint64_t n_cols) noexcept {
  if (is_float_type(format.type)) return n_cols * code_bits(format.type) / 8;
  if (format.type == QuantType::kQk256) return super_blocks_per_row(n_cols) * 64;
  const std::uint64_t n_blocks = blocks_per_row(format, n_cols);
  if (scale_form(format.type) == ScaleForm::kRowNibble) {
    return 4 + (n_blocks + kNibbleBlocks - 1) / kNibbleBlocks * 4 + n_blocks * code_bytes(format);
  }
  const std::uint64_t n_fields = scale_form(format.type) == ScaleForm::kRow ? 1
                                 : is_super_type(format.type) ? super_blocks_per_row(n_cols)
                                                              : n_blocks;
  return n_fields * field_bytes(format) + n_blocks * code_bytes(format);
}

// Whether a pair of blocks shares a 1-bit line in layout 1: 3-bit codes of 16 columns fill half.
constexpr bool shares_lines(QuantType type) noexcept {
  return code_bits(type) == 3 && fixed_block(type) == 16;
}

// Bytes of the code lines of one column block of 16 rows in layout 1: a multiple of 64, or for
// types that share lines half the lines of a pair of blocks.
constexpr std::uint64_t code_line_bytes(BlockFormat format) noexcept {
  return code_bytes(format) * kRowGroup;
}

// Whether kernels multiply the sums of sub-blocks by integer scales, 64 columns at a time.
constexpr bool has_whole_scales(QuantType type) noexcept {
  return fixed_block(type) == 16 || is_codebook_type(type);
}

// Column blocks that have code lines in layout 1; types with integer scales have whole 64 columns.
constexpr std::uint64_t line_blocks(BlockFormat format, std::uint64_t n_cols) noexcept {
  return has_whole_scales(format.type) ? (n_cols + 63) / 64 * (64 / format.block)
                                       : blocks_per_row(format, n_cols);
}

// Bytes of one group of 16 rows of `n_cols` columns in layout 1; a multiple of 64.
constexpr std::uint64_t group_bytes(BlockFormat format, std::uint64_t n_cols) noexcept {
  const std::uint64_t n_blocks = line_blocks(format, n_cols);
  const std::uint64_t n_supers = super_blocks_per_row(n_cols);
  std::uint64_t n_field_lines = 0;
  switch (scale_form(format.type)) {
    case ScaleForm::kNone: break;
    case ScaleForm::kBlock: n_field_lines = (n_blocks + 1) / 2; break;
    case ScaleForm::kBlockMin: n_field_lines = n_blocks; break;
    case ScaleForm::kExponent: n_field_lines = (n_blocks + 3) / 4; break;
    case ScaleForm::kRow: n_field_lines = 1; break;
    case ScaleForm::kRowNibble:
      n_field_lines = 1 + (n_blocks + kNibbleBlocks - 1) / kNibbleBlocks;
      break;
    case ScaleForm::kSuperBlock:
      n_field_lines = format.block == 32 ? 4 * n_supers : 2 * n_supers + (n_supers + 1) / 2;
      break;
    case ScaleForm::kSuperNibble: n_field_lines = 5 * n_supers; break;
    case ScaleForm::kSuperSigned: n_field_lines = 4 * n_supers + (n_supers + 1) / 2; break;
    case ScaleForm::kSuperCodebook:
      n_field_lines = 2 * n_supers + (format.block == 16 ? (n_supers + 1) / 2 : 0);
      break;
  }
  return n_field_lines * kLineBytes + n_blocks * code_line_bytes(format);
}

// Bytes of `n_rows` rows in `layout`. Requires  n_rows and n_cols below 2^32, so nothing overflows.
constexpr std::uint64_t rows_bytes(BlockFormat format, Layout layout, std::uint64_t n_rows,
                                   std::uint64_t n_cols) noexcept {
  if (layout == Layout::kRowMajor) return n_rows * row_major_bytes(format, n_cols);
  return (n_rows + kRowGroup - 1) / kRowGroup * group_bytes(format, n_cols);
}

static_assert(block_bytes({QuantType::kQ2A, 64}) == 20);
static_assert(block_bytes({QuantType::kQ2S, 64}) == 18);
static_assert(block_bytes({QuantType::kQ3, 64}) == 28);
static_assert(block_bytes({QuantType::kQ4, 64}) == 36);
static_assert(block_bytes({QuantType::kTernary, 64}) == 18);
static_assert(group_bytes({QuantType::kQ4, 32}, 32) == 64 + 256);
static_assert(group_bytes({QuantType::kTernary, 32}, 96) == 2 * 64 + 3 * 128);
static_assert(row_major_bytes({QuantType::kQ2Super, 64}, 256) == 10 + 64);
static_assert(row_major_bytes({QuantType::kQ4Super, 32}, 300) == 2 * 16 + 10 * 16);
static_assert(row_major_bytes({QuantType::kQk256, 64}, 257) == 128);
static_assert(row_major_bytes({QuantType::kTernaryRow, 64}, 257) == 4 + 5 * 16);
static_assert(group_bytes({QuantType::kQ2Super, 64}, 512) == 5 * 64 + 8 * 256);  // 2.3125 bits
static_assert(group_bytes({QuantType::kQ3Super, 64}, 512) == 5 * 64 + 8 * 384);  // 3.3125
static_assert(group_bytes({QuantType::kQ4Super, 64}, 512) == 5 * 64 + 8 * 512);  // 4.3125
static_assert(group_bytes({QuantType::kQ4Super, 64}, 300) == 5 * 64 + 5 * 512);
static_assert(group_bytes({QuantType::kQ4Super, 32}, 300) == 8 * 64 + 10 * 256);
static_assert(group_bytes({QuantType::kTernaryRow, 64}, 257) == 64 + 5 * 256);
static_assert(row_major_bytes({QuantType::kTernaryBase3, 80}, 257) == 4 + 4 * 16);
static_assert(group_bytes({QuantType::kTernaryBase3, 80}, 257) == 64 + 4 * 256);
static_assert(row_major_bytes({QuantType::kQ2K, 16}, 256) == 84);
static_assert(row_major_bytes({QuantType::kQ3K, 16}, 256) == 114);
static_assert(row_major_bytes({QuantType::kQ5K, 32}, 256) == 176);
static_assert(row_major_bytes({QuantType::kQ6K, 16}, 256) == 210);
static_assert(group_bytes({QuantType::kQ2K, 16}, 512) == 2 * 16 * 84);   // 2.625 bits
static_assert(group_bytes({QuantType::kQ3K, 16}, 512) == 2 * 16 * 114);  // 3.5625
static_assert(group_bytes({QuantType::kQ5K, 32}, 512) == 2 * 16 * 176);  // 5.5
static_assert(group_bytes({QuantType::kQ6K, 16}, 512) == 2 * 16 * 210);  // 6.5625
static_assert(group_bytes({QuantType::kQ6K, 16}, 300) == 9 * 64 + 20 * 192);
static_assert(row_major_bytes({QuantType::kQ2Codebook, 16}, 256) == 74);
static_assert(row_major_bytes({QuantType::kQ3Codebook, 16}, 256) == 106);
static_assert(row_major_bytes({QuantType::kQ4Codebook, 32}, 256) == 136);
static_assert(group_bytes({QuantType::kQ2Codebook, 16}, 512) == 2 * 16 * 74);   // 2.3125 bits
static_assert(group_bytes({QuantType::kQ3Codebook, 16}, 512) == 2 * 16 * 106);  // 3.3125
static_assert(group_bytes({QuantType::kQ4Codebook, 32}, 256) == 16 * 136);      // 4.25
static_assert(group_bytes({QuantType::kQ4Codebook, 32}, 300) == 4 * 64 + 10 * 256);
static_assert(row_major_bytes({QuantType::kQ2Trellis, 64}, 576) == 4 + 2 * 4 + 9 * 16);
static_assert(group_bytes({QuantType::kQ2Trellis, 64}, 512) == 2 * 64 + 8 * 256);
static_assert(group_bytes({QuantType::kQ3Trellis, 64}, 576) == 3 * 64 + 9 * 384);
static_assert(row_major_bytes({QuantType::kMxfp4, 32}, 300) == 10 * 17);
static_assert(group_bytes({QuantType::kMxfp4, 32}, 256) == 16 * 8 * 17);  // 4.25 bits
static_assert(group_bytes({QuantType::kMxfp4, 32}, 300) == 3 * 64 + 10 * 256);

}  // namespace qsf

#endif  // QSF_QUANT_BLOCK_FORMAT_H_
