// SPDX-License-Identifier: MIT
//
// The choice of experts against its definition, ties and numbers that are none included, and the
// rows of a pass by expert.

#include "model/expert_router.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace qsf {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<ExpertChoice> chosen(std::vector<float> scores, bool renormalise, std::size_t n) {
  std::vector<ExpertChoice> choices(n);
  choose_experts(scores, renormalise, choices);
  return choices;
}

TEST(ChooseExpertsTest, TakesTheLargestScores) {
  const auto two = chosen({0.5F, 3.0F, -1.0F, 2.0F}, false, 2);
  EXPECT_EQ(two[0].expert, 1U);
  EXPECT_EQ(two[1].expert, 3U);
  const double total = std::exp(0.5) + std::exp(3.0) + std::exp(-1.0) + std::exp(2.0);
  EXPECT_FLOAT_EQ(two[0].weight, static_cast<float>(std::exp(3.0) / total));
  EXPECT_FLOAT_EQ(two[1].weight, static_cast<float>(std::exp(2.0) / total));
  const auto shared = chosen({0.5F, 3.0F, -1.0F, 2.0F}, true, 2);
  EXPECT_FLOAT_EQ(shared[0].weight, static_cast<float>(1 / (1 + std::exp(-1.0))));
  EXPECT_FLOAT_EQ(shared[0].weight + shared[1].weight, 1.0F);
}

TEST(ChooseExpertsTest, TakesTheFirstOfEqualScores) {
  const auto two = chosen({1.0F, 2.0F, 2.0F, 2.0F, 0.0F}, true, 2);
  EXPECT_EQ(two[0].expert, 1U);
  EXPECT_EQ(two[1].expert, 2U);
  const auto all = chosen({0.0F, 0.0F, 0.0F}, false, 3);
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(all[i].expert, i);
}

TEST(ChooseExpertsTest, SurvivesLargeScoresAndNumbersThatAreNone) {
  const auto large = chosen({-1000.0F, 1000.0F, 999.0F}, false, 2);
  EXPECT_FLOAT_EQ(large[0].weight, static_cast<float>(1 / (1 + std::exp(-1.0))));
  const auto broken = chosen({kNan, 1.0F, -kInf, kNan}, true, 3);
  EXPECT_EQ(broken[0].expert, 1U);
  EXPECT_EQ(broken[1].expert, 0U);
  EXPECT_EQ(broken[2].expert, 2U);
  EXPECT_EQ(broken[0].weight, 1.0F);
  EXPECT_EQ(broken[1].weight, 0.0F);
}

TEST(ExpertRowsTest, SortsTheRowsOfAPassByExpert) {
  ModelSpec spec;
  spec.n_experts = 4;
  spec.n_experts_used = 2;
  spec.expert_renormalised = true;
  spec.residual_scale = 0.5F;
  ExpertRows rows(spec, 3);
  const std::vector<Row> pass_rows = {
      {.sequence = 1}, {.sequence = 1}, {.role = RowRole::kGenerated}};
  for (int pass = 0; pass < 2; ++pass) {
    rows.clear();
    rows.add(std::vector<float>{4.0F, 0.0F, 3.0F, 1.0F});
    rows.add(std::vector<float>{0.0F, 9.0F, 8.0F, 1.0F});
    rows.add(std::vector<float>{5.0F, 0.0F, 5.0F, 1.0F});
    rows.sort(pass_rows);
    const auto of = [&](std::uint32_t expert) {
      return std::vector<std::uint32_t>(rows.rows_of(expert).begin(), rows.rows_of(expert).end());
    };
    EXPECT_EQ(of(0), (std::vector<std::uint32_t>{0, 2}));
    EXPECT_EQ(of(1), (std::vector<std::uint32_t>{1}));
    EXPECT_EQ(of(2), (std::vector<std::uint32_t>{0, 1, 2}));
    EXPECT_TRUE(of(3).empty());
    const auto high = static_cast<float>(0.5 / (1 + std::exp(-1.0)));
    EXPECT_FLOAT_EQ(rows.weights_of(0)[0], high);
    EXPECT_FLOAT_EQ(rows.weights_of(0)[1], 0.25F);
    EXPECT_FLOAT_EQ(rows.weights_of(1)[0], high);
    EXPECT_FLOAT_EQ(rows.weights_of(2)[1], 0.5F - high);
    ASSERT_EQ(rows.uses().size(), 3U);
    for (std::uint32_t expert = 0; expert < 3; ++expert) {
      EXPECT_EQ(rows.uses()[expert].expert, expert);
      EXPECT_EQ(rows.uses()[expert].generates, expert != 1);
    }
    EXPECT_FLOAT_EQ(rows.uses()[0].heat, 1.9F);  // a prompt's last row but one, and a generated one
    EXPECT_FLOAT_EQ(rows.uses()[1].heat, 1.0F);
    EXPECT_FLOAT_EQ(rows.uses()[2].heat, 2.9F);
  }
}

// Of a long prompt the experts of the last rows are likely to be used again, the others are not.
TEST(ExpertRowsTest, CountsTheLastRowsOfEachPromptAlone) {
  ModelSpec spec;
  spec.n_experts = 3;
  spec.n_experts_used = 1;
  ExpertRows rows(spec, 100);
  std::vector<Row> pass_rows(100);
  for (std::size_t i = 0; i < pass_rows.size(); ++i) pass_rows[i].sequence = i < 50 ? 0 : 1;
  for (std::size_t i = 0; i < pass_rows.size(); ++i) {
    const bool is_last = i == 49;
    rows.add(std::vector<float>{i % 50 < 10 ? 1.0F : 0.0F, is_last ? 2.0F : 0.0F, 0.5F});
  }
  rows.sort(pass_rows);
  ASSERT_EQ(rows.uses().size(), 3U);
  EXPECT_EQ(rows.uses()[0].heat, 0.0F);
  EXPECT_EQ(rows.uses()[1].heat, 1.0F);
  EXPECT_GT(rows.uses()[2].heat, 10.0F);
}

// The surest guesses of all rows come first, each expert at its best rank, and no guess is a
// choice.
TEST(ExpertRowsTest, RanksGuessesOfAllRows) {
  ModelSpec spec;
  spec.n_experts = 5;
  spec.n_experts_used = 2;
  ExpertRows rows(spec, 4);
  for (int i = 0; i < 2; ++i) {
    rows.clear_guesses();
    rows.add_guess(std::vector<float>{0.0F, 4.0F, 0.0F, 3.0F, 0.0F}, {});
    const std::span<ExpertChoice> last =
        rows.add_guess(std::vector<float>{0.0F, 2.0F, 0.0F, 5.0F, 0.0F}, {});
    last[1].expert = 4;  // as a hook may
    const std::span<const ExpertGuess> guesses = rows.rank_guesses();
    ASSERT_EQ(guesses.size(), 3U);
    const std::vector<std::pair<std::uint32_t, std::uint32_t>> expected = {{1, 0}, {3, 0}, {4, 1}};
    for (std::size_t g = 0; g < 3; ++g) {
      EXPECT_EQ(guesses[g].expert, expected[g].first);
      EXPECT_EQ(guesses[g].rank, expected[g].second);
    }
  }
  rows.sort({});
  EXPECT_TRUE(rows.uses().empty());
}

}  // namespace
}  // namespace qsf
