// SPDX-License-Identifier: MIT
//
// Sweeps of the math functions over their whole range against the C library in double.

#include "kernels/math/math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>

#include "base/bit_cast.h"
#include "kernels/testing/seeded_rng.h"
#include "kernels/testing/special_values.h"
#include "kernels/testing/sweep.h"

namespace qsf::kernels {
namespace {

using testing_support::kInf;
using testing_support::kNaN;

// The distance of neighbouring f32 values around `value`.
double ulp_of(double value) {
  const int exponent = std::max(std::ilogb(value), -126);
  return std::ldexp(1.0, exponent - 23);
}

double error_in_ulp(float got, double want) {
  if (static_cast<double>(got) == want) return 0.0;
  if (std::isinf(got) && std::fabs(want) > 0x1.ffffffp127) return 0.0;
  return std::fabs(static_cast<double>(got) - want) / ulp_of(want == 0.0 ? 0x1p-149 : want);
}

// Visits f32 values of both signs up to `largest`, a prime apart so that all mantissas occur, and
// returns the largest error in ulp.
template <typename Ours, typename Theirs>
double worst_error(float largest, Ours ours, Theirs theirs) {
  const std::uint32_t step = 1009 * testing_support::sweep_stride();
  double worst = 0.0;
  float at = 0.0F;
  const std::uint32_t end = bit_cast<std::uint32_t>(largest);
  for (std::uint32_t bits = 0; bits <= end; bits += step) {
    for (const std::uint32_t sign : {0U, 0x80000000U}) {
      const float x = bit_cast<float>(bits | sign);
      const double error = error_in_ulp(ours(x), theirs(static_cast<double>(x)));
      if (!(error <= worst)) {
        worst = error;
        at = x;
      }
    }
  }
  std::printf("worst %.3f ulp at %.9g\n", worst, static_cast<double>(at));
  return worst;
}

double reference_exp(double x) {
  return std::exp(x);
}
double reference_tanh(double x) {
  return std::tanh(x);
}
double reference_erf(double x) {
  return std::erf(x);
}
double reference_sin(double x) {
  return std::sin(x);
}
double reference_cos(double x) {
  return std::cos(x);
}

TEST(MathTest, ExpIsWithinOneUlp) {
  EXPECT_LE(worst_error(kInf, exp_f32, reference_exp), 1.0);
  EXPECT_EQ(exp_f32(0.0F), 1.0F);
  EXPECT_EQ(exp_f32(-0.0F), 1.0F);
  EXPECT_EQ(exp_f32(-kInf), 0.0F);
  EXPECT_EQ(exp_f32(kInf), kInf);
  EXPECT_EQ(exp_f32(88.73F), kInf);
  EXPECT_TRUE(std::isnan(exp_f32(kNaN)));
}

TEST(MathTest, TanhIsWithinTwoUlp) {
  EXPECT_LE(worst_error(kInf, tanh_f32, reference_tanh), 2.0);
  EXPECT_EQ(tanh_f32(kInf), 1.0F);
  EXPECT_EQ(tanh_f32(-kInf), -1.0F);
  EXPECT_TRUE(std::signbit(tanh_f32(-0.0F)));
  EXPECT_TRUE(std::isnan(tanh_f32(kNaN)));
}

TEST(MathTest, ErfIsWithinTwoUlp) {
  EXPECT_LE(worst_error(kInf, erf_f32, reference_erf), 2.0);
  EXPECT_EQ(erf_f32(kInf), 1.0F);
  EXPECT_EQ(erf_f32(-kInf), -1.0F);
  EXPECT_TRUE(std::isnan(erf_f32(kNaN)));
}

TEST(MathTest, SinAndCosAreWithinOneUlp) {
  EXPECT_LE(worst_error(kMaxAngle, sin_f32, reference_sin), 1.0);
  EXPECT_LE(worst_error(kMaxAngle, cos_f32, reference_cos), 1.0);
  for (const float x : {kInf, -kInf, kNaN, 0x1.000002p26F}) {
    EXPECT_TRUE(std::isnan(sin_f32(x)));
    EXPECT_TRUE(std::isnan(cos_f32(x)));
  }
  EXPECT_TRUE(std::signbit(sin_f32(-0.0F)));
}

// Where the reduction cancels most: f32 values next to multiples of pi/2.
TEST(MathTest, SinAndCosHoldNextToMultiplesOfHalfPi) {
  const std::uint32_t step = 41 * testing_support::sweep_stride();
  double worst = 0.0;
  for (std::int64_t n = 1; n < 42'000'000; n += step) {
    const auto x = static_cast<float>(static_cast<double>(n) * 1.5707963267948966);
    worst = std::max(worst, error_in_ulp(sin_f32(x), std::sin(static_cast<double>(x))));
    worst = std::max(worst, error_in_ulp(cos_f32(x), std::cos(static_cast<double>(x))));
  }
  EXPECT_LE(worst, 1.0);
}

TEST(MathTest, LogIsWithinTwoUlpOfDouble) {
  testing_support::SeededRng rng;
  double worst = 0.0;
  const auto check = [&worst](double x) {
    const long double want = std::log(static_cast<long double>(x));
    const double got = log_f64(x);
    if (want == 0.0L) {
      EXPECT_EQ(got, 0.0);
      return;
    }
    const double ulp = std::ldexp(1.0, std::ilogb(static_cast<double>(want)) - 52);
    const auto error = static_cast<double>(std::fabs(static_cast<long double>(got) - want));
    worst = std::max(worst, error / ulp);
  };
  const std::uint32_t n_draws = 1'000'000 / testing_support::sweep_stride();
  for (std::uint32_t i = 0; i < n_draws; ++i) {
    check(bit_cast<double>(rng.get().next_u64() % 0x7FF0000000000000U));
    check(0.5 + 1.5 * rng.get().next_f64());
  }
  check(1.0);
  check(0x1p-1074);
  EXPECT_LE(worst, 2.0);
  EXPECT_EQ(log_f64(0.0), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(log_f64(std::numeric_limits<double>::infinity()),
            std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(log_f64(-1.0)));
  EXPECT_TRUE(std::isnan(log_f64(std::nan(""))));
}

}  // namespace
}  // namespace qsf::kernels
