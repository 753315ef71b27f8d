// SPDX-License-Identifier: MIT
//
// The choice of two experts by sparsemixer against its definition.

#include "model/sparsemixer_router.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace qsf {
namespace {

std::array<ExpertChoice, 2> two_of(const std::vector<float>& scores, float margin) {
  std::array<ExpertChoice, 2> chosen;
  choose_by_sparsemixer(scores, margin, chosen);
  return chosen;
}

TEST(SparsemixerRouterTest, AClearChoiceHasTheWeightOne) {
  const auto two = two_of({1.0F, 4.0F, 2.0F, -8.0F}, 0.01F);
  EXPECT_EQ(two[0].expert, 1U);
  EXPECT_EQ(two[0].weight, 1.0F);
  EXPECT_EQ(two[1].expert, 2U);
  EXPECT_EQ(two[1].weight, 1.0F);
}

// 3.7 is within a tenth of 4, and 3.4 within a tenth of 3.7 but not of 4. The expert that is taken
// has no part in the second softmax.
TEST(SparsemixerRouterTest, NearScoresShareASoftmax) {
  const auto two = two_of({3.4F, 4.0F, 3.7F, 1.0F}, 0.05F);
  EXPECT_EQ(two[0].expert, 1U);
  EXPECT_FLOAT_EQ(two[0].weight, static_cast<float>(1 / (1 + std::exp(-0.3))));
  EXPECT_EQ(two[1].expert, 2U);
  EXPECT_FLOAT_EQ(two[1].weight, static_cast<float>(1 / (1 + std::exp(-0.3))));
}

// Below zero the distance is taken against the magnitude of the other score.
TEST(SparsemixerRouterTest, DistancesAreRelativeToTheGreaterMagnitude) {
  const auto two = two_of({-4.0F, -3.0F, -2.0F}, 0.2F);
  EXPECT_EQ(two[0].expert, 2U);  // -3: 1 / 3 is near, -4: 2 / 4 is not
  EXPECT_FLOAT_EQ(two[0].weight, static_cast<float>(1 / (1 + std::exp(-1.0))));
  EXPECT_EQ(two[1].expert, 1U);  // -4: 1 / 4
  EXPECT_FLOAT_EQ(two[1].weight, static_cast<float>(1 / (1 + std::exp(-1.0))));
}

TEST(SparsemixerRouterTest, EqualScoresAndNumbersThatAreNone) {
  const auto equal = two_of({0.0F, 0.0F, 0.0F}, 0.01F);
  EXPECT_EQ(equal[0].expert, 0U);
  EXPECT_EQ(equal[1].expert, 1U);
  EXPECT_FLOAT_EQ(equal[0].weight, 1.0F / 3.0F);
  EXPECT_FLOAT_EQ(equal[1].weight, 0.5F);
  constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
  const auto broken = two_of({kNotANumber, kNotANumber, 1.0F}, 0.01F);
  EXPECT_EQ(broken[0].expert, 2U);
  EXPECT_EQ(broken[0].weight, 1.0F);
  EXPECT_EQ(broken[1].expert, 0U);
}

}  // namespace
}  // namespace qsf
