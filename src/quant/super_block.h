// SPDX-License-Identifier: MIT
//
// Super-blocks: 256 columns whose sub-blocks share one pair of f16; with 64 columns a sub-block
// 2.3125, 3.3125 and 4.3125 bits per weight, with 32 columns 2.5, 3.5 and 4.5.
//
//   w[i] = (d * scale) * code[i] + (dmin * min)     scale, min in [0, 63] of the sub-block
//
// Both products are exact in f32 and the sum is rounded once. One super-block in layout 0,
// little-endian, no padding, n = 4 or 8 sub-blocks of N = 64 or 32 columns:
//
//   offset   size  field   meaning
//   0           2  d       f16, finite
//   2           2  dmin    f16, finite; writers store one <= 0
//   4           n  low     byte k: bits 0-3 of the scale of sub-block k, then bits 0-3 of its min
//   4 + n     n/2  high    one word; sub-block k has bits 4k, 4k+1 (bits 4-5 of its scale) and
//                          4k+2, 4k+3 (bits 4-5 of its min)
//   4 + 3n/2       codes   of each sub-block, packed as the plain type packs a block of N
//
// q5_k is of this form with 32 columns a sub-block and 5 bits a code: 5.5 bits per weight. q2_k has
// 16 sub-blocks of 16 columns and fields of 4 bits: its low bytes are whole fields, and nothing is
// high; 2.625 bits per weight.
//
// The last super-block of a row has the codes of ceil(rest / N) sub-blocks alone; the fields of the
// others are 0 and mean nothing.
//
// Accuracy   Rounded to the nearest code, dmin reaches the lowest weight and d the widest
//            sub-block, every min is rounded down and every scale up, so every weight is within
//            d * scale / 2 of its decoded value; quant/search/super_search.h finds fields of a
//            smaller sum of squares.

#ifndef QSF_QUANT_SUPER_BLOCK_H_
#define QSF_QUANT_SUPER_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "quant/quant_options.h"
#include "quant/types.h"

namespace qsf {

inline constexpr int kSixBitTop = 63;               // the largest scale or min of a sub-block
inline constexpr int kFourBitTop = 15;              // the same of q2_k
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

// Encodes the columns of one super-block that exist, which may be fewer than 256.
// Shapes    weights [1 .. 256]; options those of them; out: the fields and the codes of
//           ceil(size / block) sub-blocks
// Requires  a super type with mins; every weight is finite and at most 65504 in magnitude
void encode_super_block(BlockFormat format, std::span<const float> weights,
                        const QuantOptions& options, MutableByteSpan out);

}  // namespace qsf

#endif  // QSF_QUANT_SUPER_BLOCK_H_
