// SPDX-License-Identifier: MIT
//
// Allocations against brute force, and invalid items.

#include "convert/choose/allocation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/rng.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Items = std::vector<std::vector<AllocationChoice>>;

// Costs that fall with bytes, roughly, as those of weight types do.
Items draw_items(Rng& rng) {
  Items items(1 + rng.below(5));
  for (auto& choices : items) {
    const std::uint64_t unit = 1 + rng.below(9);
    const std::uint32_t n = 1 + rng.below(4);
    for (std::uint32_t k = 0; k < n; ++k) {
      const std::uint64_t bytes = unit * (2 + rng.below(7));
      choices.push_back({bytes, static_cast<double>(1 + rng.below(1000)) /
                                    static_cast<double>(1U << (bytes / unit))});
    }
  }
  return items;
}

// The least cost within max_bytes, of all allocations there are.
double least_cost(const Items& items, std::uint64_t max_bytes, std::size_t first = 0) {
  if (first == items.size()) return 0.0;
  double least = std::numeric_limits<double>::infinity();
  for (const AllocationChoice& choice : items[first]) {
    if (choice.bytes > max_bytes) continue;
    least = std::min(least, choice.cost + least_cost(items, max_bytes - choice.bytes, first + 1));
  }
  return least;
}

TEST(AllocationTest, ComesNearTheOptimum) {
  Rng rng(5);
  double excess = 0.0;
  int n = 0;
  int n_best = 0;
  for (int i = 0; i < 400; ++i) {
    const Items items = draw_items(rng);
    const std::uint64_t fewest = fewest_bytes(items);
    const std::uint64_t max_bytes = fewest + rng.below(60);
    const auto found = allocate(items, max_bytes);
    ASSERT_TRUE(found) << found.error().message();
    double cost = 0.0;
    std::uint64_t bytes = 0;
    for (std::size_t k = 0; k < items.size(); ++k) {
      cost += items[k][found->choices[k]].cost;
      bytes += items[k][found->choices[k]].bytes;
    }
    EXPECT_EQ(found->bytes, bytes);
    EXPECT_DOUBLE_EQ(found->cost, cost);
    EXPECT_LE(bytes, max_bytes);
    const double least = least_cost(items, max_bytes);
    EXPECT_GE(cost, least * (1 - 1e-12));
    excess += cost / least - 1.0;
    n_best += cost <= least * (1 + 1e-12) ? 1 : 0;
    ++n;
  }
  // Pairs of exchanges miss an optimum that takes three: rarely, and by little.
  EXPECT_LE(excess / n, 0.01);
  EXPECT_GE(n_best, n * 97 / 100);
}

TEST(AllocationTest, MoreBytesNeverCostMoreOnTheHull) {
  Rng rng(6);
  for (int i = 0; i < 50; ++i) {
    const Items items = draw_items(rng);
    double last = std::numeric_limits<double>::infinity();
    for (std::uint64_t max_bytes = fewest_bytes(items); max_bytes < 400; max_bytes += 100) {
      const auto found = allocate(items, max_bytes);
      ASSERT_TRUE(found);
      EXPECT_LE(found->cost, last);
      last = found->cost;
    }
  }
}

TEST(AllocationTest, TiesGoToTheFirst) {
  const Items items = {{{10, 2.0}, {20, 1.0}}, {{10, 2.0}, {20, 1.0}}};
  const auto found = allocate(items, 30);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->choices, ElementsAre(1, 0));
}

TEST(AllocationTest, ChoicesThatCostMoreForMoreBytesAreNotTaken) {
  const auto found = allocate(Items{{{30, 3.0}, {10, 2.0}, {20, 2.0}}}, 100);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->choices, ElementsAre(1));
}

// The last byte of the first item gains 9.9, but only behind 39 that gain next to nothing: the
// others, which gain more a byte, go first. (No exchange of two items would get there.)
TEST(AllocationTest, AGainCountsPerByte) {
  const std::vector<AllocationChoice> small = {{10, 6.0}, {20, 0.0}};
  const Items items = {{{10, 10.0}, {49, 9.9}, {50, 0.0}}, small, small, small, small};
  const auto found = allocate(items, 90);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->choices, ElementsAre(0, 1, 1, 1, 1));
}

// Where no step of the hull fits, a choice above it does, however little it gains.
TEST(AllocationTest, RemainingRoomIsUsed) {
  const auto found = allocate(Items{{{10, 1.0}, {20, 0.9999}, {40, 0.0}}}, 25);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->choices, ElementsAre(1));
}

// After the hulls, 5 bytes are left: an exchange of the first two items gains 2, the last item
// alone 3.
TEST(AllocationTest, OneItemMayGainMoreThanAnExchangeOfTwo) {
  const Items items = {
      {{10, 5.0}, {20, 0.0}}, {{10, 7.0}, {25, 0.0}}, {{10, 50.0}, {15, 47.0}, {60, 10.0}}};
  const auto found = allocate(items, 45);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->choices, ElementsAre(1, 0, 1));
  EXPECT_EQ(found->bytes, 45U);
}

TEST(AllocationTest, InvalidCostsAreRejected) {
  for (const double cost :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const auto found = allocate(Items{{{1, 0.0}}, {{1, cost}}}, 10);
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(found.error().message()), HasSubstr("item 1"));
  }
  EXPECT_EQ(allocate(Items{{}}, 10).error().code(), StatusCode::kInvalidArgument);
}

TEST(AllocationTest, TooFewBytesAreRejectedWithTheFewest) {
  const auto found = allocate(Items{{{11, 0.0}, {7, 1.0}}, {{5, 1.0}}}, 11);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code(), StatusCode::kOutOfBudget);
  EXPECT_THAT(std::string(found.error().message()), HasSubstr("12"));
  EXPECT_TRUE(allocate(Items{{{11, 0.0}, {7, 1.0}}, {{5, 1.0}}}, 12));
}

TEST(AllocationTest, NoItemsTakeNoBytes) {
  const auto found = allocate(Items{}, 0);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->bytes, 0U);
}

}  // namespace
}  // namespace qsf
