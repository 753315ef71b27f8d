// SPDX-License-Identifier: MIT
//
// One-value forms of the math functions, and those that need double.

#include "kernels/math/math.h"

#include <bit>
#include <cstdint>
#include <limits>

#include "kernels/math/math_lanes.h"

namespace qsf::kernels {
namespace {

struct Reduced {
  double r;                // in [-pi/4, pi/4]
  std::uint64_t quadrant;  // its lowest two bits count
};

// Takes multiples of pi/2 off x, |x| <= 2^26. pi/2 stands in three parts; the first two have 27
// bits, so their products with n < 2^26 are exact and r keeps over 60 good bits behind the point.
Reduced reduce(double x) noexcept {
  constexpr double kMagic = 0x1.8p52;  // adding it rounds to an integer in the low bits
  const double shifted = x * 0x1.45f306dc9c883p-1 + kMagic;
  const double n = shifted - kMagic;
  double r = x - n * 0x1.921fb54p+0;
  r -= n * 0x1.10b461p-30;
  r -= n * 0x1.a62633145c06ep-58;
  return {r, std::bit_cast<std::uint64_t>(shifted)};
}

// (sin(r) / r - 1) / r^2 over [-pi/4, pi/4], fit error 4.7e-15
double sin_reduced(double r) noexcept {
  const double z = r * r;
  double p = -0x1.a966d440cb0ccp-26;
  p = p * z + 0x1.71d77cd4a6db4p-19;
  p = p * z + -0x1.a019f95a4d06dp-13;
  p = p * z + 0x1.1111110ca24f6p-7;
  p = p * z + -0x1.55555555523f6p-3;
  return r + r * (z * p);
}

// (cos(r) - 1 + r^2 / 2) / r^4 over [-pi/4, pi/4], fit error 7.7e-17
double cos_reduced(double r) noexcept {
  const double z = r * r;
  double p = 0x1.1bc79be36e0a1p-29;
  p = p * z + -0x1.27e02a0cb5753p-22;
  p = p * z + 0x1.a019faa9525adp-16;
  p = p * z + -0x1.6c16c1676ab4fp-10;
  p = p * z + 0x1.555555555310ap-5;
  return 1.0 + (z * z * p - 0.5 * z);
}

// Returns sin(x + quarter_turns * pi/2).
float sin_turned(float x, std::uint64_t quarter_turns) noexcept {
  if (!(x >= -kMaxAngle && x <= kMaxAngle)) return std::numeric_limits<float>::quiet_NaN();
  const Reduced reduced = reduce(static_cast<double>(x));
  const std::uint64_t quadrant = reduced.quadrant + quarter_turns;
  const double value = (quadrant & 1U) != 0 ? cos_reduced(reduced.r) : sin_reduced(reduced.r);
  return static_cast<float>((quadrant & 2U) != 0 ? -value : value);
}

}  // namespace

float exp_f32(float x) noexcept {
  return lanes::exp(lanes::splat(x))[0];
}
float tanh_f32(float x) noexcept {
  return lanes::tanh(lanes::splat(x))[0];
}
float erf_f32(float x) noexcept {
  return lanes::erf(lanes::splat(x))[0];
}
float sin_f32(float x) noexcept {
  if (x == 0.0F) return x;  // keeps the sign of zero
  return sin_turned(x, 0);
}
float cos_f32(float x) noexcept {
  return sin_turned(x, 1);
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
  const std::uint64_t offset = std::bit_cast<std::uint64_t>(x) - kSqrtHalfBits;
  const auto exponent = static_cast<std::int64_t>(offset) >> 52;
  k += exponent;
  const double m = std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) -
                                         (static_cast<std::uint64_t>(exponent) << 52));
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
