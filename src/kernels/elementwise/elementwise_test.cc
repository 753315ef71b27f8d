// SPDX-License-Identifier: MIT
//
// Holds every element-by-element kernel to its contract: one rounding, so exact equality.

#include "kernels/elementwise/elementwise.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/testing/guard_pages.h"
#include "kernels/testing/isa_coverage.h"
#include "kernels/testing/seeded_rng.h"

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
  for (const std::uint32_t n : {0U, 1U, 3U, 4U, 5U, 15U, 63U, 64U, 65U, 172U}) {
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

INSTANTIATE_TEST_SUITE_P(All, ElementwiseTest, testing::ValuesIn(elementwise_kernels()),
                         testing_support::KernelName{});

}  // namespace
}  // namespace qsf::kernels
