// SPDX-License-Identifier: MIT
//
// Conversions of arrays, written once for every tier.

#ifndef QSF_KERNELS_CONVERT_CONVERT_LANES_H_
#define QSF_KERNELS_CONVERT_CONVERT_LANES_H_

#include "kernels/convert/convert.h"
#include "kernels/vectors.h"

namespace qsf::kernels::QSF_TIER_NAMESPACE::convert {

// Rounds to nearest even; a NaN stays one.
[[gnu::always_inline]] static inline U32Reg to_brain_reg(F32Reg x) noexcept {
  const U32<1> bits = {{cast_reg<U32Reg>(x)}};
  const U32<1> one = splat_u32<1>(1);
  const U32<1> rounded = (bits + splat_u32<1>(0x7FFFU) + ((bits >> 16) & one)) >> 16;
  const U32<1> quiet = (bits >> 16) | splat_u32<1>(0x40U);
  const Mask<1> nan = is_greater_i32(bits & splat_u32<1>(0x7FFFFFFFU), splat_u32<1>(0x7F800000U));
  return select(nan, quiet, rounded).r[0];
}

// Applies one(from, to) to each vector of 16-bit values and floats; what is left passes through
// memory of a vector's size.
template <typename From, typename To, typename One>
[[gnu::always_inline]] static inline void for_vectors(const From* from, To* to,
                                                      std::size_t n_values, One one) noexcept {
  std::size_t i = 0;
  for (; i + kRegLanes <= n_values; i += kRegLanes) one(from + i, to + i);
  if (i == n_values) return;
  From rest[kRegLanes] = {};
  To done[kRegLanes];
  std::memcpy(rest, from + i, (n_values - i) * sizeof(From));
  one(rest, done);
  std::memcpy(to + i, done, (n_values - i) * sizeof(To));
}

[[gnu::always_inline]] static inline F32Reg load_reg(const float* from) noexcept {
  F32Reg x;
  std::memcpy(&x, from, sizeof x);
  return x;
}
template <typename Reg>
[[gnu::always_inline]] static inline void store_reg(float* to, Reg x) noexcept {
  std::memcpy(to, &x, sizeof x);
}

static void f16_to_f32(const F16* from, float* to, std::size_t n_values) noexcept {
  for_vectors(from, to, n_values, [](const F16* halves, float* out) QSF_INLINE {
    store_reg(out, load_halves_reg(halves));
  });
}
static void bf16_to_f32(const BF16* from, float* to, std::size_t n_values) noexcept {
  for_vectors(from, to, n_values, [](const BF16* brains, float* out) QSF_INLINE {
    store_reg(out, load_high_words_reg(brains));
  });
}
static void f32_to_f16(const float* from, F16* to, std::size_t n_values) noexcept {
  for_vectors(from, to, n_values,
              [](const float* x, F16* out) QSF_INLINE { store_halves_reg(out, load_reg(x)); });
}
static void f32_to_bf16(const float* from, BF16* to, std::size_t n_values) noexcept {
  for_vectors(from, to, n_values, [](const float* x, BF16* out) QSF_INLINE {
    store_low_words_reg(out, to_brain_reg(load_reg(x)));
  });
}

static constexpr ConvertKernels kConvertKernels = {.name = "convert_" QSF_TIER_NAME,
                                                   .isa = kTier,
                                                   .exactness = Exactness::kBitExact,
                                                   .f16_to_f32 = f16_to_f32,
                                                   .bf16_to_f32 = bf16_to_f32,
                                                   .f32_to_f16 = f32_to_f16,
                                                   .f32_to_bf16 = f32_to_bf16};

}  // namespace qsf::kernels::QSF_TIER_NAMESPACE::convert

#endif  // QSF_KERNELS_CONVERT_CONVERT_LANES_H_
