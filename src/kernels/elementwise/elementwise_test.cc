// SPDX-License-Identifier: MIT
//
// Holds every element-by-element kernel to its contract: one rounding, so exact equality.

#include "kernels/elementwise/elementwise.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/testing/guard_pages.h"
#include "kernels/testing/isa_coverage.h"
#include "kernels/testing/seeded_rng.h"
#include "kernels/testing/tier_agreement.h"

namespace qsf::kernels {
namespace {

using testing_support::GuardedArray;
using testing_support::SeededRng;

class ElementwiseTest : public testing::TestWithParam<ElementwiseKernels> {
 protected:
  void SetUp() override {
    if (!testing_support::can_run(GetParam())) {
      GTEST_SKIP() << testing_support::lacking(GetParam().isa);
    }
  }
};

TEST_P(ElementwiseTest, EveryElementIsExact) {
  SeededRng rng;
  const ElementwiseKernels& kernels = GetParam();
  for (const std::uint32_t n : testing_support::sizes_around_vectors()) {
    const GuardedArray<float> a(n);
    const GuardedArray<float> b(n);
    const GuardedArray<float> out(n);
    for (std::uint32_t i = 0; i < n; ++i) {
      a[i] = rng.get().next_normal();
      b[i] = rng.get().next_normal();
    }
    kernels.add(a.data(), b.data(), out.data(), n);
    for (std::uint32_t i = 0; i < n; ++i) EXPECT_EQ(out[i], a[i] + b[i]);
    kernels.mul(a.data(), b.data(), out.data(), n);
    for (std::uint32_t i = 0; i < n; ++i) EXPECT_EQ(out[i], a[i] * b[i]);
    kernels.copy(a.data(), out.data(), n);
    for (std::uint32_t i = 0; i < n; ++i) EXPECT_EQ(out[i], a[i]);
    kernels.add_in_place(out.data(), b.data(), n);
    for (std::uint32_t i = 0; i < n; ++i) EXPECT_EQ(out[i], a[i] + b[i]);
    kernels.copy(a.data(), out.data(), n);
    kernels.scale(out.data(), 1.7F, n);
    for (std::uint32_t i = 0; i < n; ++i) EXPECT_EQ(out[i], a[i] * 1.7F);
    kernels.add(a.data(), b.data(), a.data(), n);  // out may be an input
    kernels.copy(a.data(), a.data(), n);
    EXPECT_TRUE(out.front_intact());
  }
}

::testing::AssertionResult agrees(const ElementwiseKernels& kernels) {
  const ElementwiseKernels& scalar = elementwise_kernels().back();
  SeededRng rng;
  for (const std::uint32_t n : testing_support::sizes_around_vectors()) {
    for (const testing_support::RowData data : testing_support::kAllRowData) {
      const auto a = make_data(data, n, rng);
      const auto b = make_data(data, n, rng);
      const GuardedArray<float> got(n);
      std::vector<float> want(n);
      kernels.add(a.data(), b.data(), got.data(), n);
      scalar.add(a.data(), b.data(), want.data(), n);
      auto same = testing_support::same_bits(got.data(), want.data(), n);
      if (!same) return same << ", add";
      kernels.mul(a.data(), b.data(), got.data(), n);
      scalar.mul(a.data(), b.data(), want.data(), n);
      same = testing_support::same_bits(got.data(), want.data(), n);
      if (!same) return same << ", mul";
      kernels.add_in_place(got.data(), a.data(), n);
      scalar.add_in_place(want.data(), a.data(), n);
      same = testing_support::same_bits(got.data(), want.data(), n);
      if (!same) return same << ", add_in_place";
      kernels.copy(a.data(), got.data(), n);
      scalar.copy(a.data(), want.data(), n);
      kernels.scale(got.data(), -0.3F, n);
      scalar.scale(want.data(), -0.3F, n);
      same = testing_support::same_bits(got.data(), want.data(), n);
      if (!same) return same << ", copy and scale";
      if (!got.front_intact()) return ::testing::AssertionFailure() << "wrote in front";
    }
  }
  return ::testing::AssertionSuccess();
}

TEST_P(ElementwiseTest, GivesTheBitsOfTheScalarTier) {
  EXPECT_TRUE(agrees(GetParam()));
}

TEST(ElementwiseCheckerTest, CatchesEveryPlantedFault) {
  ElementwiseKernels tail_lost = elementwise_kernels().back();
  tail_lost.add = [](const float* a, const float* b, float* out, std::uint32_t n) noexcept {
    elementwise_kernels().back().add(a, b, out, n);
    if (n % 16 != 0) out[n - 1] = a[n - 1];
  };
  EXPECT_FALSE(agrees(tail_lost));
  ElementwiseKernels sign_lost = elementwise_kernels().back();
  sign_lost.scale = [](float* x, float factor, std::uint32_t n) noexcept {
    for (std::uint32_t i = 0; i < n; ++i) x[i] = x[i] * factor + 0.0F;  // -0 becomes +0
  };
  EXPECT_FALSE(agrees(sign_lost));
}

INSTANTIATE_TEST_SUITE_P(All, ElementwiseTest, testing::ValuesIn(elementwise_kernels()),
                         testing_support::KernelName{});

}  // namespace
}  // namespace qsf::kernels
