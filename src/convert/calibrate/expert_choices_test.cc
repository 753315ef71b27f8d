// SPDX-License-Identifier: MIT

#include "convert/calibrate/expert_choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"
#include "format/expert_hits.h"

namespace qsf {
namespace {

// Eight experts in the first and last of three layers, of which a token takes two.
ModelSpec small_mixture() {
  ModelSpec spec;
  spec.n_layers = 3;
  spec.n_experts = 8;
  spec.n_experts_used = 2;
  spec.expert_layers = {1, 0, 1};
  return spec;
}

void choose(ExpertChoices& choices, std::uint32_t layer, std::uint64_t token, std::uint32_t first,
            std::uint32_t second) {
  const std::vector<ExpertChoice> chosen = {{first, 0.75F}, {second, 0.25F}};
  choices.add(layer, token, chosen);
}

TEST(ExpertChoicesTest, ADenseModelHasNone) {
  ModelSpec spec;
  spec.n_layers = 2;
  ExpertChoices choices(spec, 100);
  EXPECT_TRUE(choices.bytes().empty());
  EXPECT_TRUE(choices.hits().empty());
}

TEST(ExpertChoicesTest, TheSameExpertsAreAlwaysFound) {
  ExpertChoices choices(small_mixture(), 40);
  for (std::uint32_t i = 0; i < 40; ++i) {
    choose(choices, 0, i, 6, 1);
    choose(choices, 2, i, 3, 4);
  }
  const std::vector<float> hits = choices.hits();
  ASSERT_EQ(hits.size(), kExpertHitSizes);
  for (std::uint32_t i = 0; i < kExpertHitSizes; ++i) {
    // The four fit from a quarter of the 16 on; three slots are the fewest.
    if (expert_hit_size(i) >= 0.25) {
      EXPECT_EQ(hits[i], 1.0F) << i;
    } else {
      EXPECT_LT(hits[i], 0.8F) << i;
    }
  }
}

// Prompts run layer by layer; the caches see the tokens one by one.
TEST(ExpertChoicesTest, TheOrderOfPassesDoesNotMatter) {
  constexpr std::uint32_t kTokens = 60;
  constexpr std::uint32_t kWindow = 20;
  ExpertChoices tokens(small_mixture(), kTokens);
  ExpertChoices windows(small_mixture(), kTokens);
  const auto first_of = [](std::uint32_t token, std::uint32_t layer) {
    return (token / 3 + layer) % 4;
  };
  const auto second_of = [](std::uint32_t token) { return 7 - token % 3; };
  for (std::uint32_t i = 0; i < kTokens; ++i) {
    for (const std::uint32_t layer : {0U, 2U}) {
      choose(tokens, layer, i, first_of(i, layer), second_of(i));
    }
  }
  for (std::uint32_t begin = 0; begin < kTokens; begin += kWindow) {
    for (const std::uint32_t layer : {0U, 2U}) {
      for (std::uint32_t i = 0; i < kWindow; ++i) {
        choose(windows, layer, begin + i, second_of(begin + i), first_of(begin + i, layer));
      }
    }
  }
  EXPECT_TRUE(std::ranges::equal(windows.bytes(), tokens.bytes()));
  EXPECT_EQ(windows.hits(), tokens.hits());
  EXPECT_EQ(tokens.hits().back(), 1.0F);
  EXPECT_LT(tokens.hits().front(), 0.9F);
}

TEST(ExpertChoicesTest, TokensBehindTheMostAreLeftOut) {
  ExpertChoices choices(small_mixture(), ExpertChoices::kMostTokens + 10);
  ExpertChoices most(small_mixture(), ExpertChoices::kMostTokens);
  EXPECT_EQ(choices.bytes().size(), most.bytes().size());
  EXPECT_LE(choices.bytes().size(), ExpertChoices::memory_bytes(small_mixture()));
  choose(choices, 2, ExpertChoices::kMostTokens - 1, 6, 7);
  choose(choices, 2, ExpertChoices::kMostTokens, 4, 5);
  EXPECT_EQ(static_cast<int>(choices.bytes().end()[-2]), 7);
}

}  // namespace
}  // namespace qsf
