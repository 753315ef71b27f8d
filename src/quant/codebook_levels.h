// SPDX-License-Identifier: MIT
//
// The levels of the table types: what a code stands for, in 127ths of d * scale.
//
// Those of 2 and 3 bits have the least squared error on normally distributed weights where every
// sub-block has a scale of its own, of either sign (docs/decisions/035-block-forms.md); those of
// 4 bits are llama.cpp's of IQ4_NL and IQ4_XS. None is zero: a sub-block of zeros has scale 0.

#ifndef QSF_QUANT_CODEBOOK_LEVELS_H_
#define QSF_QUANT_CODEBOOK_LEVELS_H_

#include <cstdint>
#include <span>

#include "quant/types.h"

namespace qsf {

inline constexpr std::int8_t kCodebook2Levels[4] = {-127, -43, 18, 90};
inline constexpr std::int8_t kCodebook3Levels[8] = {-127, -77, -45, -18, 7, 34, 65, 108};
inline constexpr std::int8_t kCodebook4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                     1,    13,   25,  38,  53,  69,  89,  113};

// Returns the levels of a table type, ascending; none of others.
constexpr std::span<const std::int8_t> codebook_levels(QuantType type) noexcept {
  switch (type) {
    case QuantType::kQ2Codebook: return kCodebook2Levels;
    case QuantType::kQ3Codebook: return kCodebook3Levels;
    case QuantType::kQ4Codebook: return kCodebook4Levels;
    default: return {};
  }
}

}  // namespace qsf

#endif  // QSF_QUANT_CODEBOOK_LEVELS_H_
