// SPDX-License-Identifier: MIT
//
// The scale search for super-blocks of codebook types: first the signed scale of every sub-block by
// itself, then d and integer scales for all sub-blocks together, then both in turn.
//
// Levels are not evenly spaced, so codes are found by comparison with the midpoints between them.
// For given codes the error is a parabola in the scale. Sixteen scales are tried at once, one per
// lane. A 4-bit scale has sixteen values, so for a given d the scales of 2bit-table and 3bit-table
// are optimal.
//
// Every sum stays in one lane and runs over the weights in order, and multiply and add are never
// fused, so every machine finds the same fields.

#ifndef QSF_QUANT_SEARCH_CODEBOOK_SEARCH_H_
#define QSF_QUANT_SEARCH_CODEBOOK_SEARCH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/f16.h"
#include "quant/block_format.h"
#include "quant/quant_options.h"
#include "quant/search/search_loops.h"

namespace qsf {

inline constexpr std::size_t kMaxCodebookSubBlocks = 16;

struct CodebookFields {
  F16 d{0};  // >= 0
  std::array<int, kMaxCodebookSubBlocks> scales{};

  // The scale that sub-block `k` is decoded with.
  float scale_of(std::size_t k) const noexcept { return to_f32(d) * static_cast<float>(scales[k]); }
};

// The largest scale of a sub-block; the lowest is -top - 1.
constexpr int top_codebook_scale(BlockFormat format) noexcept {
  return format.block == 16 ? 7 : 31;
}

// Searches the fields of a super-block, starting from `start`, which stays where nothing is better.
// Shapes      weights [1 .. 256]; options of the same columns
// Requires    a codebook type; every weight finite and at most 65504 in magnitude
// Guarantees  the weighted sum of squared errors is not larger than with `start`
// Threads     any
CodebookFields search_codebook_block(BlockFormat format, std::span<const float> weights,
                                     const QuantOptions& options,
                                     const CodebookFields& start) noexcept;

}  // namespace qsf

#endif  // QSF_QUANT_SEARCH_CODEBOOK_SEARCH_H_
