// SPDX-License-Identifier: MIT
//
// Holds the angles and every rotation kernel to their contracts.

#include "kernels/rope/rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/testing/error_bound.h"
#include "kernels/testing/guard_pages.h"
#include "kernels/testing/isa_coverage.h"
#include "kernels/testing/seeded_rng.h"
#include "kernels/testing/tier_agreement.h"

namespace qsf::kernels {
namespace {

using testing_support::gamma_of;
using testing_support::GuardedArray;
using testing_support::SeededRng;

class RopeTest : public testing::TestWithParam<RopeKernels> {
 protected:
  void SetUp() override {
    if (!testing_support::can_run(GetParam())) {
      GTEST_SKIP() << testing_support::lacking(GetParam().isa);
    }
  }
};

// The angle is the f32 product; against the unrounded one the cosine of a late position differs in
// its third digit, and models are trained with the rounded one.
TEST_P(RopeTest, AnglesAreRoundedToF32) {
  std::vector<float> inv_freq(64);
  for (std::size_t i = 0; i < 64; ++i) {
    inv_freq[i] = static_cast<float>(std::pow(10000.0, -static_cast<double>(i) / 64.0));
  }
  for (const std::uint32_t position : {0U, 1U, 17U, 4095U, 131071U, 1000003U, 16777217U}) {
    std::vector<float> cos(64);
    std::vector<float> sin(64);
    GetParam().angles(position, inv_freq.data(), 64, cos.data(), sin.data());
    for (std::size_t i = 0; i < 64; ++i) {
      const double angle = static_cast<float>(position) * inv_freq[i];
      EXPECT_NEAR(cos[i], std::cos(angle), 0x1p-24) << position << " " << i;
      EXPECT_NEAR(sin[i], std::sin(angle), 0x1p-24) << position << " " << i;
    }
  }
}

// At a million positions the rounded product is up to 0.03 radians off; this one is the angle.
TEST_P(RopeTest, UnroundedAnglesHoldAtAnyPosition) {
  std::vector<float> inv_freq(64);
  for (std::size_t i = 0; i < 64; ++i) {
    inv_freq[i] = static_cast<float>(std::pow(10000.0, -static_cast<double>(i) / 64.0));
  }
  double most_rounded_away = 0.0;
  for (const std::uint32_t position : {0U, 1U, 4097U, 1000000U, 1000003U, 16777217U, 67108863U}) {
    std::vector<float> cos(64);
    std::vector<float> sin(64);
    GetParam().unrounded_angles(position, inv_freq.data(), 64, cos.data(), sin.data());
    for (std::size_t i = 0; i < 64; ++i) {
      const double angle = static_cast<double>(position) * static_cast<double>(inv_freq[i]);
      EXPECT_NEAR(cos[i], std::cos(angle), 0x1p-24) << position << " " << i;
      EXPECT_NEAR(sin[i], std::sin(angle), 0x1p-24) << position << " " << i;
      if (position != 1000000) continue;
      const double rounded = static_cast<float>(position) * inv_freq[i];
      most_rounded_away = std::max(most_rounded_away, std::fabs(rounded - angle));
    }
  }
  EXPECT_GT(most_rounded_away, 0.01);
  const float fast = 2.0F;
  float cos = 0.0F;
  float sin = 0.0F;
  GetParam().unrounded_angles(67108863, &fast, 1, &cos, &sin);
  EXPECT_TRUE(std::isnan(cos) && std::isnan(sin));
}

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
  GetParam().angles(0, inv_freq, 5, cos, sin);
  float x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  GetParam().rotate_half(x, cos, sin, 5, 1, 0);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(x[i], static_cast<float>(i + 1));
}

// Whether angles and rotations have the scalar tier's bits, and rows are rotated one by one.
::testing::AssertionResult agrees(const RopeKernels& kernels) {
  const RopeKernels& scalar = rope_kernels().back();
  SeededRng rng;
  for (std::uint32_t n_pairs = 1; n_pairs < 70; ++n_pairs) {
    constexpr std::uint32_t kRows = 3;
    const auto frequencies = make_data(testing_support::RowData::kUniform, n_pairs, rng);
    const GuardedArray<float> cos(std::size_t{kRows} * n_pairs);
    const GuardedArray<float> sin(std::size_t{kRows} * n_pairs);
    const GuardedArray<float> cos_want(n_pairs);
    const GuardedArray<float> sin_want(n_pairs);
    for (std::uint32_t row = 0; row < kRows; ++row) {
      const std::uint32_t position = row == 2 ? 0xFFFFFFFFU : 1000 * row + n_pairs;
      float* c = cos.data() + std::size_t{row} * n_pairs;
      float* s = sin.data() + std::size_t{row} * n_pairs;
      for (const auto angles : {&RopeKernels::unrounded_angles, &RopeKernels::angles}) {
        (kernels.*angles)(position, frequencies.data(), n_pairs, c, s);
        (scalar.*angles)(position, frequencies.data(), n_pairs, cos_want.data(), sin_want.data());
        auto same = testing_support::same_bits(c, cos_want.data(), n_pairs);
        if (same) same = testing_support::same_bits(s, sin_want.data(), n_pairs);
        if (!same) return same << ", angles at " << position;
      }
    }
    const std::size_t stride = 2 * n_pairs + n_pairs % 3;
    const std::size_t row_stride = 2 * stride + 1;
    const std::size_t n_values = (kRows - 1) * row_stride + 2 * stride;
    for (const testing_support::RowData data : testing_support::kAllRowData) {
      const auto got = make_data(data, n_values, rng);
      std::vector<float> want(got.begin(), got.end());
      kernels.rotate_half_rows({.x = got.data(),
                                .row_stride = row_stride,
                                .cos = cos.data(),
                                .sin = sin.data(),
                                .n_pairs = n_pairs,
                                .n_heads = 2,
                                .head_stride = stride,
                                .n_rows = kRows});
      for (std::size_t row = 0; row < kRows; ++row) {
        scalar.rotate_half(&want[row * row_stride], cos.data() + row * n_pairs,
                           sin.data() + row * n_pairs, n_pairs, 2, stride);
      }
      auto same = testing_support::same_bits(got.data(), want.data(), n_values);
      if (!same) return same << ", rows of " << n_pairs << " pairs";
      kernels.rotate_half(got.data(), cos.data(), sin.data(), n_pairs, 2, stride);
      scalar.rotate_half(want.data(), cos.data(), sin.data(), n_pairs, 2, stride);
      same = testing_support::same_bits(got.data(), want.data(), n_values);
      if (!same) return same << ", " << n_pairs << " pairs";
    }
  }
  return ::testing::AssertionSuccess();
}

TEST_P(RopeTest, GivesTheBitsOfTheScalarTier) {
  EXPECT_TRUE(agrees(GetParam()));
}

TEST(RopeCheckerTest, CatchesEveryPlantedFault) {
  RopeKernels last_pair_kept = rope_kernels().back();
  last_pair_kept.rotate_half = [](float* x, const float* cos, const float* sin,
                                  std::uint32_t n_pairs, std::uint32_t n_heads,
                                  std::size_t stride) noexcept {
    const float last = x[n_pairs - 1];
    rope_kernels().back().rotate_half(x, cos, sin, n_pairs, n_heads, stride);
    x[n_pairs - 1] = last;
  };
  EXPECT_FALSE(agrees(last_pair_kept));
  RopeKernels turned_back = rope_kernels().back();
  turned_back.angles = [](std::uint32_t position, const float* inv_freq, std::uint32_t n_pairs,
                          float* cos, float* sin) noexcept {
    rope_kernels().back().angles(position, inv_freq, n_pairs, cos, sin);
    for (std::uint32_t i = 0; i < n_pairs; ++i) sin[i] = -sin[i];
  };
  EXPECT_FALSE(agrees(turned_back));
  RopeKernels rounded = rope_kernels().back();
  rounded.unrounded_angles = rounded.angles;
  EXPECT_FALSE(agrees(rounded));
  RopeKernels angles_of_first_row = rope_kernels().back();
  angles_of_first_row.rotate_half_rows = [](const RotateRowsArgs& args) noexcept {
    for (std::uint32_t row = 0; row < args.n_rows; ++row) {
      rope_kernels().back().rotate_half(args.x + row * args.row_stride, args.cos, args.sin,
                                        args.n_pairs, args.n_heads, args.head_stride);
    }
  };
  EXPECT_FALSE(agrees(angles_of_first_row));
}

INSTANTIATE_TEST_SUITE_P(All, RopeTest, testing::ValuesIn(rope_kernels()),
                         testing_support::KernelName{});

}  // namespace
}  // namespace qsf::kernels
