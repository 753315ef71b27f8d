// SPDX-License-Identifier: MIT
//
// Tests of log probabilities against the softmax in f64.

#include "engine/log_probs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/rng.h"

namespace qsf {
namespace {

TEST(LogProbsTest, AreThoseOfTheSoftmax) {
  Rng rng(5);
  std::vector<float> logits(1000);
  for (float& logit : logits) logit = static_cast<float>(rng.next_f64() * 20.0 - 5.0);
  logits[7] = -std::numeric_limits<float>::infinity();
  logits[300] = logits[600] = 17.0F;
  double total = 0.0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));

  std::vector<float> kept(logits.size() + 1, 9.0F);
  LogProbs log_probs(20);
  log_probs.take(logits, kept);
  for (TokenId id = 0; id < logits.size(); ++id) {
    if (id == 7) continue;
    EXPECT_NEAR(log_probs.of(id), logits[id] - std::log(total), 1e-5) << id;
  }
  EXPECT_EQ(log_probs.of(7), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(kept.back(), 9.0F);

  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  ASSERT_EQ(log_probs.top().size(), 20U);
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(log_probs.top()[i].token, order[i]);
    EXPECT_EQ(log_probs.top()[i].log_prob, log_probs.of(order[i]));
  }
}

TEST(LogProbsTest, ListsFewerWhereFewerAreFinite) {
  constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {kMinusInfinity, 1.0F, kMinusInfinity, 2.0F};
  std::vector<float> kept(4);
  LogProbs log_probs(3);
  log_probs.take(logits, kept);
  ASSERT_EQ(log_probs.top().size(), 2U);
  EXPECT_EQ(log_probs.top()[0].token, 3U);
  EXPECT_EQ(log_probs.top()[1].token, 1U);
  LogProbs none(0);
  none.take(logits, kept);
  EXPECT_TRUE(none.top().empty());
  EXPECT_NEAR(none.of(3), -std::log1p(std::exp(-1.0)), 1e-6);
}

}  // namespace
}  // namespace qsf
