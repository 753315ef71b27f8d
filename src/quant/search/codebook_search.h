// SPDX-License-Identifier: MIT
//
// The search for the fields of a super-block of a table type: the signed scale of every sub-block
// by itself, then d and whole scales for all together, and then both by turns.
//
// Levels are no arithmetic progression, so codes are found by comparison with the middles between
// them. For given codes the error is a parabola in the scale. Sixteen scales are tried at once, a
// lane each: all that 4 bits can say, so that for a given d the scales of 2bit-table and
// 3bit-table are the best there are.
//
// Every sum has a lane of its own and runs over the weights in their order, and nothing fuses
// multiply and add: the same fields on every machine.

#ifndef QSF_QUANT_SEARCH_CODEBOOK_SEARCH_H_
#define QSF_QUANT_SEARCH_CODEBOOK_SEARCH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/f16.h"
#include "quant/quant_options.h"
#include "quant/types.h"

namespace qsf {

inline constexpr std::uint32_t kMaxCodebookBlock = 32;  // columns of a sub-block
inline constexpr std::size_t kMaxCodebookSubBlocks = 16;

struct CodebookFields {
  F16 d{0};  // >= 0
  std::array<int, kMaxCodebookSubBlocks> scales{};

  // What sub-block `k` decodes with.
  float scale_of(std::size_t k) const noexcept { return to_f32(d) * static_cast<float>(scales[k]); }
};

// The largest scale of a sub-block; the lowest is one further from 0.
constexpr int table_top(BlockFormat format) noexcept {
  return format.block == 16 ? 7 : 31;
}

// Searches the fields of a super-block, beginning with those of `start`, which are kept where
// nothing is better.
// Shapes      weights [1 .. 256]; options those of their columns
// Requires    a table type; every weight finite and at most 65504 in magnitude
// Guarantees  the weighted sum of squared errors is not larger than that of `start`
// Threads     any
CodebookFields search_codebook_block(BlockFormat format, std::span<const float> weights,
                                     const QuantOptions& options,
                                     const CodebookFields& start) noexcept;

}  // namespace qsf

#endif  // QSF_QUANT_SEARCH_CODEBOOK_SEARCH_H_
