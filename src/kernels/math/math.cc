// SPDX-License-Identifier: MIT
//
// One-value forms of the math functions, and those that need double.

#include "kernels/math/math.h"

#include <cstdint>
#include <limits>

#include "base/bit_cast.h"
#include "kernels/math/math_vectors.h"

namespace qsf::kernels {
float exp_f32(float x) noexcept {
  return tier_scalar::exp(tier_scalar::splat<1>(x)).r[0][0];
}
float tanh_f32(float x) noexcept {
  return tier_scalar::tanh(tier_scalar::splat<1>(x)).r[0][0];
}
float erf_f32(float x) noexcept {
  return tier_scalar::erf(tier_scalar::splat<1>(x)).r[0][0];
}
float sin_f32(float x) noexcept {
  return tier_scalar::sin_cos(tier_scalar::splat<1>(x)).sin.r[0][0];
}
float cos_f32(float x) noexcept {
  return tier_scalar::sin_cos(tier_scalar::splat<1>(x)).cos.r[0][0];
}

// x = 2^k m, m in [sqrt(1/2), sqrt(2)); log(m) = 2 atanh(s), s = (m - 1) / (m + 1).
double log_f64(double x) noexcept {
  if (!(x > 0.0)) {
    return x == 0.0 ? -std::numeric_limits<double>::infinity()
                    : std::numeric_limits<double>::quiet_NaN();
  }
  if (x == std::numeric_limits<double>::infinity()) return x;
  std::int64_t k = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    k = -54;
  }
  // The exponent changes at sqrt(1/2) instead of at 1: subtracting its bits first rounds it so.
  constexpr std::uint64_t kSqrtHalfBits = 0x3FE6A09E667F3BCDU;
  const std::uint64_t offset = bit_cast<std::uint64_t>(x) - kSqrtHalfBits;
  const auto exponent = static_cast<std::int64_t>(offset) >> 52;
  k += exponent;
  const double m =
      bit_cast<double>(bit_cast<std::uint64_t>(x) - (static_cast<std::uint64_t>(exponent) << 52));
  const double f = m - 1.0;
  const double s = f / (m + 1.0);
  const double z = s * s;
  // (2 atanh(s) / s - 2) / s^2 over s^2 in [0, 0.0295], fit error 2.5e-18
  double p = 0x1.2f0d94288903ap-3;
  p = p * z + 0x1.39a0f46cec561p-3;
  p = p * z + 0x1.74664632d68f8p-3;
  p = p * z + 0x1.c71c51e7d4c9cp-3;
  p = p * z + 0x1.2492494217d42p-2;
  p = p * z + 0x1.999999997fb2dp-2;
  p = p * z + 0x1.5555555555593p-1;
  // 2 s = f - s f exactly in real numbers, and f carries no rounding error where s does.
  const double log_m = f - s * (f - z * p);
  const auto n = static_cast<double>(k);
  return n * 0x1.62e42fefa2p-1 + (log_m + n * 0x1.9ef35793c7673p-41);
}

}  // namespace qsf::kernels
