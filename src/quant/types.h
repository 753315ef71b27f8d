// SPDX-License-Identifier: MIT
//
// The weight types of a .qsf file and the sizes that follow from them.
//
// A weight type says how a group of neighbouring columns of one row, a *block*, becomes codes and
// scales. A layout says in which order the blocks of many rows stand in memory:
//
//   layout 0  row-major: one row after the other, block after block; a form of files alone
//   layout 1  row-interleaved: groups of 16 rows; what kernels read and what files hold by default
//
// Layout 1 is made of *lines* of 64 bytes: 16 rows x 4 bytes, row r in bytes 4r .. 4r+3. One line
// holds, for every one of its 16 rows,
//
//   f32               1 column    element r
//   f16, bf16         2 columns   element 2r + k                                  = column k
//   8-bit             4 columns   byte 4r + k                                     = column k
//   4-bit             8 columns   byte 4r + k, bits 4f .. 4f+3 (f = 0, 1)         = column 4f + k
//   2-bit, ternary   16 columns   byte 4r + k, bits 2f .. 2f+1 (f = 0 .. 3)       = column 4f + k
//   1-bit plane      32 columns   byte 4r + k, bit f (f = 0 .. 7)                 = column 4f + k
//
// so the operand of one 4-byte dot instruction is always four neighbouring columns of the input.
// The lines of one column block follow its scales:
//
//   2-bit asymmetric, 3-bit, 4-bit   per block: a line with the 16 scales then the 16 mins (f16),
//                                    then the code lines; 3-bit codes are the 2-bit lines of
//                                    code >> 1 and then the 1-bit lines of code & 1
//   2-bit symmetric, ternary, 8-bit  per pair of blocks: a line with the 16 scales of the first and
//                                    the 16 scales of the second, then the code lines of the first,
//                                    then those of the second. An odd last block has zeros for the
//                                    second scales and no second code lines.
//   f32, f16, bf16                   lines alone, columns padded to a multiple of 4
//
// Rows are padded to a multiple of 16 and columns to whole blocks with zero codes, zero scales and
// zero mins for rows that do not exist, zero codes for columns that do not exist.
//
// Based on: docs/format.md, which is the authority; changing anything here needs a new type.

#ifndef QSF_QUANT_TYPES_H_
#define QSF_QUANT_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace qsf {

// Part of the file format: a code once released never changes meaning. 10 to 12 and 16 upwards are
// reserved in docs/format.md.
enum class QuantType : std::uint8_t {
  kQ2S = 0,      // 2-bit symmetric:   w = scale * (code - 1.5)
  kQ2A = 1,      // 2-bit asymmetric:  w = scale * code + min
  kQ3 = 2,       // 3-bit:             w = scale * code + min
  kQ4 = 3,       // 4-bit:             w = scale * code + min
  kTernary = 4,  // ternary:           w = scale * (code - 1), code in 0 .. 2
  kF32 = 6,
  kF16 = 7,
  kBF16 = 8,
  kQ8 = 9,  // 8-bit:             w = scale * code, code in -127 .. 127
};

inline constexpr QuantType kAllQuantTypes[] = {
    QuantType::kQ2S, QuantType::kQ2A, QuantType::kQ3,   QuantType::kQ4, QuantType::kTernary,
    QuantType::kF32, QuantType::kF16, QuantType::kBF16, QuantType::kQ8};

inline constexpr std::uint32_t kRowGroup = 16;   // rows that layout 1 interleaves
inline constexpr std::size_t kLineBytes = 64;    // 16 rows x 4 bytes
inline constexpr std::uint32_t kMaxBlock = 256;  // columns of the largest block
inline constexpr std::uint32_t kColumnAlign =
    64;  // activations are zero-padded to this many columns

enum class Layout : std::uint8_t { kRowMajor = 0, kInterleaved = 1 };

