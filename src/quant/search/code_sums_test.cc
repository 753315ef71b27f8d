// SPDX-License-Identifier: MIT
//
// Every method of this CPU gives the sums of plain arithmetic, also at the ends of every range.
// With QSF_EXPECT_ISA in the environment, the methods of that tier must be available.

#include "quant/search/search_loops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "quant/testing/expected_methods.h"

namespace qsf {
namespace {

std::span<const CodeSumsMethod> methods() {
  std::size_t n = 0;
  const CodeSumsMethod* const all = code_sums_methods(n);
  return {all, n};
}

// Both columns of `line` for block `lane` stand lane by lane.
std::size_t place(std::size_t column, std::size_t lane) {
  return column / 2 * kLineSize + lane * kLineColumns + column % 2;
}

std::int64_t floor_shift(std::int64_t value, int by) {
  const std::int64_t divisor = std::int64_t{1} << by;
  return (value - ((value % divisor + divisor) % divisor)) / divisor;
}

struct PlainCodeSums {
  std::int64_t code = 0, code_code = 0, weight_code = 0;
};

PlainCodeSums sum_plainly(const IntBlocks& blocks, IntGrid grid, const IntTrial& trial,
                          std::size_t lane) {
  PlainCodeSums sums;
  for (std::size_t c = 0; c < blocks.n_lines * kLineColumns; ++c) {
    const std::size_t at = place(c, lane);
    const std::int64_t product = std::int64_t{blocks.weights[at]} * trial.inverse[lane];
    const std::int64_t steps =
        floor_shift(floor_shift(product, 16) + trial.offset[lane], grid.shift);
    const std::int64_t code = std::clamp<std::int64_t>(steps, 0, grid.top);
    sums.code += blocks.costs[at] * code;
    sums.code_code += blocks.costs[at] * code * code;
    sums.weight_code += blocks.costed[at] * code;
  }
  return sums;
}

class CodeSumsTest : public ::testing::TestWithParam<std::size_t> {};

TEST_P(CodeSumsTest, EqualsPlainArithmetic) {
  const CodeSumsMethod& method = methods()[GetParam()];
  if (!method.is_available()) GTEST_SKIP() << "this CPU has no " << method.name;
  Rng rng(1);
  const auto whole = [&rng](int least, int most) {
    const auto at = static_cast<int>(rng.below(static_cast<std::uint32_t>(most - least + 1)));
    return rng.below(8) == 0 ? (rng.below(2) == 0 ? least : most) : least + at;
  };
  const auto blocks = std::make_unique<IntBlocks>();
  for (int round = 0; round < 200; ++round) {
    const std::size_t n_lines = kLinesAtOnce * (1 + rng.below(32));
    const int bits = static_cast<int>(n_lines <= 8 ? 6 : n_lines <= 16 ? 5 : 4);
    const IntGrid grid = {whole(1, (1 << bits) - 1), whole(0, 15)};
    blocks->n_lines = n_lines;
    for (std::size_t at = 0; at < n_lines * kLineSize; ++at) {
      blocks->weights[at] = static_cast<std::int16_t>(whole(-32768, 32767));
      blocks->costs[at] = static_cast<std::int16_t>(whole(0, 32767));
      blocks->costed[at] = static_cast<std::int16_t>(whole(-32767, 32767));
    }
    std::vector<IntTrial> trials(1 + rng.below(17));
    for (IntTrial& trial : trials) {
      for (std::size_t lane = 0; lane < kBlocksPerBatch; ++lane) {
        trial.inverse[lane] = whole(-32767, 32767);
        trial.offset[lane] = whole(-16383, 16383);
      }
    }
    std::vector<CodeSums> sums(trials.size());
    method.run(*blocks, grid, trials.data(), trials.size(), sums.data());
    for (std::size_t i = 0; i < trials.size(); ++i) {
      for (std::size_t lane = 0; lane < kBlocksPerBatch; ++lane) {
        const PlainCodeSums plain = sum_plainly(*blocks, grid, trials[i], lane);
        ASSERT_EQ(sums[i].code[lane], plain.code) << method.name;
        ASSERT_EQ(sums[i].code_code[lane], plain.code_code) << method.name;
        ASSERT_EQ(sums[i].weight_code[lane], plain.weight_code) << method.name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CodeSumsTest, ::testing::Range<std::size_t>(0, methods().size()),
                         [](const auto& param) {
                           return std::string(methods()[param.param].name);
                         });

TEST(CodeSumsTest, TheFastestMethodOfThisCpuIsChosen) {
  const auto best = std::find_if(methods().begin(), methods().end(),
                                 [](const CodeSumsMethod& m) { return m.is_available(); });
  ASSERT_NE(best, methods().end());
  EXPECT_EQ(best_code_sums(), best->run);
  EXPECT_TRUE(methods().back().is_available());
}

// What is not available is skipped above, and a search without it would only be slower.
TEST(CodeSumsTest, TheMethodsOfTheExpectedTierAreAvailable) {
  testing_support::expect_methods_of_tier(methods());
}

}  // namespace
}  // namespace qsf
