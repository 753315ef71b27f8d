// SPDX-License-Identifier: MIT
//
// Q2A: 2-bit asymmetric weights; 2.5 bits per weight at 64 columns a block.
//
//   w[i] = scale * code[i] + min                    code[i] in [0, 3], all of them used
//
// One block in layout 0, little-endian, no padding, N columns (32, 64, 128 or 256):
//
//   offset    size  field   meaning
//   0            2  scale   f16, finite, >= 0; 0 means that the whole block equals min
//   2            2  min     f16, finite
//   4          N/4  codes   byte j holds code[j + f * N/4] in bits 2f .. 2f+1, f = 0 .. 3
//
// Accuracy   rounded to the nearest code, every weight is within scale / 2 of its decoded value
//            (quant/affine.h).

#ifndef QSF_QUANT_Q2A_H_
#define QSF_QUANT_Q2A_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace qsf {

inline constexpr std::uint32_t kQ2ALevels = 3;  // the largest code

// Packs codes, one byte each, into the code bytes of a block, and unpacks them.
// Shapes    codes [block]; those from n_true on stand for columns that do not exist and are zero
void pack_q2a(const std::uint8_t* codes, std::uint32_t block, std::uint32_t n_true,
              std::byte* packed) noexcept;
void unpack_q2a(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept;

}  // namespace qsf

#endif  // QSF_QUANT_Q2A_H_
