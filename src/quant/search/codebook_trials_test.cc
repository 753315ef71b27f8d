// SPDX-License-Identifier: MIT
//
// Every method of this CPU gives the bits of plain arithmetic. With QSF_EXPECT_ISA in the
// environment, the methods of that tier must be available.

#include "quant/search/search_loops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "quant/testing/expected_methods.h"

namespace qsf {
namespace {

constexpr QuantType kTrialTypes[] = {QuantType::kQ2Codebook, QuantType::kQ3Codebook,
                                     QuantType::kQ4Codebook};

struct PlainLevelSums {
  float error = 0.0F, w_level = 0.0F, level_level = 0.0F;
};

PlainLevelSums sum_plainly(const CodebookSubBlock& block, std::span<const std::int8_t> levels,
                           float scale) {
  PlainLevelSums sums;
  const float inverse = scale != 0.0F ? 1.0F / scale : 0.0F;
  for (std::size_t i = 0; i < block.n; ++i) {
    const float at = block.weights[i] * inverse;
    std::size_t code = 0;
    while (code + 1 < levels.size() &&
           at > 0.5F * static_cast<float>(levels[code] + levels[code + 1])) {
      ++code;
    }
    const auto level = static_cast<float>(levels[code]);
    const float r = block.weights[i] - scale * level;
    const float costed_level = block.costs[i] * level;
    sums.error += block.costs[i] * r * r;
    sums.w_level += costed_level * block.weights[i];
    sums.level_level += costed_level * level;
  }
  return sums;
}

class CodebookTrialsTest : public ::testing::TestWithParam<std::size_t> {};

TEST_P(CodebookTrialsTest, EqualsPlainArithmetic) {
  const CodebookTrialsMethod& method = codebook_trials_methods()[GetParam()];
  if (!method.is_available()) GTEST_SKIP() << "this CPU has no " << method.name;
  Rng rng(1);
  auto block = std::make_unique<CodebookSubBlock>();
  CodebookTrials trials;
  for (int round = 0; round < 300; ++round) {
    const auto levels = codebook_levels(kTrialTypes[round % 3]);
    block->n = 1 + rng.below(kMaxCodebookBlock);
    for (std::size_t i = 0; i < block->n; ++i) {
      block->weights[i] = rng.below(9) == 0 ? 0.0F : 0.1F * rng.next_normal();
      block->costs[i] = rng.below(9) == 0 ? 0.0F : std::fabs(rng.next_normal());
    }
    for (float& scale : trials.scale) scale = 0.002F * rng.next_normal();
    // None, halves of levels for some weights, and one so small that its inverse is infinite.
    trials.scale[3] = 0.0F;
    trials.scale[7] = block->weights[0] / (0.5F * static_cast<float>(levels[0] + levels[1]));
    trials.scale[11] = 1e-39F;
    trials.scale[15] = -trials.scale[7];
    method.run(*block, TrialLevels(levels), trials);
    for (std::size_t t = 0; t < kCodebookTrials; ++t) {
      const PlainLevelSums want = sum_plainly(*block, levels, trials.scale[t]);
      EXPECT_EQ(trials.error[t], want.error) << round << ' ' << t;
      EXPECT_EQ(trials.w_level[t], want.w_level) << round << ' ' << t;
      EXPECT_EQ(trials.level_level[t], want.level_level) << round << ' ' << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, CodebookTrialsTest,
                         testing::Range<std::size_t>(0, codebook_trials_methods().size()),
                         [](const auto& method) {
                           return std::string(codebook_trials_methods()[method.param].name);
                         });

// What is not available is skipped above, and a search without it would only be slower.
TEST(CodebookTrialsMethodsTest, TheMethodsOfTheExpectedTierAreAvailable) {
  testing_support::expect_methods_of_tier(codebook_trials_methods());
}

}  // namespace
}  // namespace qsf
