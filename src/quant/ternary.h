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
// so code 0 is (sign 1, zero 0), code 1 is (0, 1), code 2 is (0, 0). Encoders set no sign bit under
// a zero bit; readers ignore it. The scale is the mean magnitude of the block, and weights below
// 0.3 of it become zero. A natively ternary block (all magnitudes are 0 or one m) is exact if f16
// holds m: its scale is m. For other blocks Rounding::kSearch takes the scale of the smallest error
// and the nearest codes.
//
// Ternary-row is the same with one f32 scale per row, so that natively ternary rows are exact for
// any m; 2 bits per weight and 4 bytes per row. One row in layout 0:
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
#include "quant/block_format.h"
#include "quant/quant_options.h"

namespace qsf {

// Encodes up to kBlocksPerBatch blocks (quant/search/search_loops.h).
// Shapes    weights [1 .. kBlocksPerBatch * block], the true columns; options of the same columns;
//           out: the bytes of ceil(size / block) blocks
// Requires  every weight is finite and at most 65504 in magnitude
void encode_ternary_blocks(BlockFormat format, std::span<const float> weights,
                           const QuantOptions& options, MutableByteSpan out);

// Encodes one row of ternary-row by the same rule over the whole row. Unless the row is natively
// ternary, Rounding::kSearch finds the threshold and the scale of the smallest error instead.
// Shapes    weights [n_cols]; options those of the row; out [row_major_bytes]
// Requires  every weight is finite
void encode_ternary_row(std::span<const float> weights, const QuantOptions& options,
                        MutableByteSpan out);

// Scans a tensor row by row: it is natively ternary if every magnitude is 0 or one m.
class TernaryScan {
 public:
  void add(std::span<const float> weights) noexcept;
  // True until a second magnitude was seen; false for a tensor of zeros.
  bool is_natively_ternary() const noexcept { return single_ && magnitude_ > 0.0F; }
  float magnitude() const noexcept { return magnitude_; }

 private:
  bool single_ = true;
  float magnitude_ = 0.0F;
};

}  // namespace qsf

#endif  // QSF_QUANT_TERNARY_H_
