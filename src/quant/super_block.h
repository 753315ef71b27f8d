// SPDX-License-Identifier: MIT
//
// Super-blocks: 256 columns whose sub-blocks have small scales (and mins) under one pair of f16.
// Little-endian, no padding, N columns and n = 256 / N sub-blocks. Super-blocks of codebook types
// are in quant/codebook_block.h.
//
// With a min:  w[i] = (d * scale) * code[i] + (dmin * min)
//
//   type                                  N         bits per weight       fields
//   2bit-super, 3bit-super, 4bit-super    64 or 32  2.3125, 3.3125,       6 bits, 0 .. 63
//                                                   4.3125, or 2.5, ...
//   q5_k                                  32        5.5                   6 bits, 0 .. 63
//   q2_k                                  16        2.625                 4 bits, 0 .. 15
//
//   offset   size  field   meaning
//   0           2  d       f16, finite
//   2           2  dmin    f16, finite; encoders store one <= 0
//   4           n  low     byte k: bits 0-3 of the scale of sub-block k, then bits 0-3 of its min
//   4 + n     n/2  high    one word; sub-block k has bits 4k, 4k+1 (bits 4-5 of its scale) and
//                          4k+2, 4k+3 (bits 4-5 of its min); absent in q2_k
//   4 + 3n/2       codes   of each sub-block, packed as the plain type packs a block of N
//
// Without a min (q6_k, 6.5625 bits per weight, and q3_k, 3.5625; N = 16):
//              w[i] = (d * scale) * (code[i] - zero)       zero = 32 for q6_k, 4 for q3_k
//
//   offset  size  field   meaning
//   0          2  d       f16, finite; encoders store one >= 0
//   2         16  scales  byte k: the scale of sub-block k, two's complement
//   18            codes   of each sub-block, packed as 6-bit or 3-bit codes
//
// Products are exact in f32; the sum with a min is rounded once. The last super-block of a row has
// the codes of ceil(rest / N) sub-blocks only; the fields of the others are 0 and mean nothing.
//
// Accuracy   Rounded to the nearest code, dmin reaches the lowest weight and d the widest sub-block
//            (without a min, the largest magnitude), every min is rounded down and every scale up,
//            so every weight is within d * scale / 2 of its decoded value.
//            quant/search/super_search.h finds fields with a smaller sum of squared errors.

#ifndef QSF_QUANT_SUPER_BLOCK_H_
#define QSF_QUANT_SUPER_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "quant/block_format.h"
#include "quant/quant_options.h"

namespace qsf {

inline constexpr std::uint32_t kMaxSubBlocks = 16;  // of 16 columns

// The 6-bit fields of one sub-block.
struct SixBitFields {
  unsigned scale;
  unsigned min;
};

// Joins the fields of sub-block `index` from its byte of low bits and its word of high bits.
constexpr SixBitFields join_six_bits(unsigned low, std::uint32_t high, unsigned index) noexcept {
  const unsigned bits = (high >> (4 * index)) & 15U;
  return {(low & 15U) | (bits & 3U) << 4U, (low >> 4U) | (bits >> 2U) << 4U};
}

// Encode the true columns of one super-block, of a type with mins or with signed scales.
// Shapes    weights [1 .. 256]; options of the same columns; out: the fields and the codes of
//           ceil(size / block) sub-blocks
// Requires  a super type that has mins, or ScaleForm::kSuperSigned; every weight is finite and at
//           most 65504 in magnitude
void encode_super_block(BlockFormat format, std::span<const float> weights,
                        const QuantOptions& options, MutableByteSpan out);
void encode_signed_super_block(BlockFormat format, std::span<const float> weights,
                               const QuantOptions& options, MutableByteSpan out);

}  // namespace qsf

#endif  // QSF_QUANT_SUPER_BLOCK_H_
