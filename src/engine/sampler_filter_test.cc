// SPDX-License-Identifier: MIT
//
// Tests of typical-p and XTC, by the tokens that are drawn.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "base/rng.h"
#include "engine/sampler.h"
#include "engine/testing/sampler_bench.h"

namespace qsf {
namespace {

using testing_support::drawn;
using testing_support::greedy;
using testing_support::kInf;
using testing_support::kNan;
using testing_support::plain;
using testing_support::SamplerBench;

// Probabilities 1/8, 1/2, 1/8, 1/4: an entropy of 1.75 bits, from which their information is 1.25,
// 0.75, 1.25 and 0.25 away.
TEST(SamplerFilterTest, TypicalKeepsWhatIsNearTheEntropy) {
  const float half = std::log(2.0F);
  const std::vector<float> logits = {0.0F, 2 * half, 0.0F, half};
  SamplingOptions options = plain();
  for (const std::uint32_t top_k : {0U, 4U}) {
    options.top_k = top_k;
    options.typical_p = 1e-6F;
    EXPECT_EQ(drawn(options, logits), std::set<TokenId>{3});
    options.typical_p = 0.3F;
    EXPECT_EQ(drawn(options, logits), (std::set<TokenId>{1, 3}));
    options.typical_p = 0.8F;
    EXPECT_EQ(drawn(options, logits), (std::set<TokenId>{0, 1, 3}));
    options.typical_p = 0.9F;
    EXPECT_EQ(drawn(options, logits).size(), 4U);
  }
}

// Against the definition, with logarithms and a sort.
TEST(SamplerFilterTest, TypicalIsWhatItsDefinitionSays) {
  Rng rng(8);
  for (int round = 0; round < 60; ++round) {
    std::vector<float> logits(8);
    for (float& logit : logits) logit = rng.next_normal();
    SamplingOptions options = plain();
    options.top_k = round % 2 == 0 ? 0 : 8;
    options.typical_p = 0.1F + 0.8F * rng.next_f32();
    std::vector<double> p(8);
    double total = 0.0;
    double entropy = 0.0;
    for (std::size_t i = 0; i < 8; ++i) p[i] = std::exp(static_cast<double>(logits[i]));
    for (const double value : p) total += value;
    for (double& value : p) value /= total;
    for (const double value : p) entropy -= value * std::log(value);
    std::vector<TokenId> order = {0, 1, 2, 3, 4, 5, 6, 7};
    const auto distance = [&](TokenId token) { return std::abs(-std::log(p[token]) - entropy); };
    std::sort(order.begin(), order.end(),
              [&](TokenId a, TokenId b) { return distance(a) < distance(b); });
    std::set<TokenId> kept;
    double held = 0.0;
    for (std::size_t i = 0; i < 8 && held < static_cast<double>(options.typical_p); ++i) {
      kept.insert(order[i]);
      held += p[order[i]];
    }
    EXPECT_EQ(drawn(options, logits), kept) << round;
  }
}

// Probabilities 1/4 twice and 1/16 eight times: 3 bits, and all are one bit away.
TEST(SamplerFilterTest, TypicalPrefersTheLikelyAndThenTheSmallerId) {
  const float half = std::log(2.0F);
  std::vector<float> logits(10, 0.0F);
  logits[4] = logits[7] = 2 * half;
  SamplingOptions options = plain();
  options.typical_p = 0.01F;
  EXPECT_EQ(drawn(options, logits), std::set<TokenId>{4});
  options.typical_p = 0.35F;
  EXPECT_EQ(drawn(options, logits), (std::set<TokenId>{4, 7}));
  EXPECT_EQ(drawn(options, std::vector<float>(10, 1.0F)), (std::set<TokenId>{0, 1, 2, 3}));
}

TEST(SamplerFilterTest, TypicalRenormalisesAndTopPFollows) {
  const float half = std::log(2.0F);
  // 1/4 and 1/2 are kept: 1/3 and 2/3 from here on.
  const std::vector<float> logits = {0.0F, 2 * half, 0.0F, half};
  SamplingOptions options = plain();
  options.typical_p = 0.7F;
  options.top_p = 0.66F;
  EXPECT_EQ(drawn(options, logits), std::set<TokenId>{1});
  options.top_p = 0.68F;
  EXPECT_EQ(drawn(options, logits), (std::set<TokenId>{1, 3}));
}

// Probabilities 1/2, 1/16 four times, 1/32 eight times: 2.75 bits, so that the best is not kept.
TEST(SamplerFilterTest, MinPComparesWithTheBestOfTheTypical) {
  const float half = std::log(2.0F);
  std::vector<float> logits(13, 0.0F);
  logits[2] = 4 * half;
  for (const TokenId token : {3U, 5U, 7U, 9U}) logits[token] = half;
  SamplingOptions options = plain();
  options.typical_p = 0.2F;
  EXPECT_EQ(drawn(options, logits), (std::set<TokenId>{3, 5, 7, 9}));
  options.min_p = 0.5F;
  EXPECT_EQ(drawn(options, logits), (std::set<TokenId>{3, 5, 7, 9}));
}

TEST(SamplerFilterTest, TypicalComesAfterTemperatureAndTopK) {
  const float half = std::log(2.0F);
  const std::vector<float> logits = {0.0F, 2 * half, 0.0F, half};
  SamplingOptions options = plain();
  options.typical_p = 0.01F;
  // Squared: 16, 4, 1, 1 of 22. Entropy 1.17 bits, against 0.46, 2.46 and 4.46.
  options.temperature = 0.5F;
  EXPECT_EQ(drawn(options, logits), std::set<TokenId>{1});
  options.temperature = 1.0F;
  EXPECT_EQ(drawn(options, logits), std::set<TokenId>{3});
  options.top_k = 2;  // 2/3 and 1/3: 0.92 bits, against 0.58 and 1.58
  EXPECT_EQ(drawn(options, logits), std::set<TokenId>{1});
}

TEST(SamplerFilterTest, TypicalAndXtcTakeOddLogits) {
  for (SamplingOptions options : {plain(), SamplingOptions{}}) {
    options.typical_p = 0.5F;
    options.xtc_probability = 1.0F;
    options.xtc_threshold = 0.0F;
    for (const float odd : {kNan, -kInf}) {
      EXPECT_EQ(drawn(options, {odd, odd, odd}, 20), std::set<TokenId>{0});
      EXPECT_EQ(drawn(options, {odd, -7.0F, odd}, 20), std::set<TokenId>{1});
      EXPECT_EQ(drawn(options, {odd, 1.0F, kInf}, 20), std::set<TokenId>{2});
    }
    const float most = std::numeric_limits<float>::max();
    EXPECT_EQ(drawn(options, {-most, most, -kInf}, 20), std::set<TokenId>{1});
    options.temperature = 1e-30F;
    EXPECT_EQ(drawn(options, {1.0F, 2.0F, -2.0F}, 20), std::set<TokenId>{1});
  }
}

// Probabilities 1/8, 1/2, 1/8, 1/4.
TEST(SamplerFilterTest, XtcKeepsTheLeastLikelyOfThoseAboveTheThreshold) {
  const float half = std::log(2.0F);
  const std::vector<float> logits = {0.0F, 2 * half, 0.0F, half};
  SamplingOptions options = plain();
  options.xtc_probability = 1.0F;
  for (const std::uint32_t top_k : {0U, 4U}) {
    options.top_k = top_k;
    options.xtc_threshold = 0.6F;
    EXPECT_EQ(drawn(options, logits).size(), 4U);
    options.xtc_threshold = 0.4F;
    EXPECT_EQ(drawn(options, logits).size(), 4U) << "one token is above, and it stays";
    options.xtc_threshold = 0.2F;
    EXPECT_EQ(drawn(options, logits), (std::set<TokenId>{0, 2, 3}));
    options.xtc_threshold = 0.1F;
    EXPECT_EQ(drawn(options, logits), std::set<TokenId>{2}) << "of equals the larger id";
    options.xtc_threshold = 0.0F;
    EXPECT_EQ(drawn(options, logits), std::set<TokenId>{2});
  }
}

TEST(SamplerFilterTest, XtcKeepsNoTokenOfProbabilityZero) {
  SamplingOptions options = plain();
  options.xtc_probability = 1.0F;
  options.xtc_threshold = 0.0F;
  for (const std::uint32_t top_k : {0U, 2U}) {
    options.top_k = top_k;
    EXPECT_EQ(drawn(options, {0.0F, -500.0F, -600.0F}), std::set<TokenId>{0});
  }
}

TEST(SamplerFilterTest, XtcSeesWhatTheFiltersKept) {
  const float half = std::log(2.0F);
  const std::vector<float> logits = {0.0F, 2 * half, 0.0F, half};
  SamplingOptions options = plain();
  options.xtc_probability = 1.0F;
  options.xtc_threshold = 0.3F;
  EXPECT_EQ(drawn(options, logits).size(), 4U);
  options.min_p = 0.4F;  // 2/3 and 1/3 are left
  EXPECT_EQ(drawn(options, logits), std::set<TokenId>{3});
  options.min_p = 0.0F;
  options.top_k = 2;
  EXPECT_EQ(drawn(options, logits), std::set<TokenId>{3});
  options.temperature = 0.0F;
  EXPECT_EQ(drawn(options, logits), std::set<TokenId>{1}) << "greedy is greedy";
}

TEST(SamplerFilterTest, XtcDropsWithItsProbability) {
  const std::vector<float> logits = {std::log(0.9F), std::log(0.1F)};
  SamplingOptions options = plain();
  options.xtc_probability = 0.25F;
  options.xtc_threshold = 0.05F;
  constexpr int kDraws = 20000;
  const auto counts = SamplerBench(options, logits.size()).frequencies(logits, kDraws);
  EXPECT_NEAR(counts.at(0) / static_cast<double>(kDraws), 0.75 * 0.9, 0.015);
}

// With XTC the first, third, fifth number draw the tokens that all numbers draw without it.
TEST(SamplerFilterTest, XtcTakesOneMoreNumberADraw) {
  const std::vector<float> logits(1000, 0.0F);
  SamplingOptions options = plain();
  options.seed = 9;
  SamplerBench without(options, logits.size());
  options.xtc_probability = 0.5F;
  options.xtc_threshold = 1.0F;
  SamplerBench with(options, logits.size());
  const std::vector<float> nothing(logits.size(), kNan);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(with.draw(logits), without.draw(logits)) << i;
    without.draw(logits);
    with.draw(nothing);
    without.draw(nothing);
    without.draw(nothing);
  }
}

}  // namespace
}  // namespace qsf
