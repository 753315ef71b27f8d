// SPDX-License-Identifier: MIT
//
// Holds the searches over logits to their contracts.

#include "kernels/sample/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/testing/guard_pages.h"
#include "kernels/testing/isa_coverage.h"
#include "kernels/testing/seeded_rng.h"
#include "kernels/testing/special_values.h"
#include "kernels/testing/tier_agreement.h"

namespace qsf::kernels {
namespace {

using testing_support::GuardedArray;
using testing_support::kInf;
using testing_support::kNaN;
using testing_support::SeededRng;

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

::testing::AssertionResult differs(const char* what, std::uint32_t n,
                                   testing_support::RowData data) {
  return ::testing::AssertionFailure()
         << what << " of " << n << " values of data " << static_cast<int>(data);
}

// Whether searches and weights agree with the scalar tier on data of every kind and size, and with
// plain loops where these are exact.
::testing::AssertionResult agrees(const SampleKernels& kernels) {
  const SampleKernels& scalar = sample_kernels().back();
  SeededRng rng;
  for (const std::uint32_t n : testing_support::sizes_around_vectors()) {
    if (n == 0) continue;
    for (const testing_support::RowData data : testing_support::kAllRowData) {
      const auto x = make_data(data, n, rng);
      if (kernels.argmax(x.data(), n) != scalar.argmax(x.data(), n)) {
        return differs("argmax", n, data);
      }
      for (const std::uint32_t block : {1U, 32U, 50U}) {
        const GuardedArray<float> maxima((n + block - 1) / block);
        kernels.block_maxima(x.data(), n, block, maxima.data());
        for (std::uint32_t i = 0; i < n; i += block) {
          float max = -kInf;
          for (std::uint32_t k = i; k < std::min(i + block, n); ++k) max = x[k] > max ? x[k] : max;
          if (maxima[i / block] != max) return differs("block_maxima", n, data);
        }
      }
      const float bound = x[n / 2];
      std::vector<std::uint32_t> listed;
      for (std::uint32_t i = 0; i < n; ++i) {
        if (x[i] >= bound) listed.push_back(i + 5);
      }
      const GuardedArray<std::uint32_t> ids(n);
      const std::uint32_t n_listed = kernels.list_at_least(x.data(), n, bound, 5, ids.data());
      if (listed != std::vector<std::uint32_t>(ids.begin(), ids.begin() + n_listed)) {
        return differs("list_at_least", n, data);
      }
      const WeightSum sum = kernels.sum_at_least(x.data(), n, bound);
      const WeightSum want_sum = scalar.sum_at_least(x.data(), n, bound);
      const bool nan = std::isnan(sum.sum) && std::isnan(want_sum.sum);
      if (sum.n_values != listed.size() || !(nan || sum.sum == want_sum.sum)) {
        return differs("sum_at_least", n, data);
      }
      std::vector<float> want(x.begin(), x.end());
      float best = scalar.argmax(want.data(), n) < n ? want[scalar.argmax(want.data(), n)] : 0.0F;
      if (!std::isfinite(best)) best = 0.0F;
      for (std::uint32_t i = 0; i < n; ++i) {
        if (x[i] > best) want[i] = x[i] = best;
      }
      const double total = kernels.exp_weights(x.data(), n, best, 1.5F);
      const double want_total = scalar.exp_weights(want.data(), n, best, 1.5F);
      auto same = testing_support::same_bits(x.data(), want.data(), n);
      if (!same) return same << ", exp_weights of data " << static_cast<int>(data);
      if (total != want_total) return differs("exp_weights' sum", n, data);
      for (const double share : {0.0, 0.3, 0.999, 1.0, 2.0}) {
        const std::uint32_t place = kernels.pick(x.data(), n, share * total);
        if (place != scalar.pick(x.data(), n, share * total)) return differs("pick", n, data);
      }
      if (!x.front_intact() || !ids.front_intact()) return differs("memory in front", n, data);
    }
  }
  return ::testing::AssertionSuccess();
}

TEST_P(SampleTest, AgreesWithTheScalarTier) {
  EXPECT_TRUE(agrees(GetParam()));
}

// exp is within 1 ulp, its argument passes two roundings; -inf and NaN weigh nothing.
TEST_P(SampleTest, WeightsAreExponentials) {
  SeededRng rng;
  std::vector<float> x(1000);
  for (float& v : x) v = 4.0F * rng.get().next_normal();
  x[7] = kNaN;
  x[999] = -kInf;
  const float best = x[GetParam().argmax(x.data(), 1000)];
  const std::vector<float> logits = x;
  const double total = GetParam().exp_weights(x.data(), 1000, best, 2.0F);
  double sum = 0.0;
  for (std::size_t i = 0; i < 1000; ++i) {
    const double d = (static_cast<double>(logits[i]) - static_cast<double>(best)) * 2.0;
    if (i == 7 || i == 999) {
      EXPECT_EQ(x[i], 0.0F);
      continue;
    }
    const double want = std::exp(d);
    EXPECT_NEAR(static_cast<double>(x[i]), want, want * (3.0 - 2.0 * d) * 0x1p-24 + 0x1p-126) << i;
    sum += static_cast<double>(x[i]);
  }
  EXPECT_NEAR(total, sum, sum * 1e-13);
  EXPECT_NEAR(GetParam().sum_at_least(x.data(), 1000, 0.0F).sum, sum, sum * 1e-13);
}

TEST_P(SampleTest, PickGoesByRunningSums) {
  std::vector<float> weights(2000, 0.0F);
  for (const std::uint32_t i : {3U, 700U, 701U, 1999U}) weights[i] = 0.25F;
  const SampleKernels& kernels = GetParam();
  EXPECT_EQ(kernels.pick(weights.data(), 2000, 0.0), 3U);
  EXPECT_EQ(kernels.pick(weights.data(), 2000, 0.2499), 3U);
  EXPECT_EQ(kernels.pick(weights.data(), 2000, 0.25), 700U);
  EXPECT_EQ(kernels.pick(weights.data(), 2000, 0.6), 701U);
  EXPECT_EQ(kernels.pick(weights.data(), 2000, 0.99), 1999U);
  EXPECT_EQ(kernels.pick(weights.data(), 1990, 1.0), 701U);
  EXPECT_EQ(kernels.pick(weights.data(), 3, 1.0), 0U);
}

TEST_P(SampleTest, TopKCandidatesHoldTheKBest) {
  SeededRng rng;
  for (const std::uint32_t n : {1U, 31U, 32U, 33U, 1000U, 32768U, 40001U, 128256U}) {
    for (const testing_support::RowData data : testing_support::kAllRowData) {
      const auto x = make_data(data, n, rng);
      std::vector<std::uint32_t> order;
      for (std::uint32_t i = 0; i < n; ++i) {
        if (x[i] > -kInf) order.push_back(i);
      }
      for (const std::uint32_t k : {0U, 1U, 2U, 40U, 511U, 513U, 200000U}) {
        const GuardedArray<std::uint32_t> ids(n);
        const std::uint32_t n_listed =
            list_top_k_candidates(GetParam(), x.data(), n, k, ids.data());
        EXPECT_TRUE(std::is_sorted(ids.begin(), ids.begin() + n_listed));
        const std::size_t n_best = std::min<std::size_t>(k, order.size());
        std::partial_sort(
            order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n_best), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return x[a] != x[b] ? x[a] > x[b] : a < b; });
        for (std::size_t i = 0; i < n_best; ++i) {
          EXPECT_TRUE(std::binary_search(ids.begin(), ids.begin() + n_listed, order[i]))
              << n << ' ' << k << ' ' << i;
        }
        if (data == testing_support::RowData::kNormal && n == 128256 && k == 40) {
          EXPECT_LT(n_listed, 80U);
        }
      }
    }
  }
}

