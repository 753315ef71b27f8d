// SPDX-License-Identifier: MIT
//
// Base-3 packing: five ternary codes per byte, 1.6 bits per weight. Used in files only; kernels
// read the same weights as ternary-row.
//
//   byte = ceil(256 * v / 243), v = 81 c0 + 27 c1 + 9 c2 + 3 c3 + c4      c0 .. c4 in 0 .. 2
//
// so that multiplying a byte by three yields a code as the carry, c0 = 3 * byte / 256, and the low
// byte of the product encodes the remaining codes. 243 of the 256 byte values are valid.
//
// A block is 80 columns in 16 bytes: byte 4f + k holds the codes of columns 16t + 4f + k, t = 0 ..
// 4. In lines (layout 1) the bytes 4f .. 4f+3 of row r are bytes 4r .. 4r+3 of line f of the
// block's four. Code t of such a byte is field f of the t-th line of 2-bit codes at the same place,
// so whole lines convert to whole lines: four of base-3 to five of 2-bit codes.

#ifndef QSF_QUANT_BASE3_H_
#define QSF_QUANT_BASE3_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "quant/block_format.h"
#include "quant/quant_options.h"

namespace qsf {

inline constexpr std::uint32_t kBase3Block = 80;

// Packs codes, one byte each, into a block, and unpacks them.
// Shapes      codes [80], packed [16]
// Requires    block is 80; codes are below 3 when packing
// Guarantees  any bytes unpack to codes below 3
void pack_base3(const std::uint8_t* codes, std::uint32_t block, std::uint32_t n_true,
                std::byte* packed) noexcept;
void unpack_base3(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept;

// Returns whether every byte is a valid base-3 byte.
bool are_base3_bytes(ByteSpan bytes) noexcept;

// Converts lines of base-3 codes to lines of 2-bit codes.
// Shapes    base3 [256 * n_blocks], lines [64 * n_lines]
// Requires  n_lines <= 5 * n_blocks; further codes are dropped; lines does not overlap base3
void base3_to_2bit_lines(const std::byte* base3, std::uint64_t n_lines, std::byte* lines) noexcept;

// Converts one block of each of n_rows rows in layout 0, `row_bytes` apart, to lines of 2-bit
// codes. Shapes    base3 [16] per row, lines [320]; bytes of rows from the next multiple of four on
// stay
//           as they are
// Requires  n_rows is 1 .. 16; lines does not overlap base3
void base3_rows_to_2bit_lines(const std::byte* base3, std::size_t row_bytes, std::uint32_t n_rows,
                              std::byte* lines) noexcept;

// Encodes one row as encode_ternary_row() does.
// Shapes    weights [n_cols]; options of the row; out [row_major_bytes]
// Requires  every weight is finite
void encode_base3_row(std::span<const float> weights, const QuantOptions& options,
                      MutableByteSpan out);

// Returns whether one row of ternary or ternary-row has at most one scale, ignoring blocks of
// zeros. Shapes  row [row_major_bytes(from, n_cols)]
bool has_one_ternary_scale(BlockFormat from, std::uint64_t n_cols, ByteSpan row) noexcept;

// Repacks one row of ternary or ternary-row as ternary-row or ternary-base3, in layout 0. Weights
// stay equal bit for bit, except the signs of zeros.
// Shapes    row [row_major_bytes(from, n_cols)], out [row_major_bytes(to, n_cols)]
// Requires  has_one_ternary_scale(from, n_cols, row); check_blocks() accepts the row
void repack_ternary_row(BlockFormat from, BlockFormat to, std::uint64_t n_cols, ByteSpan row,
                        MutableByteSpan out);

}  // namespace qsf

#endif  // QSF_QUANT_BASE3_H_
