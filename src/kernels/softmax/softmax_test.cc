// SPDX-License-Identifier: MIT
//
// Holds every softmax kernel to its contract.

#include "kernels/softmax/softmax.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/testing/error_bound.h"
#include "kernels/testing/guard_pages.h"
#include "kernels/testing/isa_coverage.h"
#include "kernels/testing/seeded_rng.h"
#include "kernels/testing/special_values.h"
#include "kernels/testing/tier_agreement.h"

namespace qsf::kernels {
namespace {

using testing_support::gamma_of;
using testing_support::GuardedArray;
using testing_support::kInf;
using testing_support::kNaN;
using testing_support::kSmallestNormal;
using testing_support::SeededRng;

class SoftmaxTest : public testing::TestWithParam<SoftmaxKernels> {
 protected:
  void SetUp() override {
    if (!testing_support::can_run(GetParam())) {
      GTEST_SKIP() << testing_support::lacking(GetParam().isa);
    }
  }
};

// Differences to the maximum, d, pass up to three roundings (difference, factor, product), which
// moves exp by 3 u |d|; exp itself 2 u; the sum inherits both; then its inverse and a product. Past
// |d| = 104 both sides vanish.
void expect_softmax(const float* got, const std::vector<float>& x, double temperature) {
  double max = -std::numeric_limits<double>::infinity();
  for (const float v : x) max = std::max(max, static_cast<double>(v));
  double sum = 0.0;
  double widest = 0.0;
  for (const float v : x) {
    const double d = (v - max) / temperature;
    sum += std::exp(d);
    if (d > -104.0) widest = std::max(widest, -d);
  }
  std::vector<double> want;
  std::vector<double> bounds;
  for (const float v : x) {
    want.push_back(std::exp((v - max) / temperature) / sum);
    bounds.push_back(gamma_of(8.0 + 6.0 * widest) * want.back() + 2.0 * kSmallestNormal);
  }
  EXPECT_TRUE(testing_support::all_within(got, want, bounds)) << x.size() << " / " << temperature;
}

TEST_P(SoftmaxTest, MatchesReference) {
  SeededRng rng;
  for (const std::uint32_t n : {1U, 2U, 3U, 4U, 5U, 63U, 64U, 65U, 172U, 5000U}) {
    for (const float width : {0.0F, 1.0F, 30.0F, 1000.0F}) {
      std::vector<float> x(n);
      for (float& v : x) v = width * rng.get().next_normal();
      const GuardedArray<float> y(n);
      std::memcpy(y.data(), x.data(), n * sizeof(float));
      GetParam().softmax_in_place(y.data(), n);
      expect_softmax(y.data(), x, 1.0);
      for (const float temperature : {0.1F, 0.7F, 3.0F}) {
        std::memcpy(y.data(), x.data(), n * sizeof(float));
        GetParam().softmax_temperature(y.data(), n, temperature);
        expect_softmax(y.data(), x, temperature);
      }
      EXPECT_TRUE(y.front_intact());
    }
  }
}

TEST_P(SoftmaxTest, MaskedValuesWeighNothing) {
  float some[] = {-kInf, 1.0F, -kInf, 1.0F, -kInf};
  GetParam().softmax_in_place(some, 5);
  EXPECT_EQ(some[0], 0.0F);
  EXPECT_EQ(some[1], 0.5F);
  EXPECT_EQ(some[4], 0.0F);
  float none[] = {-kInf, -kInf, -kInf, -kInf, -kInf, -kInf};
  GetParam().softmax_in_place(none, 6);
  for (const float v : none) EXPECT_EQ(v, 0.0F);
  GetParam().softmax_in_place(nullptr, 0);
  float nan[] = {1.0F, kNaN};
  GetParam().softmax_in_place(nan, 2);
  EXPECT_TRUE(std::isnan(nan[0]));
}

TEST_P(SoftmaxTest, MaxValueIgnoresNaN) {
  EXPECT_EQ(GetParam().max_value(nullptr, 0), -kInf);
  SeededRng rng;
  for (std::uint32_t n = 1; n < 40; ++n) {
    const GuardedArray<float> x(n);
    for (float& v : x) v = -1.0F - rng.get().next_f32();
    for (std::uint32_t at = 0; at < n; ++at) {
      const float before = x[at];
      x[at] = -0.5F;
      EXPECT_EQ(GetParam().max_value(x.data(), n), -0.5F);
      x[at] = kNaN;
      EXPECT_EQ(GetParam().max_value(x.data(), n) <= -1.0F, true);
      x[at] = before;
    }
  }
}

// exp and the correction factors are each off by u |d| + 2 u; log turns relative into absolute.
TEST_P(SoftmaxTest, LogSumExpInBlocksMatchesReference) {
  SeededRng rng;
  for (const float width : {1.0F, 20.0F}) {
    std::vector<float> x(5000);
    double max = -std::numeric_limits<double>::infinity();
    for (float& v : x) {
      v = width * rng.get().next_normal();
      max = std::max(max, static_cast<double>(v));
    }
    double sum = 0.0;
    for (const float v : x) sum += std::exp(v - max);
    const double want = max + std::log(sum);
    for (const std::uint32_t block : {1U, 7U, 1024U, 5000U}) {
      LogSumExpState state;
      LogSumExpState low;
      LogSumExpState high;
      std::uint32_t n_blocks = 0;
      for (std::uint32_t first = 0; first < 5000; first += block, ++n_blocks) {
        const std::uint32_t n = std::min(block, 5000 - first);
        GetParam().log_sum_exp_add(&state, &x[first], n);
        GetParam().log_sum_exp_add(first < 2500 ? &low : &high, &x[first], n);
      }
      // A block that does not raise the maximum corrects by exp(0) = 1, exactly; at most a few
      // dozen of random blocks raise it.
      const double bound = gamma_of(4.0 + 8.0 * width * 8.0 + 40.0 * 3.0);
      EXPECT_NEAR(log_sum_exp_value(state), want, bound) << block;
      log_sum_exp_merge(&low, high);
      EXPECT_NEAR(log_sum_exp_value(low), want, bound) << block;
    }
  }
}

TEST_P(SoftmaxTest, LogSumExpOfNothing) {
  LogSumExpState state;
  EXPECT_EQ(log_sum_exp_value(state), -std::numeric_limits<double>::infinity());
  const float masked[] = {-kInf, -kInf};
  GetParam().log_sum_exp_add(&state, masked, 2);
  EXPECT_EQ(log_sum_exp_value(state), -std::numeric_limits<double>::infinity());
  const float one[] = {3.0F};
  GetParam().log_sum_exp_add(&state, one, 1);
  EXPECT_EQ(log_sum_exp_value(state), 3.0);
  LogSumExpState empty;
  log_sum_exp_merge(&state, empty);
  EXPECT_EQ(log_sum_exp_value(state), 3.0);
  log_sum_exp_merge(&empty, state);
  EXPECT_EQ(log_sum_exp_value(empty), 3.0);
}

// Whether everything has the scalar tier's bits on all data and sizes.
::testing::AssertionResult agrees(const SoftmaxKernels& kernels) {
  const SoftmaxKernels& scalar = softmax_kernels().back();
  SeededRng rng;
  for (const std::uint32_t n : testing_support::sizes_around_vectors()) {
    for (const testing_support::RowData data : testing_support::kAllRowData) {
      const auto got = make_data(data, n, rng);
      std::vector<float> want(got.begin(), got.end());
      const float max = kernels.max_value(got.data(), n);
      const float want_max = scalar.max_value(want.data(), n);
      auto same = testing_support::same_bits(&max, &want_max, 1);
      if (!same) return same << ", max_value of data " << static_cast<int>(data);
      LogSumExpState state{.max = 0.5F, .sum = 2.0};
      LogSumExpState want_state = state;
      kernels.log_sum_exp_add(&state, got.data(), n);
      scalar.log_sum_exp_add(&want_state, want.data(), n);
      const bool nan = std::isnan(state.sum) && std::isnan(want_state.sum);
      if (state.max != want_state.max || !(nan || state.sum == want_state.sum)) {
        return ::testing::AssertionFailure() << "log_sum_exp_add of data " << static_cast<int>(data)
                                             << ": " << state.sum << " and " << want_state.sum;
      }
      kernels.softmax_temperature(got.data(), n, 0.7F);
      scalar.softmax_temperature(want.data(), n, 0.7F);
      same = testing_support::same_bits(got.data(), want.data(), n);
      if (!same) return same << ", softmax_temperature of data " << static_cast<int>(data);
      kernels.softmax_in_place(got.data(), n);
      scalar.softmax_in_place(want.data(), n);
      same = testing_support::same_bits(got.data(), want.data(), n);
      if (!same) return same << ", softmax_in_place of data " << static_cast<int>(data);
      if (!got.front_intact()) return ::testing::AssertionFailure() << "wrote in front";
    }
  }
  return ::testing::AssertionSuccess();
}

TEST_P(SoftmaxTest, GivesTheBitsOfTheScalarTier) {
  EXPECT_TRUE(agrees(GetParam()));
}

TEST(SoftmaxCheckerTest, CatchesEveryPlantedFault) {
  SoftmaxKernels tail_missed = softmax_kernels().back();
  tail_missed.max_value = [](const float* x, std::uint32_t n) noexcept {
    return softmax_kernels().back().max_value(x, n - n % 16);
  };
  EXPECT_FALSE(agrees(tail_missed));
  SoftmaxKernels zeros_counted = softmax_kernels().back();
  zeros_counted.log_sum_exp_add = [](LogSumExpState* state, const float* x,
                                     std::uint32_t n) noexcept {
    softmax_kernels().back().log_sum_exp_add(state, x, n);
    state->sum += n % 16 == 0 ? 0.0 : 1.0;  // the empty lanes of a last vector
  };
  EXPECT_FALSE(agrees(zeros_counted));
  SoftmaxKernels f32_sum = softmax_kernels().back();
  f32_sum.softmax_in_place = [](float* x, std::uint32_t n) noexcept {
    const float max = softmax_kernels().back().max_value(x, n);
    float sum = 0.0F;
    for (std::uint32_t i = 0; i < n; ++i) sum += x[i] = std::exp(x[i] - max);
    for (std::uint32_t i = 0; i < n; ++i) x[i] /= sum;
  };
  EXPECT_FALSE(agrees(f32_sum));
}

INSTANTIATE_TEST_SUITE_P(All, SoftmaxTest, testing::ValuesIn(softmax_kernels()),
                         testing_support::KernelName{});

}  // namespace
}  // namespace qsf::kernels
