// SPDX-License-Identifier: MIT

#include "stream/expert_replay.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"

namespace qsf {
namespace {

using Experts = std::vector<std::uint32_t>;

TEST(ExpertReplayTest, FindsWhatTheLastTokensUsed) {
  ExpertReplay replay(2, 8, 4);
  replay.start_token();
  EXPECT_EQ(replay.use(0, Experts{1, 5}), 0U);
  EXPECT_EQ(replay.use(1, Experts{1, 6}), 0U);
  replay.start_token();
  EXPECT_EQ(replay.use(0, Experts{1, 5}), 2U);
  EXPECT_EQ(replay.use(1, Experts{5, 6}), 1U);
}

// A token's own experts do not fit, and still each is there when it is computed.
TEST(ExpertReplayTest, TakesMoreExpertsThanTheCacheHolds) {
  ExpertReplay replay(1, 16, 3);
  const Experts many = {0, 2, 4, 6, 8, 10, 12, 14};
  for (int token = 0; token < 10; ++token) {
    replay.start_token();
    EXPECT_LE(replay.use(0, many), 3U);
  }
}

TEST(ExpertReplayTest, SizesOutOfRangeAreBounds) {
  ExpertReplay small(1, 8, 0);
  ExpertReplay large(1, 8, 100);
  const Experts three = {1, 2, 3};
  for (ExpertReplay* replay : {&small, &large}) {
    replay->start_token();
    EXPECT_EQ(replay->use(0, three), 0U);
    replay->start_token();
    EXPECT_EQ(replay->use(0, three), 3U);
  }
}

// Where every choice is as likely as any other, no policy finds more than what is in memory.
TEST(ExpertReplayTest, FindsTheShareInMemoryOfRandomChoices) {
  constexpr std::uint32_t kLayers = 4;
  constexpr std::uint32_t kExperts = 32;
  constexpr int kTokens = 2000;
  ExpertReplay replay(kLayers, kExperts, kLayers * kExperts / 4);
  Rng rng(7);
  std::uint64_t n_hits = 0;
  for (int token = 0; token < kTokens; ++token) {
    replay.start_token();
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      const auto first = rng.below(kExperts / 2);
      const auto second = kExperts / 2 + rng.below(kExperts / 2);
      n_hits += replay.use(layer, Experts{first, second});
    }
  }
  EXPECT_NEAR(static_cast<double>(n_hits) / (2.0 * kTokens * kLayers), 0.25, 0.02);
}

}  // namespace
}  // namespace qsf
