// SPDX-License-Identifier: MIT
//
// Holds the angles and every rotation kernel to their contracts.

#include "kernels/rope/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/testing/error_bound.h"
#include "kernels/testing/guard_pages.h"
#include "kernels/testing/isa_coverage.h"
#include "kernels/testing/seeded_rng.h"

namespace qsf::kernels {
namespace {

using testing_support::gamma_of;
using testing_support::GuardedArray;
using testing_support::SeededRng;

// The angle is the f32 product; against the unrounded one the cosine of a late position differs in
// its third digit, and models are trained with the rounded one.
TEST(RopeAnglesTest, UseTheAngleRoundedToF32) {
  std::vector<float> inv_freq(64);
  for (std::size_t i = 0; i < 64; ++i) {
    inv_freq[i] = static_cast<float>(std::pow(10000.0, -static_cast<double>(i) / 64.0));
  }
  for (const std::uint32_t position : {0U, 1U, 17U, 4095U, 131071U, 1000003U, 16777217U}) {
    std::vector<float> cos(64);
    std::vector<float> sin(64);
    rope_angles(position, inv_freq.data(), 64, cos.data(), sin.data());
    for (std::size_t i = 0; i < 64; ++i) {
      const double angle = static_cast<float>(position) * inv_freq[i];
      EXPECT_NEAR(cos[i], std::cos(angle), 0x1p-24) << position << " " << i;
      EXPECT_NEAR(sin[i], std::sin(angle), 0x1p-24) << position << " " << i;
    }
  }
}

class RopeTest : public testing::TestWithParam<RopeKernels> {
 protected:
  void SetUp() override {
    if (!testing_support::can_run(GetParam())) {
      GTEST_SKIP() << testing_support::lacking(GetParam().isa);
    }
  }
};

// Two products and a sum: each term passes two roundings. Elements past 2 * n_pairs stay.
TEST_P(RopeTest, RotatesEveryHead) {
  SeededRng rng;
  for (const std::uint32_t n_pairs : {1U, 3U, 4U, 5U, 32U, 40U, 63U}) {
    for (const std::uint32_t extra : {0U, 3U}) {
      constexpr std::uint32_t kHeads = 3;
      const std::size_t stride = 2 * n_pairs + extra;
      const GuardedArray<float> x(kHeads * stride);
      const GuardedArray<float> cos(n_pairs);
      const GuardedArray<float> sin(n_pairs);
      for (float& v : x) v = rng.get().next_normal();
      for (std::uint32_t i = 0; i < n_pairs; ++i) {
        const float angle = rng.uniform(-4.0F, 4.0F);
        cos[i] = std::cos(angle);
        sin[i] = std::sin(angle);
      }
      std::vector<double> want(x.begin(), x.end());
      std::vector<double> bounds(want.size(), 0.0);
      for (std::size_t h = 0; h < kHeads; ++h) {
        for (std::size_t i = 0; i < n_pairs; ++i) {
          const double a = x[h * stride + i];
          const double b = x[h * stride + i + n_pairs];
          const double c = cos[i];
          const double s = sin[i];
          want[h * stride + i] = a * c - b * s;
          want[h * stride + i + n_pairs] = b * c + a * s;
          bounds[h * stride + i] = gamma_of(2) * (std::fabs(a * c) + std::fabs(b * s));
          bounds[h * stride + i + n_pairs] = gamma_of(2) * (std::fabs(b * c) + std::fabs(a * s));
        }
      }
      GetParam().rotate_half(x.data(), cos.data(), sin.data(), n_pairs, kHeads, stride);
      EXPECT_TRUE(testing_support::all_within(x.data(), want, bounds)) << n_pairs;
      EXPECT_TRUE(x.front_intact());
    }
  }
}

TEST_P(RopeTest, PositionZeroChangesNothing) {
  const float inv_freq[] = {1.0F, 0.5F, 0.25F, 0.1F, 0.05F};
  float cos[5];
  float sin[5];
  rope_angles(0, inv_freq, 5, cos, sin);
  float x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  GetParam().rotate_half(x, cos, sin, 5, 1, 0);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(x[i], static_cast<float>(i + 1));
}

INSTANTIATE_TEST_SUITE_P(All, RopeTest, testing::ValuesIn(rope_kernels()),
                         testing_support::KernelName{});

}  // namespace
}  // namespace qsf::kernels
