// SPDX-License-Identifier: MIT
//
// Super-blocks of the codebook types: 256 columns whose sub-blocks have a signed scale under one
// f16, and codes that index the levels of a non-uniform codebook (quant/weight_types.h), as in
// IQ4_NL and NF4. 2.3125, 3.3125 and 4.25 bits per weight.
//
//   w[i] = (d * scale) * level[code[i]]
//
// Products are exact: 11 bits of d, 5 of the scale (-32 is a power of two) and 7 of the level fit
// f32. One super-block in layout 0, little-endian, no padding:
//
//   2bit-table, 3bit-table: 16 sub-blocks of 16 columns, scale in [-8, 7]
//   offset  size  field   meaning
//   0          2  d       f16, finite; encoders store one >= 0
//   2          8  scales  byte 4t + k: sub-block 8t + k in bits 0-3, sub-block 8t + 4 + k in bits
//                         4-7, two's complement
//   10            codes   of each sub-block, packed as 2-bit or 3-bit codes
//
//   4bit-table: 8 sub-blocks of 32 columns, scale in [-32, 31]
//   offset  size  field   meaning
//   0          2  d       as above
//   2          2  high    one word; sub-block 2c + h has bits 4-5 of its scale in bits 2c + 8h and
//                         the next
//   4          4  low     one word; sub-block 2c + h has bits 0-3 of its scale from bit 4c + 16h on
//   8             codes   of each sub-block, packed as 4-bit codes
//
// The last super-block of a row has the codes of ceil(rest / block) sub-blocks only; the scales of
// the others are 0 and mean nothing.
//
// Accuracy   With Rounding::kNearest the first level reaches the weight of the largest magnitude of
//            every sub-block, of either sign, and every other weight becomes the nearest level.
//            quant/search/codebook_search.h finds fields with a smaller sum of squared errors.

#ifndef QSF_QUANT_CODEBOOK_BLOCK_H_
#define QSF_QUANT_CODEBOOK_BLOCK_H_

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "quant/block_format.h"
#include "quant/quant_options.h"

namespace qsf {

// Returns the scale of sub-block `index` of 2bit-table and 3bit-table, `word` the four bytes that
// hold it: bytes 4t to 4t + 3, t = index / 8.
constexpr int codebook_scale(std::uint32_t word, unsigned index) noexcept {
  const unsigned bits = (word >> (index % 4 * 8 + index / 4 % 2 * 4)) & 15U;
  return static_cast<int>(bits ^ 8U) - 8;
}

// Returns the scale of sub-block `index` of 4bit-table.
constexpr int codebook_scale(std::uint32_t low, std::uint32_t high, unsigned index) noexcept {
  const unsigned half = index % 2;
  const unsigned bits = ((low >> (index / 2 * 4 + half * 16)) & 15U) |
                        ((high >> (index / 2 * 2 + half * 8)) & 3U) << 4U;
  return static_cast<int>(bits ^ 32U) - 32;
}

// Writes the scales of a super-block in layout 0.
// Shapes    scales [1 .. 16 or 8], the rest become 0; fields: 10 or 8 bytes, d stays as it is
// Requires  a codebook type; scales in the range above
void put_codebook_scales(BlockFormat format, std::span<const int> scales, MutableByteSpan fields);

// Chooses the nearest level of every weight; with a scale of 0 the level nearest to 0.
// Shapes  codes [weights.size()]
void choose_codebook_codes(QuantType type, std::span<const float> weights, float scale,
                           std::uint8_t* codes) noexcept;

// Encodes the true columns of one super-block.
// Shapes    weights [1 .. 256]; options of the same columns; out: the fields and the codes of
//           ceil(size / block) sub-blocks
// Requires  a codebook type; every weight finite and at most 65504 in magnitude
void encode_codebook_block(BlockFormat format, std::span<const float> weights,
                           const QuantOptions& options, MutableByteSpan out);

}  // namespace qsf

#endif  // QSF_QUANT_CODEBOOK_BLOCK_H_
