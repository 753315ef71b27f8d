// SPDX-License-Identifier: MIT
//
// Tests of the frequency and presence penalties and of DRY, by the logits that a greedy draw
// leaves.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "engine/sampler.h"
#include "engine/testing/sampler_bench.h"

namespace qsf {
namespace {

using testing_support::draw_once;
using testing_support::greedy;
using testing_support::kInf;
using testing_support::kNan;
using testing_support::penalised;
using testing_support::plain;

TEST(SamplerPenaltyTest, FrequencyCountsAndPresenceDoesNot) {
  SamplingOptions options = greedy();
  const std::vector<float> logits = {4.0F, 4.0F, 4.0F, -4.0F};
  const std::vector<TokenId> history = {3, 0, 1, 0, 9};  // 9 is beyond the vocabulary
  options.frequency_penalty = 0.5F;
  EXPECT_EQ(penalised(options, logits, history), (std::vector<float>{3.0F, 3.5F, 4.0F, -4.5F}));
  options.presence_penalty = 1.0F;
  EXPECT_EQ(penalised(options, logits, history), (std::vector<float>{2.0F, 2.5F, 4.0F, -5.5F}));
  options.repeat_window = 2;
  EXPECT_EQ(penalised(options, logits, history), (std::vector<float>{2.5F, 4.0F, 4.0F, -4.0F}));
  options.frequency_penalty = 0.0F;
  options.repeat_window = 64;
  EXPECT_EQ(penalised(options, logits, history), (std::vector<float>{3.0F, 3.0F, 4.0F, -5.0F}));
  options.presence_penalty = -1.0F;
  EXPECT_EQ(penalised(options, logits, history), (std::vector<float>{5.0F, 5.0F, 4.0F, -3.0F}));
  EXPECT_EQ(penalised(options, logits, {}), logits);
  options.repeat_window = 0;
  EXPECT_EQ(penalised(options, logits, history), logits);
}

TEST(SamplerPenaltyTest, FrequencyAndPresenceComeAfterRepetition) {
  SamplingOptions options = greedy();
  options.repeat_penalty = 2.0F;
  options.frequency_penalty = 0.5F;
  options.presence_penalty = 0.25F;
  EXPECT_EQ(penalised(options, {4.0F, -1.0F}, {0, 1, 0}), (std::vector<float>{0.75F, -2.75F}));
}

SamplingOptions dry() {
  SamplingOptions options = greedy();
  options.dry_multiplier = 0.5F;
  options.dry_base = 3.0F;
  return options;
}

// The history ends in 1 2 3, as it does before 4; in 2 3 before 5; in 3 before 6.
TEST(SamplerPenaltyTest, DryPenalisesTheContinuationOfWhatRepeats) {
  SamplingOptions options = dry();
  const std::vector<float> zeros(9, 0.0F);
  const std::vector<TokenId> history = {1, 2, 3, 4, 8, 2, 3, 5, 7, 3, 6, 1, 2, 3};
  EXPECT_EQ(penalised(options, zeros, history),
            (std::vector<float>{0, 0, 0, 0, -1.5F, -0.5F, 0, 0, 0}));
  options.dry_allowed_length = 1;
  EXPECT_EQ(penalised(options, zeros, history),
            (std::vector<float>{0, 0, 0, 0, -4.5F, -1.5F, -0.5F, 0, 0}));
  options.dry_allowed_length = 3;
  EXPECT_EQ(penalised(options, zeros, history),
            (std::vector<float>{0, 0, 0, 0, -0.5F, 0, 0, 0, 0}));
  options.dry_allowed_length = 4;
  EXPECT_EQ(penalised(options, zeros, history), zeros);
  options.dry_allowed_length = 2;
  options.dry_base = 1.0F;
  EXPECT_EQ(penalised(options, zeros, history),
            (std::vector<float>{0, 0, 0, 0, -0.5F, -0.5F, 0, 0, 0}));
  options.dry_multiplier = 0.0F;
  EXPECT_EQ(penalised(options, zeros, history), zeros);
}

TEST(SamplerPenaltyTest, DryLooksAtItsWindowAlone) {
  SamplingOptions options = dry();
  const std::vector<float> zeros(9, 0.0F);
  const std::vector<TokenId> history = {1, 2, 3, 4, 8, 1, 2, 3};
  const auto penalty = [&](std::uint32_t window) {
    options.dry_window = window;
    return penalised(options, zeros, history)[4];
  };
  EXPECT_EQ(penalty(8), -1.5F);
  EXPECT_EQ(penalty(7), -0.5F) << "one token of the match is outside";
  EXPECT_EQ(penalty(6), 0.0F);
  EXPECT_EQ(penalty(0), 0.0F);
  EXPECT_EQ(penalty(1000), -1.5F);
}

TEST(SamplerPenaltyTest, DryTakesTheLongestMatchAndMatchesMayOverlap) {
  const std::vector<float> zeros(4, 0.0F);
  EXPECT_EQ(penalised(dry(), zeros, {1, 2, 3, 0, 2, 3, 0, 1, 2}),
            (std::vector<float>{0, 0, 0, -0.5F}));
  // 0 comes after 3 1 2 and after 1 2 alone; then after 1 2 0 3 1 2.
  EXPECT_EQ(penalised(dry(), zeros, {3, 1, 2, 0, 1, 2, 0, 3, 1, 2})[0], -1.5F);
  EXPECT_EQ(penalised(dry(), zeros, {0, 1, 2, 0, 3, 1, 2, 0, 3, 1, 2})[0], -40.5F);
  // Five equal tokens: four of them end one earlier.
  EXPECT_EQ(penalised(dry(), zeros, {1, 1, 1, 1, 1}), (std::vector<float>{0, -4.5F, 0, 0}));
}

TEST(SamplerPenaltyTest, DryBreakersStopAMatchAndLoseNothing) {
  SamplingOptions options = dry();
  const std::vector<float> zeros(9, 0.0F);
  const std::vector<TokenId> history = {1, 2, 3, 4, 8, 1, 2, 3};
  const auto penalty = [&](const std::vector<TokenId>& breakers) {
    options.dry_breakers = breakers;
    return penalised(options, zeros, history)[4];
  };
  EXPECT_EQ(penalty({}), -1.5F);
  EXPECT_EQ(penalty({7}), -1.5F);
  EXPECT_EQ(penalty({1}), -0.5F) << "2 3 is left";
  EXPECT_EQ(penalty({7, 2}), 0.0F) << "3 is left, which is too short";
  EXPECT_EQ(penalty({3}), 0.0F);
  EXPECT_EQ(penalty({4}), 0.0F) << "the continuation is a breaker";
  EXPECT_EQ(penalty({8}), -1.5F);
}

TEST(SamplerPenaltyTest, DryBreaksAtTokensBeyondTheVocabulary) {
  const std::vector<float> zeros(4, 0.0F);
  EXPECT_EQ(penalised(dry(), zeros, {9, 1, 2, 0, 9, 1, 2}), (std::vector<float>{-0.5F, 0, 0, 0}));
  EXPECT_EQ(penalised(dry(), zeros, {1, 2, 0xFFFFFFFFU, 1, 2}), zeros);
  EXPECT_EQ(penalised(dry(), zeros, {9, 9, 9, 9}), zeros);
  EXPECT_EQ(penalised(dry(), zeros, {}), zeros);
  EXPECT_EQ(penalised(dry(), zeros, {1}), zeros);
}

TEST(SamplerPenaltyTest, DryComesAfterThePenaltiesAndBeforeBias) {
  SamplingOptions options = dry();
  options.repeat_penalty = 2.0F;
  options.presence_penalty = 1.0F;
  options.logit_bias = {{0, 0.25F}};
  EXPECT_EQ(penalised(options, {4.0F, 0.0F, 0.0F}, {1, 2, 0, 1, 2})[0],
            4.0F / 2 - 1 - 0.5F + 0.25F);
}

TEST(SamplerPenaltyTest, PenaltiesAndDryTakeOddLogits) {
  for (SamplingOptions options : {greedy(), plain()}) {
    options.frequency_penalty = 2.0F;
    options.presence_penalty = -1.0F;
    options.dry_multiplier = 1.0F;
    options.dry_allowed_length = 1;
    for (const float odd : {kNan, -kInf}) {
      EXPECT_EQ(draw_once(options, {odd, odd, 1.0F}, {0, 1, 2, 0, 1, 2, 0, 1}), 2U);
      EXPECT_EQ(draw_once(options, {odd, odd, odd}, {0, 1, 2, 0, 1, 2, 0, 1}), 0U);
    }
    EXPECT_EQ(draw_once(options, {1.0F, 1.0F, kInf}, {0, 1, 2, 0, 1, 2, 0, 1}), 2U);
  }
}

TEST(SamplerPenaltyTest, DryOfALongMatchIsFinite) {
  SamplingOptions options = dry();
  const std::vector<TokenId> history(5000, 1);
  const float logit = penalised(options, {0.0F, 5.0F}, history)[1];
  EXPECT_EQ(logit, -std::numeric_limits<float>::max());
  EXPECT_EQ(draw_once(options, {-kInf, 5.0F}, history), 1U) << "there is no other token";
  options.dry_base = 1.01F;
  options.dry_multiplier = 1.0F;
  EXPECT_NEAR(penalised(options, {0.0F, 0.0F}, history)[1],
              -std::pow(static_cast<double>(1.01F), static_cast<double>(kDryMaxMatch) - 2.0), 0.1);
}

// Against the definition, token by token, over histories of three symbols.
TEST(SamplerPenaltyTest, DryIsWhatItsDefinitionSays) {
  Rng rng(3);
  for (int round = 0; round < 300; ++round) {
    SamplingOptions options = dry();
    options.dry_base = 2.0F;
    options.dry_allowed_length = 1 + rng.below(3);
    if (round % 3 == 0) options.dry_breakers = {2};
    std::vector<TokenId> history(rng.below(60));
    for (TokenId& token : history) token = rng.below(round % 2 == 0 ? 2 : 3);
    std::vector<float> expected(3, 0.0F);
    for (TokenId token = 0; token < 3; ++token) {
      std::size_t longest = 0;
      for (std::size_t at = 1; at < history.size(); ++at) {  // where the continuation was
        std::size_t length = 0;
        while (length < at && history[at - 1 - length] == history[history.size() - 1 - length] &&
               !(round % 3 == 0 && history[at - 1 - length] == 2)) {
          ++length;
        }
        if (history[at] == token) longest = std::max(longest, length);
      }
      if (longest < options.dry_allowed_length || (round % 3 == 0 && token == 2)) continue;
      const auto exponent =
          static_cast<int>(longest) - static_cast<int>(options.dry_allowed_length);
      expected[token] = -std::ldexp(0.5F, exponent);
    }
    EXPECT_EQ(penalised(options, {0.0F, 0.0F, 0.0F}, history), expected) << round;
  }
}

}  // namespace
}  // namespace qsf
