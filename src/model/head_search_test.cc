// SPDX-License-Identifier: MIT
//
// The search for the best tokens against a sort of all of them, with ties, bounds that are reached,
// and numbers that are none.

#include "model/head_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "base/rng.h"

namespace qsf {
namespace {

using testing::ElementsAre;

constexpr float kUnbounded = std::numeric_limits<float>::infinity();
constexpr float kBroken = std::numeric_limits<float>::quiet_NaN();

// A head of units of 4 rows, whose tokens stand in any order, with bounds as large or larger.
struct Problem {
  static constexpr std::uint32_t kUnitRows = 4;

  Problem(std::uint32_t n_units, std::uint32_t n_values, float slack, Rng& rng)
      : tokens(std::size_t{n_units} * kUnitRows), logits(tokens.size()), bounds(n_units) {
    std::iota(tokens.begin(), tokens.end(), 0U);
    for (std::size_t i = tokens.size(); i > 1; --i) {
      std::swap(tokens[i - 1], tokens[rng.below(static_cast<std::uint32_t>(i))]);
    }
    for (float& logit : logits) logit = static_cast<float>(rng.below(n_values)) - 3.0F;
    for (std::uint32_t unit = 0; unit < n_units; ++unit) {
      const auto first = logits.begin() + unit * kUnitRows;
      bounds[unit] = *std::max_element(first, first + kUnitRows) + slack * rng.next_f32();
    }
  }

  void add(std::uint32_t unit, HeadSearch& search) const {
    search.add(std::span(tokens).subspan(unit * kUnitRows, kUnitRows),
               std::span(logits).subspan(unit * kUnitRows, kUnitRows));
  }

  std::vector<std::uint32_t> sorted(std::size_t n) const {
    std::vector<std::size_t> rows(tokens.size());
    std::iota(rows.begin(), rows.end(), 0U);
    std::sort(rows.begin(), rows.end(), [this](std::size_t a, std::size_t b) {
      return logits[a] != logits[b] ? logits[a] > logits[b] : tokens[a] < tokens[b];
    });
    std::vector<std::uint32_t> best;
    for (std::size_t i = 0; i < std::min(n, rows.size()); ++i) best.push_back(tokens[rows[i]]);
    return best;
  }

