// SPDX-License-Identifier: MIT
//
// Ternary weights: -1, 0 or +1 times a scale; 2.25 bits per weight at 64 columns a block.
//
//   w[i] = scale * (code[i] - 1)                    code[i] in [0, 2]
//
// One block in layout 0, little-endian, no padding, N columns (32, 64, 128 or 256):
//
//   offset    size  field   meaning
//   0            2  scale   f16, finite, >= 0; 0 means that the whole block is zero
//   2          N/8  sign    bit i % 8 of byte i / 8: 1 = weight i is negative
//   2 + N/8    N/8  zero    bit i % 8 of byte i / 8: 1 = weight i is zero, whatever its sign bit
//
// so code 0 is (sign 1, zero 0), code 1 is (0, 1), code 2 is (0, 0). Writers set no sign bit under
// a zero bit; readers ignore it. The scale is the mean magnitude of the block and weights below 0.3
// of it become zero, except where a block is ternary already (all its magnitudes are 0 or one m):
// then the scale is m and the block is exact, if f16 holds m. A search of blocks that are not
// ternary already finds the scale of the smallest error instead, and codes are the nearest.
//
// Ternary-row is the same with one scale a row, in f32, so that natively ternary rows are exact
// whatever their m; 2 bits per weight and 4 bytes a row. One row in layout 0:
//
//   offset                 size  field   meaning
//   0                         4  scale   f32, finite; writers store one >= 0
//   4   16 * ceil(n_cols / 64)  codes   of each 64 columns, byte j: code[j + 16f] in bits 2f, 2f+1

#ifndef QSF_QUANT_TERNARY_H_
#define QSF_QUANT_TERNARY_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "quant/quant_options.h"
#include "quant/types.h"

namespace qsf {

// Packs codes, one byte each, into the code bytes of a block, and unpacks them.
// Shapes    codes [block]; those from n_true on stand for columns that do not exist and are zero
void pack_ternary(const std::uint8_t* codes, std::uint32_t block, std::uint32_t n_true,
                  std::byte* packed) noexcept;
void unpack_ternary(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept;

// Encodes up to kBlocksPerBatch blocks (quant/search/code_sums.h).
// Shapes    weights [1 .. kBlocksPerBatch * block], the columns that exist; options those of them;
// out:
//           as many blocks as have columns
// Requires  every weight is finite and at most 65504 in magnitude
void encode_ternary_blocks(BlockFormat format, std::span<const float> weights,
                           const QuantOptions& options, MutableByteSpan out);

// Encodes one row of ternary-row, by the same rule over the whole row. A search finds the threshold
// and the scale of the smallest error instead, unless the row is ternary already.
// Shapes    weights [n_cols]; options those of the row; out [row_major_bytes]
// Requires  every weight is finite
void encode_ternary_row(std::span<const float> weights, const QuantOptions& options,
                        MutableByteSpan out);

// Follows a tensor row by row to tell whether it is natively ternary: every magnitude 0 or one m.
class TernaryScan {
 public:
  void add(std::span<const float> weights) noexcept;
  // True until a second magnitude was seen; a tensor of zeros alone is not called ternary.
  bool is_natively_ternary() const noexcept { return single_ && magnitude_ > 0.0F; }
  float magnitude() const noexcept { return magnitude_; }

 private:
  bool single_ = true;
  float magnitude_ = 0.0F;
};

}  // namespace qsf

#endif  // QSF_QUANT_TERNARY_H_
