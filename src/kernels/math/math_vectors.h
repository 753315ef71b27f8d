// SPDX-License-Identifier: MIT
//
// The functions of math.h on the vectors of a tier; internal linkage.
//
// Coefficients are minimax fits (Remez exchange in 50 digits, rounded to the stored precision);
// each comment gives the fitted quantity, its interval and the error of the fit.

#ifndef QSF_KERNELS_MATH_MATH_VECTORS_H_
#define QSF_KERNELS_MATH_MATH_VECTORS_H_

#include "kernels/vectors.h"

namespace qsf::kernels::QSF_TIER_NAMESPACE {

// Evaluates c[0] x^n + c[1] x^(n-1) + ... + c[n].
template <unsigned N, unsigned kTerms>
[[gnu::always_inline]] static inline F32<N> polynomial(F32<N> x,
                                                       const float (&c)[kTerms]) noexcept {
  F32<N> p = splat<N>(c[0]);
#pragma GCC unroll 16
  for (unsigned k = 1; k < kTerms; ++k) p = p * x + splat<N>(c[k]);
  return p;
}
template <unsigned N, unsigned kTerms>
[[gnu::always_inline]] static inline F64<N> polynomial_f64(F64<N> x,
                                                           const double (&c)[kTerms]) noexcept {
  F64<N> p = splat_f64<N>(c[0]);
#pragma GCC unroll 16
  for (unsigned k = 1; k < kTerms; ++k) p = p * x + splat_f64<N>(c[k]);
  return p;
}

// exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln(2) / 2; ln 2 in two parts, the first so short
// that n times it is exact.
template <unsigned N>
[[gnu::always_inline]] static inline F32<N> exp(F32<N> x) noexcept {
  const F32<N> magic = splat<N>(0x1.8p23F);  // adding it rounds to an integer in the low bits
  x = max_of(splat<N>(-104.0F), min_of(splat<N>(89.0F), x));
  const F32<N> shifted = x * splat<N>(0x1.715476p+0F) + magic;
  const F32<N> n = shifted - magic;
  const F32<N> r = (x - n * splat<N>(0x1.63p-1F)) - n * splat<N>(-0x1.bd0106p-13F);
  // (exp(r) - 1 - r) / r^2, fit error 3.1e-9 relative to exp(r)
  constexpr float kTerms[] = {0x1.6a234ap-10F, 0x1.123a6cp-7F, 0x1.5558f4p-5F, 0x1.55549p-3F,
                              0x1.fffffcp-2F};
  F32<N> y = (r * r * polynomial(r, kTerms) + r) + splat<N>(1.0F);
  QSF_EACH_REG(i, N) y.r[i] = scale_reg(y.r[i], shifted.r[i], n.r[i]);
  return y;
}

template <unsigned N>
[[gnu::always_inline]] static inline F32<N> with_sign_of(F32<N> magnitude, F32<N> sign) noexcept {
  return from_bits(bits_of(magnitude) | (bits_of(sign) & splat_u32<N>(0x80000000U)));
}

// Below 0.625 an odd polynomial; above it 1 - 2 / (exp(2 |x|) + 1), where nothing cancels.
template <unsigned N>
[[gnu::always_inline]] static inline F32<N> tanh(F32<N> x) noexcept {
  const F32<N> a = abs(x);
  const F32<N> z = x * x;
  // (tanh(x) / x - 1) / x^2 over x^2 in [0, 0.4], fit error 4.7e-9
  constexpr float kTerms[] = {-0x1.72fc3ap-8F, 0x1.518b12p-6F, -0x1.b8265cp-5F, 0x1.11068ep-3F,
                              -0x1.55553p-2F};
  const F32<N> near = x + x * (z * polynomial(z, kTerms));
  const F32<N> far = splat<N>(1.0F) - splat<N>(2.0F) / (exp(a + a) + splat<N>(1.0F));
  return with_sign_of(select(is_less(a, splat<N>(0.625F)), near, far), x);
}

// Below 1 an odd polynomial; above it 1 - exp(-p(|x|)) with p = -log(erfc).
template <unsigned N>
[[gnu::always_inline]] static inline F32<N> erf(F32<N> x) noexcept {
  const F32<N> a = abs(x);
  // erf(x) / x - 1 over x^2 in [0, 1], fit error 1.2e-9
  constexpr float kNear[] = {0x1.4ae4c2p-14F, -0x1.a485e6p-11F, 0x1.5419f4p-8F, -0x1.b7fbb4p-6F,
                             0x1.ce2d2p-4F,   -0x1.81273ep-2F,  0x1.06eba8p-3F};
  const F32<N> near = x + x * polynomial(x * x, kNear);
  // -log(erfc(1 + u)) over u in [0, 3], fit error 2.1e-11 relative to 1; erf is 1 from 3.92 on
  constexpr float kFar[] = {0x1.6bd7a2p-16F, -0x1.2f9778p-12F, 0x1.07b65ep-9F, -0x1.4933bep-7F,
                            0x1.547cfp-5F,   0x1.afabbcp-1F,   0x1.51c9bp+1F,  0x1.d97fcp+0F};
  const F32<N> u = min_of(splat<N>(4.0F), a) - splat<N>(1.0F);
  const F32<N> far = splat<N>(1.0F) - exp(-polynomial(u, kFar));
  return with_sign_of(select(is_less(a, splat<N>(1.0F)), near, far), x);
}

// Sine and cosine of one angle.
template <unsigned N>
struct SinCos {
  F32<N> sin;
  F32<N> cos;
};

// Returns sine and cosine of angles up to 2^26; of larger ones numbers without meaning.
//
// Takes multiples of pi/2 off x. pi/2 stands in three parts; the first two have 27 bits, so their
// products with n < 2^26 are exact and r, in [-pi/4, pi/4], keeps over 60 good bits behind the
// point. Both polynomials are evaluated and the quadrant picks.
template <unsigned N>
[[gnu::always_inline]] static inline SinCos<N> reduced_sin_cos(F64<2 * N> x) noexcept {
  constexpr unsigned kWide = 2 * N;
  const F64<kWide> magic = splat_f64<kWide>(0x1.8p52);  // rounds to an integer in the low bits
  const F64<kWide> shifted = x * splat_f64<kWide>(0x1.45f306dc9c883p-1) + magic;
  const F64<kWide> n = shifted - magic;
  F64<kWide> r = x - n * splat_f64<kWide>(0x1.921fb54p+0);
  r = r - n * splat_f64<kWide>(0x1.10b461p-30);
  r = r - n * splat_f64<kWide>(0x1.a62633145c06ep-58);
  const F64<kWide> z = r * r;
  // (sin(r) / r - 1) / r^2 over [-pi/4, pi/4], fit error 4.7e-15
  constexpr double kSin[] = {-0x1.a966d440cb0ccp-26, 0x1.71d77cd4a6db4p-19, -0x1.a019f95a4d06dp-13,
                             0x1.1111110ca24f6p-7, -0x1.55555555523f6p-3};
  const F64<kWide> sin_r = r + r * (z * polynomial_f64(z, kSin));
  // (cos(r) - 1 + r^2 / 2) / r^4 over [-pi/4, pi/4], fit error 7.7e-17
  constexpr double kCos[] = {0x1.1bc79be36e0a1p-29, -0x1.27e02a0cb5753p-22, 0x1.a019faa9525adp-16,
                             -0x1.6c16c1676ab4fp-10, 0x1.555555555310ap-5};
  const F64<kWide> cos_r =
      splat_f64<kWide>(1.0) + (z * z * polynomial_f64(z, kCos) - splat_f64<kWide>(0.5) * z);

  // Odd quadrants swap the two; sine changes its sign in quadrants 2 and 3, cosine in 1 and 2.
  const U64<kWide> quadrant = cast_regs<U64Reg>(shifted);
  const U64<kWide> one = splat_u64<kWide>(1);
  const U64<kWide> odd = -(quadrant & one);
  const U64<kWide> swap = (cast_regs<U64Reg>(sin_r) ^ cast_regs<U64Reg>(cos_r)) & odd;
  const U64<kWide> sin_sign = (quadrant & (one + one)) << 62;
  const U64<kWide> cos_sign = ((quadrant + one) & (one + one)) << 62;
  const F32<N> sin = narrow<N>(cast_regs<F64Reg>((cast_regs<U64Reg>(sin_r) ^ swap) ^ sin_sign));
  const F32<N> cos = narrow<N>(cast_regs<F64Reg>((cast_regs<U64Reg>(cos_r) ^ swap) ^ cos_sign));
  return {sin, cos};
}

// Sets what is of angles beyond 2^26 or not finite to NaN; keeps the sign of a zero.
// `angle` may be rounded.
template <unsigned N>
[[gnu::always_inline]] static inline SinCos<N> where_known(F32<N> angle, SinCos<N> of) noexcept {
  const F32<N> a = abs(angle);
  const Mask<N> known = is_at_least(splat<N>(0x1p26F), a);
  const F32<N> nan = splat<N>(__builtin_nanf(""));
  const Mask<N> zero = is_at_least(splat<N>(0.0F), a);
  return {select(known, select(zero, angle, of.sin), nan), select(known, of.cos, nan)};
}

template <unsigned N>
[[gnu::always_inline]] static inline SinCos<N> sin_cos(F32<N> angle) noexcept {
  return where_known(angle, reduced_sin_cos<N>(widen(angle)));
}
template <unsigned N>
[[gnu::always_inline]] static inline SinCos<N> sin_cos(F64<2 * N> angle) noexcept {
  return where_known(narrow<N>(angle), reduced_sin_cos<N>(angle));
}

}  // namespace qsf::kernels::QSF_TIER_NAMESPACE

#endif  // QSF_KERNELS_MATH_MATH_VECTORS_H_
