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

// Six experts of which a row takes four; the scores of the first row of every test.
ModelSpec four_of_six() {
  ModelSpec spec;
  spec.n_experts = 6;
  spec.n_experts_used = 4;
  spec.expert_renormalised = true;
  return spec;
}
const std::vector<float> kFalling = {5.0F, 4.0F, 3.0F, 2.5F, 2.0F, 1.0F};

std::vector<std::uint32_t> preferred(const ModelSpec& spec, const std::vector<float>& corrections,
                                     const std::vector<std::uint8_t>& in_memory, float margin) {
  ExpertRows rows(spec, 1);
  rows.clear();
  rows.add(kFalling, corrections);
  std::vector<std::uint32_t> experts;
  double sum = 0.0;
  for (const ExpertChoice& choice : rows.prefer(kFalling, corrections, in_memory, margin)) {
    experts.push_back(choice.expert);
    sum += choice.weight;
  }
  EXPECT_NEAR(sum, 1.0, 1e-6);
  return experts;
}

using Experts = std::vector<std::uint32_t>;

TEST(ExpertRowsTest, PrefersExpertsInMemoryWithinTheMargin) {
  const ModelSpec spec = four_of_six();
  // The best two stay, though neither is in memory.
  EXPECT_EQ(preferred(spec, {}, {0, 0, 0, 0, 1, 1}, 0.9F), (Experts{0, 1, 2, 4}));
  EXPECT_EQ(preferred(spec, {}, {0, 0, 0, 0, 1, 1}, 1.1F), (Experts{0, 1, 4, 2}));
  EXPECT_EQ(preferred(spec, {}, {0, 0, 0, 0, 1, 1}, 9.0F), (Experts{0, 1, 4, 5}));
  // One that is in memory itself is not replaced.
  EXPECT_EQ(preferred(spec, {}, {0, 0, 1, 1, 1, 1}, 9.0F), (Experts{0, 1, 2, 3}));
  EXPECT_EQ(preferred(spec, {}, {0, 0, 0, 0, 0, 0}, 9.0F), (Experts{0, 1, 2, 3}));
}

TEST(ExpertRowsTest, ALargeMarginKeepsTheOrderOfScores) {
  const ModelSpec spec = four_of_six();
  ExpertRows rows(spec, 1);
  rows.clear();
  const std::vector<float> close = {5.0F, 4.0F, 3.01F, 3.02F, 3.03F, 3.04F};
  rows.add(close);
  const std::vector<std::uint8_t> in_memory = {1, 1, 1, 1, 1, 1};
  const auto chosen = rows.prefer(close, {}, in_memory, 1e6F);
  EXPECT_EQ(chosen[2].expert, 5U);
  EXPECT_EQ(chosen[3].expert, 4U);
}

TEST(ExpertRowsTest, PreferenceChangesNoWeightOfAScore) {
  const ModelSpec spec = four_of_six();
  ExpertRows rows(spec, 1);
  rows.clear();
  rows.add(kFalling);
  const std::vector<std::uint8_t> in_memory = {0, 0, 0, 0, 0, 1};
  const auto chosen = rows.prefer(kFalling, {}, in_memory, 9.0F);
  const Experts expected = {0, 1, 5, 2};
  double total = 0.0;
  for (const std::uint32_t e : expected) total += std::exp(kFalling[e]);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(chosen[i].expert, expected[i]);
    EXPECT_FLOAT_EQ(chosen[i].weight, static_cast<float>(std::exp(kFalling[expected[i]]) / total));
  }
}

TEST(ExpertRowsTest, PrefersBySigmoidsAndCorrections) {
  ModelSpec spec = four_of_six();
  spec.expert_scoring = ExpertScoring::kSigmoid;
  // sigmoid(1) is 0.73, 0.2 less than sigmoid(2.5); a correction counts as for any choice.
  const std::vector<std::uint8_t> last = {0, 0, 0, 0, 0, 1};
  EXPECT_EQ(preferred(spec, std::vector<float>(6), last, 0.18F), (Experts{0, 1, 2, 3}));
  EXPECT_EQ(preferred(spec, std::vector<float>(6), last, 0.21F), (Experts{0, 1, 2, 5}));
  std::vector<float> corrections(6);
  corrections[5] = -0.1F;
  EXPECT_EQ(preferred(spec, corrections, last, 0.21F), (Experts{0, 1, 2, 3}));
}

TEST(ExpertRowsTest, PrefersWithinTheBestGroups) {
  ModelSpec spec = four_of_six();
  spec.expert_scoring = ExpertScoring::kSigmoid;
  spec.expert_groups = 3;
  spec.expert_groups_used = 2;
  EXPECT_EQ(preferred(spec, {}, {0, 0, 0, 0, 1, 1}, 9.0F), (Experts{0, 1, 2, 3}));
}

TEST(ExpertRowsTest, MarginsThatCannotBeAreRefused) {
  ModelSpec spec = four_of_six();
  EXPECT_TRUE(check_expert_preference(0.0F, ModelSpec()).ok());
  EXPECT_TRUE(check_expert_preference(0.5F, spec).ok());
  for (const float margin : {-0.5F, kInf, kNan}) {
    EXPECT_EQ(check_expert_preference(margin, spec).code(), StatusCode::kInvalidArgument) << margin;
  }
  EXPECT_EQ(check_expert_preference(0.5F, ModelSpec()).code(), StatusCode::kUnsupported);
  spec.n_experts_used = 2;
  EXPECT_EQ(check_expert_preference(0.5F, spec).code(), StatusCode::kUnsupported);
  spec.n_experts_used = 3;
  spec.expert_scoring = ExpertScoring::kSparsemixer;
  EXPECT_EQ(check_expert_preference(0.5F, spec).code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace qsf
