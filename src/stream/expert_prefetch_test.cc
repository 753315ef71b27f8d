// SPDX-License-Identifier: MIT
//
// Which guesses are read ahead: those whose layer and rank come true often enough, within the bytes
// of a pass.

#include "stream/expert_prefetch.h"

#include <gtest/gtest.h>

#include <vector>

namespace qsf {
namespace {

constexpr std::uint32_t kGuessedExperts = 8;
constexpr std::uint32_t kGuessedLayers = 3;

ExpertCache empty_cache(std::vector<ExpertCache::Slot> slots = {}) {
  const std::vector<std::uint64_t> bytes(kGuessedLayers * kGuessedExperts, 100);
  return {bytes, kGuessedExperts, std::move(slots), 2};
}

std::vector<ExpertId> start(ExpertPrefetch& prefetch, std::uint32_t layer,
                            const std::vector<ExpertGuess>& guesses, const ExpertCache& cache) {
  const auto to_read = prefetch.start(layer, kGuessedExperts, guesses, cache);
  return {to_read.begin(), to_read.end()};
}

// The layer chose these.
void settle(ExpertPrefetch& prefetch, std::uint32_t layer, const std::vector<ExpertUse>& uses) {
  prefetch.learn(layer, uses);
  prefetch.end();
}

TEST(ExpertPrefetchTest, MissingExpertsAreReadInTheOrderOfTheGuesses) {
  ExpertPrefetch prefetch(kGuessedLayers, 3, 1000);
  const ExpertCache cache = empty_cache({{.bytes = 100, .expert = 1 * kGuessedExperts + 5}});
  prefetch.start_pass();
  EXPECT_EQ(start(prefetch, 1, {{7, 0}, {5, 1}, {2, 2}}, cache),
            (std::vector<ExpertId>{kGuessedExperts + 7, kGuessedExperts + 2}));
  EXPECT_EQ(prefetch.experts().size(), 2U);
  EXPECT_EQ(prefetch.guessed().size(), 3U);
  prefetch.end();
  EXPECT_TRUE(prefetch.guessed().empty());
  EXPECT_TRUE(prefetch.experts().empty());
}

// Rank 0 comes true, rank 1 four times in five, rank 2 never; in another layer all do.
TEST(ExpertPrefetchTest, GuessesOfRanksThatDoNotComeTrueAreNotRead) {
  ExpertPrefetch prefetch(kGuessedLayers, 3, 1000);
  const ExpertCache cache = empty_cache();
  const std::vector<ExpertGuess> guesses = {{7, 0}, {5, 1}, {2, 2}};
  const std::vector<ExpertUse> one = {{0, 1.0F, true}, {7, 1.0F, true}};
  const std::vector<ExpertUse> two = {{5, 1.0F, true}, {7, 1.0F, true}};
  const std::vector<ExpertUse> all = {{2, 1.0F, true}, {5, 1.0F, true}, {7, 1.0F, true}};
  for (int pass = 0; pass < 100; ++pass) {
    prefetch.start_pass();
    start(prefetch, 0, guesses, cache);
    settle(prefetch, 0, pass % 5 == 0 ? one : two);
    EXPECT_TRUE(prefetch.experts().empty());
    start(prefetch, 1, guesses, cache);
    settle(prefetch, 1, all);
  }
  EXPECT_EQ(start(prefetch, 0, guesses, cache), (std::vector<ExpertId>{7, 5}));
  prefetch.end();
  EXPECT_EQ(start(prefetch, 1, guesses, cache).size(), 3U);
  prefetch.end();
  EXPECT_EQ(start(prefetch, 2, guesses, cache).size(), 3U);  // nothing is known
}

// What is not read is measured all the same, from time to time, and read again when it comes true.
TEST(ExpertPrefetchTest, LayersWithoutLuckAreTriedAgain) {
  ExpertPrefetch prefetch(kGuessedLayers, 1, 1000);
  const ExpertCache cache = empty_cache();
  const std::vector<ExpertUse> other = {{0, 1.0F, true}};
  const std::vector<ExpertUse> same = {{7, 1.0F, true}};
  const auto passes = [&](int n, const std::vector<ExpertUse>& uses) {
    int n_wanted = 0;
    for (int pass = 0; pass < n; ++pass) {
      prefetch.start_pass();
      if (!prefetch.wants(1)) continue;
      ++n_wanted;
      start(prefetch, 1, {{7, 0}}, cache);
      settle(prefetch, 1, uses);
    }
    return n_wanted;
  };
  EXPECT_LT(passes(160, other), 30);
  EXPECT_EQ(passes(160, other), 20);
  EXPECT_GT(passes(320, same), 100);
}

TEST(ExpertPrefetchTest, GuessesOfAnotherLayerTeachNothing) {
  ExpertPrefetch prefetch(kGuessedLayers, 1, 1000);
  const ExpertCache cache = empty_cache();
  for (int pass = 0; pass < 40; ++pass) {
    prefetch.start_pass();
    start(prefetch, 1, {{7, 0}}, cache);
    settle(prefetch, 2, {});
  }
  EXPECT_EQ(start(prefetch, 1, {{7, 0}}, cache).size(), 1U);
}

TEST(ExpertPrefetchTest, APassReadsSoManyBytesAhead) {
  ExpertPrefetch prefetch(kGuessedLayers, 3, 250);
  prefetch.start_pass();
  EXPECT_TRUE(prefetch.spend(100));
  EXPECT_TRUE(prefetch.spend(100));
  EXPECT_FALSE(prefetch.spend(100));
  EXPECT_TRUE(prefetch.spend(50));
  prefetch.start_pass();
  EXPECT_TRUE(prefetch.spend(250));
}

}  // namespace
}  // namespace qsf
