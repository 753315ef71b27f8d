// SPDX-License-Identifier: MIT
//
// IEEE half precision and bfloat16 as storage types, with exact widening and round-to-nearest-even
// narrowing in plain integer arithmetic, so that every machine produces the same bits.

#ifndef QSF_BASE_F16_H_
#define QSF_BASE_F16_H_

#include <cstdint>

#include "base/bit_cast.h"

namespace qsf {

struct F16 {
  std::uint16_t bits;
  friend bool operator==(F16, F16) = default;
};
struct BF16 {
  std::uint16_t bits;
  friend bool operator==(BF16, BF16) = default;
};
static_assert(sizeof(F16) == 2 && sizeof(BF16) == 2);

inline constexpr float kF16Max = 65504.0F;

// Widens exactly; subnormals, infinities and NaN payloads included. Branch-free, so that loops over
// it vectorise: the exponent is rebased by one multiplication, which also normalises subnormals.
inline float to_f32(F16 h) noexcept {
  const std::uint32_t magnitude = static_cast<std::uint32_t>(h.bits & 0x7FFFU) << 13;
  const std::uint32_t sign = static_cast<std::uint32_t>(h.bits & 0x8000U) << 16;
  const float rebased = bit_cast<float>(magnitude) * bit_cast<float>(0x77800000U);  // 2^112
  const std::uint32_t special = (h.bits & 0x7C00U) == 0x7C00U ? 0x7F800000U : 0U;
  return bit_cast<float>(bit_cast<std::uint32_t>(rebased) | special | sign);
}

inline float to_f32(BF16 b) noexcept {
  return bit_cast<float>(static_cast<std::uint32_t>(b.bits) << 16);
}

// Narrows with round-to-nearest-even; overflow becomes infinity, NaN stays (quiet) NaN.
inline F16 to_f16(float value) noexcept {
  const std::uint32_t bits = bit_cast<std::uint32_t>(value);
  const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return {static_cast<std::uint16_t>(sign | 0x7E00U)};
  if (magnitude >= 0x477FF000U) return {static_cast<std::uint16_t>(sign | 0x7C00U)};  // >= 65520
  if (magnitude < 0x38800000U) {  // below 2^-14: subnormal, let the FPU round at 2^-24
    const float shifted = bit_cast<float>(magnitude) + 0.5F;  // ulp of 0.5 is 2^-24
    return {static_cast<std::uint16_t>(sign | (bit_cast<std::uint32_t>(shifted) - 0x3F000000U))};
  }
  const std::uint32_t round = 0xFFFU + ((magnitude >> 13) & 1U);
  return {static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000U + round) >> 13))};
}

inline BF16 to_bf16(float value) noexcept {
  const std::uint32_t bits = bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};
  return {static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16)};
}

}  // namespace qsf

#endif  // QSF_BASE_F16_H_
