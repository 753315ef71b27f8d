// SPDX-License-Identifier: MIT

#include "tools/serve/schedule/pass_rates.h"

#include <gtest/gtest.h>

#include <limits>

namespace qsf_tools {
namespace {

// Passes of `base` seconds and `row` seconds a prompt row.
void learn(PassRates& rates, double base, double row) {
  for (int i = 0; i < 60; ++i) {
    rates.add(0, 4, base);
    rates.add(32, 4, base + 32 * row);
  }
}

TEST(PassRatesTest, PromptsAloneHaveNoLimit) {
  PassRates rates(/*streamed=*/false, /*max_token_gap_seconds=*/0.0);
  EXPECT_EQ(rates.max_prompt_rows(0), 0);
  learn(rates, 0.02, 0.004);
  EXPECT_EQ(rates.max_prompt_rows(0), 0);
}

TEST(PassRatesTest, BeforeAnythingIsKnownAFewRowsGetOn) {
  const PassRates rates(false, 0.0);
  EXPECT_GT(rates.max_prompt_rows(1), 0);
  EXPECT_LE(rates.max_prompt_rows(1), 32);
}

TEST(PassRatesTest, ResidentWeightsKeepToSeconds) {
  PassRates rates(false, 0.0);
  learn(rates, 0.02, 0.004);
  EXPECT_NEAR(rates.max_prompt_rows(4), (0.2 - 0.02) / 0.004, 2);
}

TEST(PassRatesTest, StreamedWeightsKeepToPasses) {
  PassRates rates(true, 0.0);
  learn(rates, 1.4, 0.007);
  EXPECT_NEAR(rates.max_prompt_rows(4), 0.25 * 1.4 / 0.007, 3);
}

TEST(PassRatesTest, ABoundThatWasNamedHolds) {
  PassRates rates(true, 2.0);
  learn(rates, 1.0, 0.01);
  EXPECT_NEAR(rates.max_prompt_rows(1), 100, 4);
}

TEST(PassRatesTest, ABoundThatCannotHoldLeavesPromptsAFewRows) {
  PassRates rates(false, 0.01);
  learn(rates, 0.02, 0.004);
  EXPECT_GT(rates.max_prompt_rows(4), 0);
  EXPECT_LE(rates.max_prompt_rows(4), 8);
}

TEST(PassRatesTest, IsLearntWhereEveryPassHasPromptRows) {
  PassRates rates(false, 0.0);
  rates.add(512, 0, 512 * 0.004);  // newcomers alone, then others beside the first ones
  for (int i = 0; i < 20; ++i) {
    const int rows = rates.max_prompt_rows(2);
    rates.add(rows, 2, 0.02 + rows * 0.004);
  }
  EXPECT_NEAR(rates.max_prompt_rows(2), (0.2 - 0.02) / 0.004, 3);
}

TEST(PassRatesTest, FollowsAMachineThatBecomesSlower) {
  PassRates rates(false, 0.0);
  learn(rates, 0.02, 0.001);
  const int before = rates.max_prompt_rows(4);
  learn(rates, 0.05, 0.005);
  EXPECT_LT(rates.max_prompt_rows(4), before / 3);
}

TEST(PassRatesTest, NonsenseTeachesNothing) {
  PassRates rates(false, 0.0);
  learn(rates, 0.02, 0.004);
  const int before = rates.max_prompt_rows(4);
  rates.add(32, 4, 0.0);
  rates.add(32, 4, -1.0);
  rates.add(-1, 4, 1.0);
  rates.add(32, 4, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(rates.max_prompt_rows(4), before);
}

}  // namespace
}  // namespace qsf_tools
