// SPDX-License-Identifier: MIT
//
// mxfp4: blocks of 32 columns of FP4 (E2M1) under a power of two (E8M0), 4.25 bits per weight. It
// keeps weights that came in this form, bit for bit.
//
//   w[i] = 2^(exponent - 128) * level[code[i]]         levels are twice FP4's values
//
// One block in layout 0, no padding, the same bytes as ggml's MXFP4:
//
//   offset  size  field     meaning
//   0          1  exponent  0 .. 252; 255 is not a number, and 253 and 254 make weights that f32
//                           lacks: readers refuse all three
//   1         16  codes     packed as 4-bit codes
//
// Products are exact: a level has 4 bits, and the smallest weight is 2^-128.
//
// Based on: OCP Microscaling Formats (MX) Specification 1.0, 2023, sections 5.3.3 and 5.4.1.

#ifndef QSF_QUANT_MXFP4_H_
#define QSF_QUANT_MXFP4_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "base/bit_cast.h"
#include "base/bytes.h"

namespace qsf {

inline constexpr std::byte kMxfp4LargestExponent{252};

// Returns 2^(exponent - 128), a subnormal for 0 and 1; not a number for 255.
constexpr float mxfp4_scale(std::byte exponent) noexcept {
  const auto bits = static_cast<std::uint32_t>(exponent);
  if (bits == 255) return std::numeric_limits<float>::quiet_NaN();
  return bit_cast<float>(bits < 2 ? 0x00200000U << bits : (bits - 1) << 23U);
}

// Returns the code of the level nearest to `steps`, of two equally near ones the smaller; 0 and not
// 8 for zero.
std::uint8_t nearest_mxfp4_code(float steps) noexcept;

// Encodes one row: of the two exponents whose largest level is next to the largest magnitude of a
// block the one with the smaller sum of squared errors, and the nearest level of every weight.
// Shapes    weights [n_cols], out [row_major_bytes]
// Requires  every weight is finite and at most 65504 in magnitude
void encode_mxfp4_row(std::span<const float> weights, MutableByteSpan out) noexcept;

}  // namespace qsf

#endif  // QSF_QUANT_MXFP4_H_
