// SPDX-License-Identifier: MIT
//
// Encoders of the types whose blocks have fields of their own: fitting a scale (and a min) to a
// block, and choosing its codes. Ternary encoders are in quant/ternary.h.
//
// One block in layout 0, little-endian, no padding, N columns (32, 64, 128 or 256), is the fields
// and then the codes as quant/code_packing.h packs them. Bits per weight are those of N = 64.
//
//   type      bits  fields               weights
//   2bit-sym  2.25  scale f16 >= 0       w = scale * (code - 1.5), code in 0 .. 3
//   2bit       2.5  scale f16 >= 0, min  w = scale * code + min, code in 0 .. 3
//   3bit       3.5  scale f16 >= 0, min  w = scale * code + min, code in 0 .. 7
//   4bit       4.5  scale f16, min f16   w = scale * code + min, code in 0 .. 15
//   8bit      8.25  scale f16            w = scale * code, code in -127 .. 127; -128 is never used
//   qk256        2  none                 w = -2, -1, 1, 2 for code 0 .. 3
//
// Fields are finite. A scale of 0 makes the whole block equal to min, or to zero without a min.
//
// Accuracy  Fields are rounded to f16 first, and codes are chosen against the rounded fields. With
//           Rounding::kNearest, types with a min round min down and scale up, so that
//           [min, min + top * scale] holds every weight and no weight is off by more than
//           scale / 2; 8bit rounds its scale so that 127 * scale reaches the largest magnitude.
//           2bit-sym has no such rule: its scale is always searched, weights beyond 1.5 * scale are
//           clipped where that lowers the sum of squared errors, and a block of the four levels is
//           exact. Rounding::kSearch (quant/search/block_search.h) may clip weights likewise.
//
// qk256 keeps weights that came in this form: a row in layout 0 is 64 bytes for every 256 columns,
// the last 64 whole. Codes past the last column mean nothing; encoders leave them 0.

#ifndef QSF_QUANT_BLOCK_ENCODERS_H_
#define QSF_QUANT_BLOCK_ENCODERS_H_

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/f16.h"
#include "quant/block_format.h"
#include "quant/quant_options.h"

namespace qsf {

struct AffineFields {
  F16 scale;  // finite, >= 0; 0 means that every weight of the block equals min
  F16 min;    // finite
};

// Returns the nearest f16 that is not below (not above) `value`; zero is always +0.
// Requires  |value| <= 65504
F16 f16_not_below(float value) noexcept;
F16 f16_not_above(float value) noexcept;

// Returns the smallest f16 scale for which top * scale reaches `extent`: the nearest f16 of
// extent / top if that reaches, otherwise the next one up.
// Requires  0 <= extent <= 131008, top >= 3
F16 covering_scale(float extent, std::uint32_t top) noexcept;

// Fits scale and min to the range of `weights`, for codes 0 .. top.
// Requires  weights is not empty; every weight finite and at most 65504 in magnitude
AffineFields fit_affine(std::span<const float> weights, std::uint32_t top) noexcept;

// Chooses the nearest code in 0 .. top of every weight; all zero when the scale is zero.
// Shapes    codes [weights.size()]
// Requires  scale is 0 or at least 2^-24, the smallest f16, in magnitude
void choose_affine_codes(std::span<const float> weights, float scale, float min, std::uint32_t top,
                         std::uint8_t* codes) noexcept;

// Encode up to kBlocksPerBatch blocks (quant/search/search_loops.h): of a type with
// ScaleForm::kBlockMin, of 2bit-sym, of 8bit. 8bit takes any number of blocks and has nothing to
// search: clipping costs more than finer steps gain.
// Shapes    weights [1 .. kBlocksPerBatch * block], the true columns; options of the same columns;
//           out: the bytes of ceil(size / block) blocks
// Requires  every weight is finite and at most 65504 in magnitude
void encode_affine_blocks(BlockFormat format, std::span<const float> weights,
                          const QuantOptions& options, MutableByteSpan out);
void encode_2bit_symmetric_blocks(BlockFormat format, std::span<const float> weights,
                                  const QuantOptions& options, MutableByteSpan out);
void encode_8bit_blocks(BlockFormat format, std::span<const float> weights,
                        const QuantOptions& options, MutableByteSpan out);

// Encodes one row of qk256: the nearest level of each weight, 1 for a zero.
// Shapes    weights [n_cols], out [row_major_bytes]
// Requires  every weight is finite
void encode_qk256_row(std::span<const float> weights, MutableByteSpan out) noexcept;

}  // namespace qsf

#endif  // QSF_QUANT_BLOCK_ENCODERS_H_
