// SPDX-License-Identifier: MIT
//
// The choice of experts by sigmoids against its definition: corrections, groups, ties, and numbers
// that are none.

#include "model/sigmoid_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

namespace qsf {
namespace {

using testing::ElementsAre;

ModelSpec rule(std::uint32_t n_groups = 1, std::uint32_t n_groups_used = 1) {
  ModelSpec spec;
  spec.expert_scoring = ExpertScoring::kSigmoid;
  spec.expert_groups = n_groups;
  spec.expert_groups_used = n_groups_used;
  return spec;
}

std::vector<ExpertChoice> chosen(const ModelSpec& spec, const std::vector<float>& scores,
                                 const std::vector<float>& corrections, std::size_t n) {
  std::vector<ExpertChoice> choices(n);
  std::vector<float> sums(scores.size());
  choose_by_sigmoid(spec, corrections, scores, sums, choices);
  return choices;
}

std::vector<std::uint32_t> ids(const std::vector<ExpertChoice>& choices) {
  std::vector<std::uint32_t> list;
  for (const ExpertChoice& choice : choices) list.push_back(choice.expert);
  return list;
}

float sigmoid_of(float x) {
  return static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(x))));
}

TEST(SigmoidRouterTest, CorrectionsChooseAndDoNotWeigh) {
  const std::vector<float> scores = {1.0F, 0.5F, -2.0F, 2.0F};
  EXPECT_THAT(ids(chosen(rule(), scores, {}, 2)), ElementsAre(3, 0));
  const auto corrected = chosen(rule(), scores, {0.0F, 0.0F, 5.0F, -1.0F}, 2);
  EXPECT_THAT(ids(corrected), ElementsAre(2, 0));
  EXPECT_EQ(corrected[0].weight, sigmoid_of(-2.0F));
  EXPECT_EQ(corrected[1].weight, sigmoid_of(1.0F));
}

// Their sigmoids are 1 in f32.
TEST(SigmoidRouterTest, LargeScoresChooseThemselves) {
  const auto best = chosen(rule(), {20.0F, 40.0F, 30.0F}, {}, 2);
  EXPECT_THAT(ids(best), ElementsAre(1, 2));
  EXPECT_EQ(best[0].weight, 1.0F);
}

TEST(SigmoidRouterTest, AnEpsilonJoinsTheSumOfTheChosen) {
  ModelSpec spec = rule();
  spec.expert_renormalised = true;
  spec.expert_epsilon = 0.25F;
  const auto two = chosen(spec, {0.0F, 1.0F, -1.0F}, {}, 2);
  const float total = sigmoid_of(1.0F) + 0.5F + 0.25F;
  EXPECT_FLOAT_EQ(two[0].weight, sigmoid_of(1.0F) / total);
  EXPECT_FLOAT_EQ(two[1].weight, 0.5F / total);
  spec.expert_epsilon = 1e-20F;  // sigmoids of 0 are not divided by 0
  EXPECT_EQ(chosen(spec, {-1000.0F, -1000.0F}, {}, 2)[0].weight, 0.0F);
}

// The largest score of all is in a group whose second is small.
TEST(SigmoidRouterTest, GroupsAreChosenByTheirTwoBest) {
  const std::vector<float> scores = {4.0F, -9.0F, -9.0F, 1.0F, 1.0F, -9.0F, -9.0F, 0.9F, 1.1F};
  EXPECT_THAT(ids(chosen(rule(3, 1), scores, {}, 2)), ElementsAre(3, 4));
  EXPECT_THAT(ids(chosen(rule(3, 2), scores, {}, 3)), ElementsAre(8, 3, 4));
  EXPECT_THAT(ids(chosen(rule(3, 3), scores, {}, 3)), ElementsAre(0, 8, 3));
  // Corrections choose groups too, negative sums among them.
  std::vector<float> corrections(9, -3.0F);
  corrections[1] = -1.5F;
  EXPECT_THAT(ids(chosen(rule(3, 1), scores, corrections, 2)), ElementsAre(1, 0));
}

TEST(SigmoidRouterTest, TakesTheFirstOfEqualSums) {
  EXPECT_THAT(ids(chosen(rule(), {1.0F, 2.0F, 2.0F, 2.0F}, {}, 2)), ElementsAre(1, 2));
  EXPECT_THAT(ids(chosen(rule(3, 2), {1.0F, 1.0F, 1.0F, 1.0F, 1.0F, 1.0F}, {}, 4)),
              ElementsAre(0, 1, 2, 3));
}

TEST(SigmoidRouterTest, NumbersThatAreNoneChooseEachExpertOnce) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
  for (const float broken : {kNotANumber, kInfinity, -kInfinity}) {
    for (const std::uint32_t n_groups_used : {1U, 2U}) {
      const std::vector<float> scores = {broken, 1.0F, broken, broken};
      const auto all = ids(chosen(rule(2, n_groups_used), scores, scores, 2));
      EXPECT_EQ(std::set(all.begin(), all.end()).size(), 2U) << broken;
    }
    const std::vector<float> scores(4, broken);
    const auto all = ids(chosen(rule(2, 1), scores, scores, 2));
    EXPECT_EQ(std::set(all.begin(), all.end()).size(), 2U) << broken;
  }
}

// An infinite score is chosen first, one that is not a number last.
TEST(SigmoidRouterTest, InfiniteScoresKeepTheirOrder) {
  ModelSpec spec;
  spec.n_experts = 4;
  spec.n_experts_used = 3;
  spec.expert_scoring = ExpertScoring::kSigmoid;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> scores = {std::numeric_limits<float>::quiet_NaN(), 1.0F, kInfinity,
                                     -kInfinity};
  std::vector<float> sums(4);
  std::vector<ExpertChoice> chosen(3);
  choose_by_sigmoid(spec, {}, scores, sums, chosen);
  EXPECT_EQ(chosen[0].expert, 2U);
  EXPECT_FLOAT_EQ(chosen[0].weight, 1.0F);
  EXPECT_EQ(chosen[1].expert, 1U);
}

}  // namespace
}  // namespace qsf