TEST_P(SampleTest, WeightBoundsEncloseTheWantedShare) {
  SeededRng rng;
  for (const float width : {0.0F, 0.001F, 1.0F, 4.0F, 30.0F}) {
    std::vector<float> weights(20000);
    for (float& v : weights) v = width * rng.get().next_normal();
    weights[5] = -kInf;
    const float best = weights[GetParam().argmax(weights.data(), 20000)];
    const double total = GetParam().exp_weights(weights.data(), 20000, best, 1.0F);
    for (const double share : {1e-9, 0.3, 0.9, 0.999, 1.0}) {
      const WeightBounds bounds =
          find_weight_bounds(GetParam(), weights.data(), 20000, share * total);
      const WeightSum inside = GetParam().sum_at_least(weights.data(), 20000, bounds.at_least);
      const WeightSum above = GetParam().sum_at_least(weights.data(), 20000, bounds.above);
      EXPECT_LT(above.sum, share * total);
      EXPECT_GE(inside.sum, share * total);
      EXPECT_LT(bounds.at_least, bounds.above);
      if (width > 0.0F) {
        EXPECT_LE(inside.n_values - above.n_values, 1000U) << width << ' ' << share;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SampleTest, testing::ValuesIn(sample_kernels()),
                         testing_support::KernelName{});

TEST(SampleCheckerTest, CatchesEveryPlantedFault) {
  SampleKernels last_of_ties = sample_kernels().back();
  last_of_ties.argmax = [](const float* x, std::uint32_t n) noexcept {
    std::uint32_t best = 0;
    for (std::uint32_t i = 1; i < n; ++i) best = x[i] >= x[best] ? i : best;
    return best;
  };
  EXPECT_FALSE(agrees(last_of_ties));
  SampleKernels strictly_above = sample_kernels().back();
  strictly_above.list_at_least = [](const float* x, std::uint32_t n, float bound,
                                    std::uint32_t first_id, std::uint32_t* ids) noexcept {
    std::uint32_t n_listed = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      if (x[i] > bound) ids[n_listed++] = first_id + i;
    }
    return n_listed;
  };
  EXPECT_FALSE(agrees(strictly_above));
  SampleKernels f32_sum = sample_kernels().back();
  f32_sum.sum_at_least = [](const float* x, std::uint32_t n, float bound) noexcept {
    float sum = 0.0F;
    std::uint32_t n_values = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      if (!(x[i] >= bound)) continue;
      sum += x[i];
      ++n_values;
    }
    return WeightSum{static_cast<double>(sum), n_values};
  };
  EXPECT_FALSE(agrees(f32_sum));
  SampleKernels nan_weighs = sample_kernels().back();
  nan_weighs.exp_weights = [](float* x, std::uint32_t n, float best, float factor) noexcept {
    for (std::uint32_t i = 0; i < n; ++i) x[i] = std::isnan(x[i]) ? best : x[i];
    return sample_kernels().back().exp_weights(x, n, best, factor);
  };
  EXPECT_FALSE(agrees(nan_weighs));
  SampleKernels picks_next = sample_kernels().back();
  picks_next.pick = [](const float* weights, std::uint32_t n, double target) noexcept {
    return sample_kernels().back().pick(weights, n, target) / 2;
  };
  EXPECT_FALSE(agrees(picks_next));
}

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
