// SPDX-License-Identifier: MIT
//
// Holds the searches over logits to their contracts.

#include "kernels/sample/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/testing/guard_pages.h"
#include "kernels/testing/isa_coverage.h"
#include "kernels/testing/seeded_rng.h"

namespace qsf::kernels {
namespace {

using testing_support::GuardedArray;
using testing_support::SeededRng;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class SampleTest : public testing::TestWithParam<SampleKernels> {
 protected:
  void SetUp() override {
    if (!testing_support::can_run(GetParam())) {
      GTEST_SKIP() << testing_support::lacking(GetParam().isa);
    }
  }
};

TEST_P(SampleTest, ArgmaxFindsEveryPlaceAndTheLowestOfTies) {
  SeededRng rng;
  for (std::uint32_t n = 1; n < 70; ++n) {
    const GuardedArray<float> x(n);
    for (std::uint32_t at = 0; at < n; ++at) {
      for (float& v : x) v = -rng.get().next_f32() - 1.0F;
      x[at] = -0.5F;
      if (at > 0) x[at - 1] = std::nextafter(-0.5F, -1.0F);
      if (at + 3 < n) x[at + 3] = -0.5F;
      EXPECT_EQ(GetParam().argmax(x.data(), n), at);
    }
  }
}

TEST_P(SampleTest, ArgmaxNeverTakesNaN) {
  const float mixed[] = {kNaN, -kInf, kNaN, -3.0F, kNaN};
  EXPECT_EQ(GetParam().argmax(mixed, 5), 3U);
  const float masked[] = {kNaN, -kInf, -kInf};
  EXPECT_EQ(GetParam().argmax(masked, 3), 1U);
  const float nothing[] = {kNaN, kNaN};
  EXPECT_EQ(GetParam().argmax(nothing, 2), 0U);
  const float zeros[] = {-0.0F, 0.0F};
  EXPECT_EQ(GetParam().argmax(zeros, 2), 0U);
}

INSTANTIATE_TEST_SUITE_P(All, SampleTest, testing::ValuesIn(sample_kernels()),
                         testing_support::KernelName{});

// Against a full sort; many ties, because values are drawn from few.
TEST(TopKTest, EqualsAFullSort) {
  SeededRng rng;
  for (const std::uint32_t n : {0U, 1U, 2U, 7U, 100U, 1000U}) {
    for (const std::uint32_t k : {0U, 1U, 2U, 40U, 999U, 5000U}) {
      std::vector<float> values(n);
      std::vector<std::uint32_t> ids(n);
      for (float& v : values) v = static_cast<float>(rng.get().below(30)) - 15.0F;
      std::iota(ids.begin(), ids.end(), 7U);
      std::vector<std::pair<float, std::uint32_t>> sorted;
      for (std::uint32_t i = 0; i < n; ++i) sorted.emplace_back(-values[i], ids[i]);
      const auto unsorted = sorted;
      std::sort(sorted.begin(), sorted.end());
      ASSERT_EQ(top_k_select(values.data(), ids.data(), n, k), std::min(n, k));
      for (std::uint32_t i = 0; i < std::min(n, k); ++i) {
        EXPECT_EQ(values[i], -sorted[i].first);
        EXPECT_EQ(ids[i], sorted[i].second);
      }
      // Nothing is lost: the arrays still hold every pair.
      std::vector<std::pair<float, std::uint32_t>> left;
      for (std::uint32_t i = 0; i < n; ++i) left.emplace_back(-values[i], ids[i]);
      std::sort(left.begin(), left.end());
      EXPECT_EQ(left, sorted);
      EXPECT_EQ(unsorted.size(), left.size());
    }
  }
}

TEST(TopKTest, NaNIsNeverSelected) {
  float values[] = {kNaN, 1.0F, kNaN, -kInf, 2.0F};
  std::uint32_t ids[] = {0, 1, 2, 3, 4};
  ASSERT_EQ(top_k_select(values, ids, 5, 5), 3U);
  EXPECT_EQ(ids[0], 4U);
  EXPECT_EQ(ids[1], 1U);
  EXPECT_EQ(ids[2], 3U);
  float nothing[] = {kNaN, kNaN};
  EXPECT_EQ(top_k_select(nothing, ids, 2, 2), 0U);
}

}  // namespace
}  // namespace qsf::kernels
