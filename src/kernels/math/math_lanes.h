// SPDX-License-Identifier: MIT
//
// The functions of math.h on vectors of four, for kernels of the scalar tier; internal linkage.
//
// Coefficients are minimax fits (Remez exchange in 50 digits, rounded to the stored precision);
// each comment gives the fitted quantity, its interval and the error of the fit.

#ifndef QSF_KERNELS_MATH_MATH_LANES_H_
#define QSF_KERNELS_MATH_MATH_LANES_H_

#include "kernels/lanes.h"

namespace qsf::kernels::lanes {

// exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln(2) / 2; ln 2 in two parts, the first so short
// that n times it is exact. The scale is applied in two halves, so that overflow and subnormal
// results come out of the multiplication itself.
[[gnu::always_inline]] static inline f32x4 exp(f32x4 x) noexcept {
  const f32x4 magic = splat(0x1.8p23F);  // adding it rounds to an integer in the low bits
  x = select(x > splat(89.0F), splat(89.0F), x);
  x = select(x < splat(-104.0F), splat(-104.0F), x);
  const f32x4 shifted = x * 0x1.715476p+0F + magic;
  const f32x4 n = shifted - magic;
  const f32x4 r = (x - n * 0x1.63p-1F) - n * -0x1.bd0106p-13F;
  // (exp(r) - 1 - r) / r^2, fit error 3.1e-9 relative to exp(r)
  f32x4 p = splat(0x1.6a234ap-10F);
  p = p * r + 0x1.123a6cp-7F;
  p = p * r + 0x1.5558f4p-5F;
  p = p * r + 0x1.55549p-3F;
  p = p * r + 0x1.fffffcp-2F;
  const f32x4 mantissa = (r * r * p + r) + 1.0F;
  const i32x4 exponent = reinterpret_cast<i32x4>(bits_of(shifted) - bits_of(magic));
  const i32x4 half = exponent >> 1;
  const u32x4 first = reinterpret_cast<u32x4>(half) + 127U;
  const u32x4 second = reinterpret_cast<u32x4>(exponent) - reinterpret_cast<u32x4>(half) + 127U;
  return mantissa * from_bits(first << 23) * from_bits(second << 23);
}

// Below 0.625 an odd polynomial; above it 1 - 2 / (exp(2 |x|) + 1), where nothing cancels.
[[gnu::always_inline]] static inline f32x4 tanh(f32x4 x) noexcept {
  const f32x4 a = abs(x);
  const f32x4 z = x * x;
  // (tanh(x) / x - 1) / x^2 over x^2 in [0, 0.4], fit error 4.7e-9
  f32x4 p = splat(-0x1.72fc3ap-8F);
  p = p * z + 0x1.518b12p-6F;
  p = p * z + -0x1.b8265cp-5F;
  p = p * z + 0x1.11068ep-3F;
  p = p * z + -0x1.55553p-2F;
  const f32x4 near = x + x * (z * p);
  const f32x4 far = 1.0F - 2.0F / (exp(a + a) + 1.0F);
  const u32x4 sign = bits_of(x) & 0x80000000U;
  return from_bits(bits_of(select(a < splat(0.625F), near, far)) | sign);
}

// Below 1 an odd polynomial; above it 1 - exp(-p(|x|)) with p = -log(erfc).
[[gnu::always_inline]] static inline f32x4 erf(f32x4 x) noexcept {
  const f32x4 a = abs(x);
  const f32x4 z = x * x;
  // erf(x) / x - 1 over x^2 in [0, 1], fit error 1.2e-9
  f32x4 p = splat(0x1.4ae4c2p-14F);
  p = p * z + -0x1.a485e6p-11F;
  p = p * z + 0x1.5419f4p-8F;
  p = p * z + -0x1.b7fbb4p-6F;
  p = p * z + 0x1.ce2d2p-4F;
  p = p * z + -0x1.81273ep-2F;
  p = p * z + 0x1.06eba8p-3F;
  const f32x4 near = x + x * p;
  // -log(erfc(1 + u)) over u in [0, 3], fit error 2.1e-11 relative to 1; erf is 1 from 3.92 on
  const f32x4 u = select(a > splat(4.0F), splat(4.0F), a) - 1.0F;
  f32x4 q = splat(0x1.6bd7a2p-16F);
  q = q * u + -0x1.2f9778p-12F;
  q = q * u + 0x1.07b65ep-9F;
  q = q * u + -0x1.4933bep-7F;
  q = q * u + 0x1.547cfp-5F;
  q = q * u + 0x1.afabbcp-1F;
  q = q * u + 0x1.51c9bp+1F;
  q = q * u + 0x1.d97fcp+0F;
  const f32x4 far = 1.0F - exp(-q);
  const u32x4 sign = bits_of(x) & 0x80000000U;
  return from_bits(bits_of(select(a < splat(1.0F), near, far)) | sign);
}

}  // namespace qsf::kernels::lanes

#endif  // QSF_KERNELS_MATH_MATH_LANES_H_
