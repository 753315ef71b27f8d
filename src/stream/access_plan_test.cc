// SPDX-License-Identifier: MIT

#include "stream/access_plan.h"

#include <gtest/gtest.h>

#include <vector>

namespace qsf {
namespace {

// Returns the positions of two passes, from the first on.
std::vector<std::uint32_t> two_passes(const AccessPlan& plan) {
  std::vector<std::uint32_t> positions;
  std::uint32_t at = plan.first();
  for (std::uint32_t i = 0; i < 2 * plan.n_tiles(); ++i, at = plan.next(at))
    positions.push_back(at);
  return positions;
}

TEST(AccessPlanTest, AnEmptyPlanHasNoTile) {
  AccessPlan plan;
  plan.add({3, 3});
  EXPECT_EQ(plan.n_tiles(), 0U);
  EXPECT_EQ(plan.first(), kNoPosition);
  EXPECT_EQ(plan.next(0), kNoPosition);
  EXPECT_FALSE(plan.contains(3));
}

TEST(AccessPlanTest, RangesThatTouchAreOne) {
  AccessPlan plan;
  plan.add({0, 4});
  plan.add({4, 4});
  plan.add({4, 6});
  ASSERT_EQ(plan.ranges().size(), 1U);
  EXPECT_EQ(plan.ranges()[0], (TileRange{0, 6}));
  EXPECT_EQ(plan.n_tiles(), 6U);
}

// What every row needs, and two of the experts.
TEST(AccessPlanTest, GoesOnFromTheLastTileToTheFirst) {
  AccessPlan plan;
  plan.add({2, 4});
  plan.add({6, 7});
  plan.add({9, 11});
  EXPECT_EQ(two_passes(plan), (std::vector<std::uint32_t>{2, 3, 6, 9, 10, 2, 3, 6, 9, 10}));
}

TEST(AccessPlanTest, APositionOutsideIsFollowedByTheNextOfThePlan) {
  AccessPlan plan;
  plan.add({2, 4});
  plan.add({6, 7});
  const std::uint32_t next[] = {2, 2, 3, 6, 6, 6, 2, 2};
  for (std::uint32_t position = 0; position < 8; ++position) {
    EXPECT_EQ(plan.next(position), next[position]) << position;
    EXPECT_EQ(plan.contains(position), position == 2 || position == 3 || position == 6) << position;
  }
  EXPECT_EQ(plan.next(kNoPosition), 2U);
}

TEST(AccessPlanTest, RangesAscend) {
  AccessPlan plan;
  plan.add({2, 4});
  EXPECT_DEATH(plan.add({3, 5}), "check failed");
  EXPECT_DEATH(plan.add({5, 4}), "check failed");
  for (std::uint32_t i = 1; i < AccessPlan::kMaxRanges; ++i) plan.add({10 * i, 10 * i + 1});
  EXPECT_DEATH(plan.add({10000, 10001}), "check failed");
}

}  // namespace
}  // namespace qsf