// How one tensor's weights are stored: the type and the columns of a block. `block` is 32, 64, 128
// or 256 for coded types (kernels know 32 and 64 alone) and 4 for f32, f16 and bf16.
struct BlockFormat {
  QuantType type;
  std::uint32_t block;
  friend bool operator==(const BlockFormat&, const BlockFormat&) = default;
};

// Returns whether `code` is the number of a type above.
constexpr bool is_quant_type(std::uint8_t code) noexcept {
  return code <= 4 || (code >= 6 && code <= 9);
}
constexpr bool is_float_type(QuantType type) noexcept {
  return type == QuantType::kF32 || type == QuantType::kF16 || type == QuantType::kBF16;
}
constexpr bool has_min(QuantType type) noexcept {
  return type == QuantType::kQ2A || type == QuantType::kQ3 || type == QuantType::kQ4;
}
// Bits of one code (or of one float), scales not counted.
constexpr std::uint32_t code_bits(QuantType type) noexcept {
  switch (type) {
    case QuantType::kQ2S:
    case QuantType::kQ2A:
    case QuantType::kTernary: return 2;
    case QuantType::kQ3: return 3;
    case QuantType::kQ4: return 4;
    case QuantType::kQ8: return 8;
    case QuantType::kF16:
    case QuantType::kBF16: return 16;
    case QuantType::kF32: return 32;
  }
  return 0;
}

// Returns the name used on command lines and in messages: "2bit-sym", "2bit", "3bit", "4bit",
// "ternary", "8bit", "f16", "bf16", "f32".
std::string_view quant_type_name(QuantType type) noexcept;

// Returns the block format with `block` columns, or 4 for float types.
constexpr BlockFormat block_format(QuantType type, std::uint32_t block) noexcept {
  return {type, is_float_type(type) ? 4U : block};
}

// Returns whether the pair is one that files may hold.
constexpr bool is_valid(BlockFormat format) noexcept {
  if (is_float_type(format.type)) return format.block == 4;
  return format.block == 32 || format.block == 64 || format.block == 128 || format.block == 256;
}

constexpr std::uint64_t blocks_per_row(BlockFormat format, std::uint64_t n_cols) noexcept {
  return (n_cols + format.block - 1) / format.block;
}

// Bytes of one block in layout 0: scale, min where the type has one, codes. For float types a
// "block" is one element there (rows are not padded), see row_major_bytes.
constexpr std::uint64_t block_bytes(BlockFormat format) noexcept {
  return (is_float_type(format.type) ? 0U
          : has_min(format.type)     ? 4U
                                     : 2U) +
         static_cast<std::uint64_t>(format.block) * code_bits(format.type) / 8;
}

// Bytes of one row of `n_cols` columns in layout 0.
constexpr std::uint64_t row_major_bytes(BlockFormat format, std::uint64_t n_cols) noexcept {
  if (is_float_type(format.type)) return n_cols * code_bits(format.type) / 8;
  return blocks_per_row(format, n_cols) * block_bytes(format);
}

// Bytes of the code lines of one column block of 16 rows in layout 1; a multiple of 64.
constexpr std::uint64_t code_line_bytes(BlockFormat format) noexcept {
  return static_cast<std::uint64_t>(format.block) * code_bits(format.type) / 8 * kRowGroup;
}

// Bytes of one group of 16 rows of `n_cols` columns in layout 1; a multiple of 64.
constexpr std::uint64_t group_bytes(BlockFormat format, std::uint64_t n_cols) noexcept {
  const std::uint64_t n_blocks = blocks_per_row(format, n_cols);
  const std::uint64_t codes = n_blocks * code_line_bytes(format);
  if (is_float_type(format.type)) return codes;
  const std::uint64_t scale_lines = has_min(format.type) ? n_blocks : (n_blocks + 1) / 2;
  return codes + scale_lines * kLineBytes;
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

}  // namespace qsf

#endif  // QSF_QUANT_TYPES_H_
