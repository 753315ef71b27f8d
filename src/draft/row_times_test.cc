// SPDX-License-Identifier: MIT
//
// Tests of RowTimes: means, interpolation, what is expected beyond, and a pass that was
// interrupted.

#include "draft/row_times.h"

#include <gtest/gtest.h>

#include <vector>

namespace qsf {
namespace {

std::vector<std::uint64_t> times_of(const RowTimes& times, std::uint32_t n_rows = 1) {
  const PassTimes from = times.from(n_rows);
  return {from.begin(), from.end()};
}

TEST(RowTimesTest, AreNoneBeforeAPassAndBeyondTheMostRows) {
  RowTimes times(4);
  EXPECT_TRUE(times.from(1).empty());
  times.add(5, 1000, 0);
  EXPECT_TRUE(times.from(1).empty());
  times.add(1, 1000, 0);
  EXPECT_EQ(times.from(1).size(), 4U);
  EXPECT_EQ(times.from(4).size(), 1U);
  EXPECT_TRUE(times.from(5).empty());
}

TEST(RowTimesTest, ExpectHalfARowForEachMoreWhereNothingWaits) {
  RowTimes times(4);
  times.add(1, 1000, 0);
  EXPECT_EQ(times_of(times), (std::vector<std::uint64_t>{1000, 1500, 2000, 2500}));
}

TEST(RowTimesTest, ExpectRowsToHideBehindTheDisk) {
  RowTimes times(5);
  times.add(1, 1000, 400);  // computes for 600
  EXPECT_EQ(times_of(times), (std::vector<std::uint64_t>{1000, 1000, 1200, 1500, 1800}));
}

TEST(RowTimesTest, InterpolateBetweenPassesAndExtrapolateFromTheLargest) {
  RowTimes times(8);
  times.add(1, 1000, 0);
  times.add(5, 1800, 0);
  EXPECT_EQ(times_of(times),
            (std::vector<std::uint64_t>{1000, 1200, 1400, 1600, 1800, 1980, 2160, 2340}));
  EXPECT_EQ(times_of(times, 7), (std::vector<std::uint64_t>{2160, 2340}));
}

// Or a slow pass of one row would make all drafts look free.
TEST(RowTimesTest, NeverFall) {
  RowTimes times(4);
  times.add(3, 700, 0);
  EXPECT_EQ(times_of(times)[0], 700U);  // fewer rows than any measured: at most as much
  times.add(1, 1000, 0);
  const std::vector<std::uint64_t> all = times_of(times);
  EXPECT_EQ(all, (std::vector<std::uint64_t>{700, 700, 700, 816}));
}

TEST(RowTimesTest, ForgetOldPassesAndDoubtAnInterruptedOne) {
  RowTimes times(1);
  times.add(1, 1000, 0);
  times.add(1, 1'000'000'000, 0);
  EXPECT_EQ(times_of(times)[0], 2500U);  // as one of 4000
  for (int i = 0; i < 40; ++i) times.add(1, 2000, 0);
  EXPECT_NEAR(static_cast<double>(times_of(times)[0]), 2000.0, 10.0);
}

TEST(RowTimesTest, TakeAnyNumber) {
  RowTimes times(3);
  times.add(1, 0, 0);
  times.add(2, UINT64_MAX, UINT64_MAX);
  const std::vector<std::uint64_t> all = times_of(times);
  EXPECT_GT(all[0], 0U);
  EXPECT_GE(all[1], all[0]);
  EXPECT_GE(all[2], all[1]);
}

}  // namespace
}  // namespace qsf
