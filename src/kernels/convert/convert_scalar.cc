// SPDX-License-Identifier: MIT
//
// Conversions of arrays, scalar tier: base/f16.h's arithmetic without its branches, four at a time.

#include "kernels/convert/convert.h"
#include "kernels/lanes.h"
#include "kernels/variants_scalar.h"

namespace qsf::kernels {
namespace {

using namespace lanes;

// Returns four halves in the low 16 bits of the lanes, rounded to nearest even.
[[gnu::always_inline]] inline u32x4 to_half(f32x4 value) noexcept {
  const u32x4 bits = bits_of(value);
  const u32x4 sign = (bits >> 16) & 0x8000U;
  const u32x4 magnitude = bits & 0x7FFFFFFFU;
  const i32x4 ordered = reinterpret_cast<i32x4>(magnitude);  // no sign bit: compares as integers
  // Normal results: rebias the exponent, round on the 13 bits that go.
  const u32x4 normal = (magnitude - 0x38000000U + 0xFFFU + ((magnitude >> 13) & 1U)) >> 13;
  // Below 2^-14: adding 0.5, whose ulp is 2^-24, lets the FPU round at the subnormal's last bit.
  const u32x4 small = bits_of(from_bits(magnitude) + 0.5F) - 0x3F000000U;
  u32x4 half = select_bits(ordered < 0x38800000, small, normal);
  half = select_bits(ordered >= 0x477FF000, splat_u32(0x7C00U), half);  // 65520 and up
  half = select_bits(ordered > 0x7F800000, splat_u32(0x7E00U), half);   // NaN
  return half | sign;
}

[[gnu::always_inline]] inline u32x4 to_brain(f32x4 value) noexcept {
  const u32x4 bits = bits_of(value);
  const u32x4 rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const i32x4 magnitude = reinterpret_cast<i32x4>(bits & 0x7FFFFFFFU);
  return select_bits(magnitude > 0x7F800000, (bits >> 16) | 0x40U, rounded);
}

// Stores the low 16 bits of the first n_values (0 to 4) lanes.
[[gnu::always_inline]] inline void store_words(void* to, u32x4 value,
                                               std::size_t n_values) noexcept {
  const std::uint16_t words[4] = {
      static_cast<std::uint16_t>(value[0]), static_cast<std::uint16_t>(value[1]),
      static_cast<std::uint16_t>(value[2]), static_cast<std::uint16_t>(value[3])};
  std::memcpy(to, words, n_values * 2);
}

}  // namespace

void f16_to_f32_scalar(const F16* from, float* to, std::size_t n_values) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= n_values; i += 8) {
    const u16x8 halves = load<u16x8>(from + i);
    store(to + i, high_half_to_f32(first_to_high(halves)));
    store(to + i + 4, high_half_to_f32(last_to_high(halves)));
  }
  for (; i < n_values; ++i)
    to[i] = high_half_to_f32(splat_u32(std::uint32_t{from[i].bits} << 16))[0];
}

void bf16_to_f32_scalar(const BF16* from, float* to, std::size_t n_values) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= n_values; i += 8) {
    const u16x8 brains = load<u16x8>(from + i);
    store(to + i, first_to_high(brains));
    store(to + i + 4, last_to_high(brains));
  }
  for (; i < n_values; ++i) store(to + i, std::uint32_t{from[i].bits} << 16);
}

void f32_to_f16_scalar(const float* from, F16* to, std::size_t n_values) noexcept {
  std::size_t i = 0;
  for (; i + 4 <= n_values; i += 4) store_words(to + i, to_half(load<f32x4>(from + i)), 4);
  if (i < n_values) {
    const std::size_t rest = n_values - i;
    store_words(to + i, to_half(load_part(from + i, rest)), rest);
  }
}

void f32_to_bf16_scalar(const float* from, BF16* to, std::size_t n_values) noexcept {
  std::size_t i = 0;
  for (; i + 4 <= n_values; i += 4) store_words(to + i, to_brain(load<f32x4>(from + i)), 4);
  if (i < n_values) {
    const std::size_t rest = n_values - i;
    store_words(to + i, to_brain(load_part(from + i, rest)), rest);
  }
}

}  // namespace qsf::kernels
