// SPDX-License-Identifier: MIT
//
// Every method of this CPU gives the bits of plain arithmetic. With QSF_EXPECT_ISA in the
// environment, the methods of that tier must be available.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/rng.h"
#include "quant/search/search_loops.h"
#include "quant/testing/expected_methods.h"

namespace qsf {
namespace {

struct PlainFieldSums {
  float error = 0.0F, r = 0.0F, r_code = 0.0F, code = 0.0F, code_code = 0.0F;
};

PlainFieldSums sum_plainly(const CostedColumns& block, float top, float scale, float min) {
  PlainFieldSums sums;
  const float inverse = scale != 0.0F ? 1.0F / scale : 0.0F;
  for (std::size_t i = 0; i < block.n; ++i) {
    const float steps = (block.weights[i] - min) * inverse + 0.5F;
    const auto code = static_cast<float>(static_cast<int>(std::clamp(steps, 0.0F, top)));
    const float r = block.weights[i] - (scale * code + min);
    const float costed_r = block.costs[i] * r;
    const float costed_code = block.costs[i] * code;
    sums.error += costed_r * r;
    sums.r += costed_r;
    sums.r_code += costed_r * code;
    sums.code += costed_code;
    sums.code_code += costed_code * code;
  }
  return sums;
}

class FieldTrialsTest : public ::testing::TestWithParam<std::size_t> {};

TEST_P(FieldTrialsTest, EqualsPlainArithmetic) {
  const FieldTrialsMethod& method = field_trials_methods()[GetParam()];
  if (!method.is_available()) GTEST_SKIP() << "this CPU has no " << method.name;
  Rng rng(1);
  FieldTrials trials = {};
  for (int round = 0; round < 300; ++round) {
    std::vector<float> weights(1 + rng.below(kMaxBlock));
    std::vector<float> costs(weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] = rng.below(9) == 0 ? 0.0F : 0.1F * rng.next_normal();
      costs[i] = rng.below(9) == 0 ? 0.0F : std::fabs(rng.next_normal());
    }
    const CostedColumns block = {weights.data(), costs.data(), weights.size()};
    const auto top = static_cast<float>(1 + rng.below(63));
    for (std::size_t t = 0; t < kFieldTrials; ++t) {
      trials.scale[t] = t == 5 ? 0.0F : 0.02F * rng.next_normal();
      trials.min[t] = 0.1F * rng.next_normal();
    }
    const std::size_t n_trials = 4 * (1 + rng.below(4));
    method.run(block, top, n_trials, trials);
    for (std::size_t t = 0; t < n_trials; ++t) {
      const PlainFieldSums want = sum_plainly(block, top, trials.scale[t], trials.min[t]);
      EXPECT_EQ(trials.error[t], want.error) << round << ' ' << t;
      EXPECT_EQ(trials.r[t], want.r) << round << ' ' << t;
      EXPECT_EQ(trials.r_code[t], want.r_code) << round << ' ' << t;
      EXPECT_EQ(trials.code[t], want.code) << round << ' ' << t;
      EXPECT_EQ(trials.code_code[t], want.code_code) << round << ' ' << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, FieldTrialsTest,
                         testing::Range<std::size_t>(0, field_trials_methods().size()),
                         [](const auto& method) {
                           return std::string(field_trials_methods()[method.param].name);
                         });

TEST(FieldTrialsMethodsTest, TheMethodsOfTheExpectedTierAreAvailable) {
  testing_support::expect_methods_of_tier(field_trials_methods());
}

}  // namespace
}  // namespace qsf
