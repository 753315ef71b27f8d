// SPDX-License-Identifier: MIT
//
// What the asymmetric types share: fitting a scale and a min to a block, and choosing its codes.
//
//   w[i] = scale * code[i] + min        code[i] in [0, levels]
//
// The fields are rounded to f16 first and the codes are chosen against the rounded fields. Nearest
// rounding rounds min down and scale up, so that [min, min + levels * scale] always holds every
// weight and no weight is off by more than scale / 2; quant/search/block_search.h searches fields
// that may clip weights where that makes the sum of squared errors smaller.

#ifndef QSF_QUANT_AFFINE_H_
#define QSF_QUANT_AFFINE_H_

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/f16.h"
#include "quant/quant_options.h"
#include "quant/types.h"

namespace qsf {

struct AffineFields {
  F16 scale;  // finite, >= 0; 0 means that every weight of the block equals min
  F16 min;    // finite
};

// Returns the nearest f16 that is not below (not above) `value`; zero is always +0.
// Requires  |value| <= 65504
F16 f16_not_below(float value) noexcept;
F16 f16_not_above(float value) noexcept;

// Returns the smallest f16 scale for which levels * scale reaches `extent`: the nearest f16 of
// extent / levels when that reaches, the one above otherwise.
// Requires  0 <= extent <= 131008, levels >= 3
F16 covering_scale(float extent, std::uint32_t levels) noexcept;

// Fits both fields to the range of `weights`.
// Requires  weights is not empty; every weight finite and at most 65504 in magnitude
AffineFields fit_affine(std::span<const float> weights, std::uint32_t levels) noexcept;

// Chooses the nearest code of every weight; all zero when the scale is zero.
// Shapes    codes [weights.size()]
// Requires  scale is 0 or at least 2^-24, the smallest f16, in magnitude
void choose_affine_codes(std::span<const float> weights, float scale, float min,
                         std::uint32_t levels, std::uint8_t* codes) noexcept;

// Encodes up to kBlocksPerBatch blocks (quant/search/code_sums.h) of a type with a scale and a min
// of their own. Shapes    weights [1 .. kBlocksPerBatch * block], the columns that exist; options
// those of them; out:
//           as many blocks as have columns
// Requires  a type of ScaleForm::kBlockMin; every weight finite and at most 65504 in magnitude
void encode_affine_blocks(BlockFormat format, std::span<const float> weights,
                          const QuantOptions& options, MutableByteSpan out);

}  // namespace qsf

#endif  // QSF_QUANT_AFFINE_H_