  std::vector<std::uint32_t> tokens;
  std::vector<float> logits;
  std::vector<float> bounds;
};

std::vector<std::uint32_t> tokens_of(std::span<const TokenLogit> best) {
  std::vector<std::uint32_t> tokens;
  for (const TokenLogit& token : best) tokens.push_back(token.token);
  return tokens;
}

// Runs a search to its end; returns the units in the order they were read.
std::vector<std::uint32_t> run(const Problem& problem, std::size_t at_once, HeadSearch& search) {
  std::vector<std::uint32_t> read;
  std::vector<std::uint32_t> units(at_once);
  for (std::size_t n; (n = search.take(units)) != 0;) {
    for (std::size_t i = 0; i < n; ++i) problem.add(units[i], search);
    read.insert(read.end(), units.begin(), units.begin() + static_cast<std::ptrdiff_t>(n));
  }
  return read;
}

TEST(HeadSearchTest, FindsWhatASortOfAllFinds) {
  Rng rng(1);
  for (const std::uint32_t n_best : {1U, 2U, 40U, 400U}) {
    HeadSearch search(60, n_best);
    for (int i = 0; i < 200; ++i) {
      // Few values give many ties, no slack gives bounds that are reached.
      const Problem problem(60, i % 3 == 0 ? 5 : 1000, i % 2 == 0 ? 0.0F : 30.0F, rng);
      search.start(problem.bounds);
      const auto read = run(problem, 1, search);
      ASSERT_EQ(tokens_of(search.best()), problem.sorted(n_best)) << n_best << ' ' << i;
      EXPECT_EQ(search.n_taken(), read.size());
    }
  }
}

// Units are read by falling bound, of equal ones the first, and none that cannot matter.
TEST(HeadSearchTest, ReadsNoUnitThatCannotMatter) {
  Rng rng(2);
  HeadSearch search(50, 3);
  std::size_t n_excluded = 0;
  for (int i = 0; i < 100; ++i) {
    const Problem problem(50, i % 2 == 0 ? 100 : 10, i % 2 == 0 ? 10.0F : 0.0F, rng);
    search.start(problem.bounds);
    const auto read = run(problem, 1, search);
    const float worst = search.best().back().logit;
    for (std::size_t k = 1; k < read.size(); ++k) {
      const float before = problem.bounds[read[k - 1]];
      const float bound = problem.bounds[read[k]];
      EXPECT_TRUE(before > bound || (before == bound && read[k - 1] < read[k]));
    }
    const auto n_possible = std::count_if(problem.bounds.begin(), problem.bounds.end(),
                                          [&](float bound) { return bound >= worst; });
    EXPECT_EQ(read.size(), static_cast<std::size_t>(n_possible));
    n_excluded += 50 - read.size();
  }
  EXPECT_GT(n_excluded, 1000U);
}

TEST(HeadSearchTest, TakesSeveralAtOnce) {
  Rng rng(3);
  HeadSearch search(50, 5);
  for (const std::size_t at_once : {2U, 7U, 100U}) {
    const Problem problem(50, 40, 3.0F, rng);
    search.start(problem.bounds);
    const auto read = run(problem, at_once, search);
    EXPECT_EQ(tokens_of(search.best()), problem.sorted(5));
    EXPECT_EQ(std::vector(read).size(), search.n_taken());
  }
}

// The smaller token stands in a unit whose bound is what the best so far reached.
TEST(HeadSearchTest, ABoundThatEqualsTheBestIsRead) {
  HeadSearch search(2, 1);
  search.start(std::array{3.0F, 2.0F});
  std::array<std::uint32_t, 1> unit = {};
  ASSERT_EQ(search.take(unit), 1U);
  EXPECT_EQ(unit[0], 0U);
  search.add(std::array{9U}, std::array{2.0F});
  ASSERT_EQ(search.take(unit), 1U);
  search.add(std::array{4U}, std::array{2.0F});
  EXPECT_EQ(search.take(unit), 0U);
  EXPECT_THAT(tokens_of(search.best()), ElementsAre(4));
}

TEST(HeadSearchTest, TheBestSoFarMayBeAskedFor) {
  HeadSearch search(3, 2);
  search.start(std::array{9.0F, 4.0F, 1.0F});
  std::array<std::uint32_t, 1> unit = {};
  ASSERT_EQ(search.take(unit), 1U);
  search.add(std::array{0U, 1U}, std::array{8.0F, 3.0F});
  EXPECT_THAT(tokens_of(search.best()), ElementsAre(0, 1));
  ASSERT_EQ(search.take(unit), 1U);  // its bound is above the second, if not the first
  search.add(std::array{2U}, std::array{4.0F});
  EXPECT_EQ(search.take(unit), 0U);
  EXPECT_THAT(tokens_of(search.best()), ElementsAre(0, 2));
}

TEST(HeadSearchTest, EqualLogitsGiveTheSmallestTokens) {
  HeadSearch search(1, 3);
  search.start(std::array{1.0F});
  search.add(std::array{7U, 3U, 5U, 1U, 9U}, std::array{0.5F, 0.5F, 0.5F, 0.5F, 0.5F});
  EXPECT_THAT(tokens_of(search.best()), ElementsAre(1, 3, 5));
  // What was sorted goes on.
  search.add(std::array{2U, 8U}, std::array{0.5F, 0.6F});
  EXPECT_THAT(tokens_of(search.best()), ElementsAre(8, 1, 2));
}

TEST(HeadSearchTest, BoundsThatAreNotNumbersExcludeNothing) {
  HeadSearch search(3, 1);
  search.start(std::array{1.0F, kBroken, -kUnbounded});
  std::array<std::uint32_t, 3> units = {};
  ASSERT_EQ(search.take(std::span(units).first(1)), 1U);
  EXPECT_EQ(units[0], 1U);
  search.add(std::array{0U}, std::array{-1.0F});
  ASSERT_EQ(search.take(units), 1U);
  EXPECT_EQ(units[0], 0U);
}

TEST(HeadSearchTest, LogitsThatAreNotNumbersAreNeverBest) {
  HeadSearch search(1, 2);
  search.start(std::array{1.0F});
  search.add(std::array{0U, 1U, 2U}, std::array{kBroken, -kUnbounded, 1.0F});
  EXPECT_TRUE(search.has_broken());
  EXPECT_THAT(tokens_of(search.best()), ElementsAre(2, 1));
  search.start(std::array{1.0F});
  EXPECT_FALSE(search.has_broken());
  EXPECT_TRUE(search.best().empty());
  EXPECT_EQ(search.n_taken(), 0U);
}

TEST(HeadSwitchTest, SwitchesOffWhereSearchesReadMuch) {
  HeadSwitch on;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(on.is_on());
    on.record(i % 4 == 0 ? 1.0F : 0.4F);  // 55 % in the mean
  }
  HeadSwitch off;
  int n_tokens = 0;
  for (; off.is_on(); ++n_tokens) off.record(0.9F);
  EXPECT_GT(n_tokens, 10);
  EXPECT_LT(n_tokens, 64);
  for (std::uint32_t i = 1; i < HeadSwitch::kPause; ++i) EXPECT_FALSE(off.is_on());
  EXPECT_TRUE(off.is_on());
  off.record(0.9F);
  EXPECT_TRUE(off.is_on());
  HeadSwitch broken;
  broken.record(kBroken);
  EXPECT_FALSE(broken.is_on());
}

}  // namespace
}  // namespace qsf
