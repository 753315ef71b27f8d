// SPDX-License-Identifier: MIT
//
// Holds every conversion kernel to base/f16.h, bit for bit.

#include "kernels/convert/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/bit_cast.h"
#include "kernels/testing/guard_pages.h"
#include "kernels/testing/isa_coverage.h"
#include "kernels/testing/seeded_rng.h"
#include "kernels/testing/tier_agreement.h"

namespace qsf::kernels {
namespace {

using testing_support::GuardedArray;
using testing_support::GuardedBytes;
using testing_support::SeededRng;

constexpr std::uint32_t kEvery = 0x10000;

class ConvertTest : public testing::TestWithParam<ConvertKernels> {
 protected:
  void SetUp() override {
    if (!testing_support::can_run(GetParam())) {
      GTEST_SKIP() << testing_support::lacking(GetParam().isa);
    }
  }
};

void expect_same(float got, float want, std::uint32_t bits) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << bits;
  } else {
    EXPECT_EQ(bit_cast<std::uint32_t>(got), bit_cast<std::uint32_t>(want)) << bits;
  }
}

TEST_P(ConvertTest, WidensEveryHalf) {
  const GuardedArray<F16> halves(kEvery);
  const GuardedArray<BF16> brains(kEvery);
  const GuardedArray<float> out(kEvery);
  for (std::uint32_t i = 0; i < kEvery; ++i) {
    halves[i].bits = static_cast<std::uint16_t>(i);
    brains[i].bits = static_cast<std::uint16_t>(i);
  }
  GetParam().f16_to_f32(halves.data(), out.data(), kEvery);
  for (std::uint32_t i = 0; i < kEvery; ++i) expect_same(out[i], to_f32(halves[i]), i);
  GetParam().bf16_to_f32(brains.data(), out.data(), kEvery);
  for (std::uint32_t i = 0; i < kEvery; ++i) expect_same(out[i], to_f32(brains[i]), i);
}

// All exponents, and mantissas on both sides of every rounding step.
TEST_P(ConvertTest, NarrowsLikeTheDefinition) {
  constexpr std::uint32_t kStep = 0x07FF;
  constexpr std::size_t kCount = 0xFFFFFFFFU / kStep;
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    values[i] = bit_cast<float>(static_cast<std::uint32_t>(i) * kStep);
  }
  for (const float edge : {65504.0F, 65519.99F, 65520.0F, 0x1p-14F, 0x1p-24F, 0x1p-25F, 0x1.8p-25F,
                           0x1.ffep-15F, 0x1.fffp-15F}) {
    values.push_back(edge);
    values.push_back(-edge);
  }
  std::vector<F16> halves(values.size());
  std::vector<BF16> brains(values.size());
  GetParam().f32_to_f16(values.data(), halves.data(), values.size());
  GetParam().f32_to_bf16(values.data(), brains.data(), values.size());
  std::size_t n_wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) {
      n_wrong += std::isnan(to_f32(halves[i])) && std::isnan(to_f32(brains[i])) ? 0 : 1;
    } else {
      n_wrong += halves[i] == to_f16(values[i]) && brains[i] == to_bf16(values[i]) ? 0 : 1;
    }
  }
  EXPECT_EQ(n_wrong, 0U);
}

TEST_P(ConvertTest, StaysInsideItsOperands) {
  SeededRng rng;
  for (std::size_t n = 0; n < 40; ++n) {
    const GuardedArray<float> wide(n);
    const GuardedArray<F16> half(n);
    const GuardedArray<BF16> brain(n);
    for (float& v : wide) v = rng.get().next_normal();
    GetParam().f32_to_f16(wide.data(), half.data(), n);
    GetParam().f32_to_bf16(wide.data(), brain.data(), n);
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(half[i], to_f16(wide[i]));
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(brain[i], to_bf16(wide[i]));
    GetParam().f16_to_f32(half.data(), wide.data(), n);
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(wide[i], to_f32(half[i]));
    GetParam().bf16_to_f32(brain.data(), wide.data(), n);
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(wide[i], to_f32(brain[i]));
    EXPECT_TRUE(wide.front_intact() && half.front_intact() && brain.front_intact());
  }
}

// Whether arrays of every kind and size are narrowed and widened as base/f16.h does.
::testing::AssertionResult agrees(const ConvertKernels& kernels) {
  SeededRng rng;
  for (const std::uint32_t n : testing_support::sizes_around_vectors()) {
    for (const testing_support::RowData data : testing_support::kAllRowData) {
      const auto x = make_data(data, n, rng);
      const GuardedArray<F16> halves(n);
      const GuardedArray<BF16> brains(n);
      kernels.f32_to_f16(x.data(), halves.data(), n);
      kernels.f32_to_bf16(x.data(), brains.data(), n);
      const GuardedArray<float> from_halves(n);
      const GuardedArray<float> from_brains(n);
      kernels.f16_to_f32(halves.data(), from_halves.data(), n);
      kernels.bf16_to_f32(brains.data(), from_brains.data(), n);
      std::vector<float> want_halves(n);
      std::vector<float> want_brains(n);
      for (std::uint32_t i = 0; i < n; ++i) {
        want_halves[i] = to_f32(to_f16(x[i]));
        want_brains[i] = to_f32(to_bf16(x[i]));
      }
      auto same = testing_support::same_bits(from_halves.data(), want_halves.data(), n);
      if (!same) return same << ", f16 of data " << static_cast<int>(data);
      same = testing_support::same_bits(from_brains.data(), want_brains.data(), n);
      if (!same) return same << ", bf16 of data " << static_cast<int>(data);
      if (!halves.front_intact() || !brains.front_intact()) {
        return ::testing::AssertionFailure() << "wrote in front";
      }
    }
  }
  return ::testing::AssertionSuccess();
}

TEST_P(ConvertTest, AgreesOnEveryKindOfData) {
  EXPECT_TRUE(agrees(GetParam()));
}

TEST(ConvertCheckerTest, CatchesEveryPlantedFault) {
  ConvertKernels truncating = convert_kernels().back();
  truncating.f32_to_bf16 = [](const float* from, BF16* to, std::size_t n) noexcept {
    for (std::size_t i = 0; i < n; ++i) {
      to[i].bits = static_cast<std::uint16_t>(bit_cast<std::uint32_t>(from[i]) >> 16);
    }
  };
  EXPECT_FALSE(agrees(truncating));
  ConvertKernels flushing = convert_kernels().back();
  flushing.f16_to_f32 = [](const F16* from, float* to, std::size_t n) noexcept {
    convert_kernels().back().f16_to_f32(from, to, n);
    for (std::size_t i = 0; i < n; ++i) to[i] = std::fabs(to[i]) < 0x1p-14F ? 0.0F : to[i];
  };
  EXPECT_FALSE(agrees(flushing));
  ConvertKernels tail_lost = convert_kernels().back();
  tail_lost.f32_to_f16 = [](const float* from, F16* to, std::size_t n) noexcept {
    convert_kernels().back().f32_to_f16(from, to, n - n % 8);
    for (std::size_t i = n - n % 8; i < n; ++i) to[i].bits = 0;
  };
  EXPECT_FALSE(agrees(tail_lost));
}

INSTANTIATE_TEST_SUITE_P(All, ConvertTest, testing::ValuesIn(convert_kernels()),
                         testing_support::KernelName{});

}  // namespace
}  // namespace qsf::kernels
