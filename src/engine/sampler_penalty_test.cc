// SPDX-License-Identifier: MIT
//
// Tests of the frequency and presence penalties, by the logits that a greedy draw
// leaves.

#include <gtest/gtest.h>

#include <vector>

#include "engine/sampler.h"
#include "engine/testing/sampler_bench.h"

namespace qsf {
namespace {

using testing_support::greedy;
using testing_support::penalised;

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

}  // namespace
}  // namespace qsf
