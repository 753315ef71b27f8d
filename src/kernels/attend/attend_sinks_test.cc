// SPDX-License-Identifier: MIT
//
// Scores without a value: their part of a softmax, and of nothing.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attend/attend.h"

namespace qsf::kernels {
namespace {

constexpr std::size_t kAccStride = 16;
constexpr float kNothing = -std::numeric_limits<float>::infinity();

TEST(AttendSinksTest, TakeTheirPartOfTheSoftmax) {
  // Two heads of two rows, whose softmax so far has the maximum and the sum given.
  const std::vector<AttendState> before = {{2.0F, 1.5F}, {-3.0F, 4.0F}, {0.5F, 1.0F}, {9.0F, 2.0F}};
  const std::vector<float> sinks = {5.0F, -1.0F};
  std::vector<AttendState> state = before;
  std::vector<float> acc(4 * kAccStride);
  for (std::size_t i = 0; i < acc.size(); ++i) acc[i] = static_cast<float>(i) - 20.0F;
  const std::vector<float> acc_before = acc;
  attend_add_sinks(state.data(), acc.data(), kAccStride, 4, sinks.data(), 2);
  for (std::size_t i = 0; i < 4; ++i) {
    const double sink = sinks[i % 2];
    EXPECT_EQ(state[i].max, std::max(before[i].max, sinks[i % 2]));
    const double sum = before[i].sum + std::exp(sink - before[i].max);
    for (std::size_t d = 0; d < kAccStride; ++d) {
      const double want = acc_before[i * kAccStride + d] / sum;
      EXPECT_NEAR(acc[i * kAccStride + d] / state[i].sum, want, 1e-6 * std::fabs(want));
    }
  }
}

TEST(AttendSinksTest, OfAQueryThatSawNothingGiveZero) {
  AttendState state[2];
  std::vector<float> acc(2 * kAccStride);
  attend_begin(state, acc.data(), kAccStride, 2);
  const std::vector<float> sinks = {-200.0F, kNothing};
  attend_add_sinks(state, acc.data(), kAccStride, 2, sinks.data(), 2);
  EXPECT_EQ(state[0].max, -200.0F);
  EXPECT_EQ(state[0].sum, 1.0F);
  EXPECT_EQ(state[1].max, kNothing);
  EXPECT_EQ(state[1].sum, 0.0F);
  std::vector<float> out(kAccStride, 1.0F);
  attend_finish({.state = state,
                 .acc = acc.data(),
                 .acc_stride = kAccStride,
                 .out = out.data(),
                 .out_stride = kAccStride,
                 .n_queries = 1,
                 .head_dim = kAccStride});
  for (const float value : out) EXPECT_EQ(value, 0.0F);
}

}  // namespace
}  // namespace qsf::kernels
