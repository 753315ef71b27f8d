// SPDX-License-Identifier: MIT
//
// Trellis types: the search for a path against plain dynamic programming, and what it gains.

#include "quant/trellis.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/rng.h"
#include "quant/codec.h"
#include "quant/search/search_loops.h"
#include "quant/search/trellis_search.h"
#include "quant/testing/expected_methods.h"

namespace qsf {
namespace {

constexpr BlockFormat kFormats[] = {{QuantType::kQ2Trellis, 64}, {QuantType::kQ3Trellis, 64}};

std::vector<float> normal_row(std::size_t n, Rng& rng) {
  std::vector<float> row(n);
  for (float& w : row) w = 0.02F * rng.next_normal();
  return row;
}

std::vector<float> round_trip(BlockFormat format, const std::vector<float>& row,
                              const QuantOptions& options) {
  std::vector<std::byte> bytes(row_major_bytes(format, row.size()));
  encode_row(format, row, options, bytes);
  std::vector<float> back(row.size());
  decode_row(format, bytes, back);
  return back;
}

double squared_error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - b[i], 2);
  return sum;
}

TEST(TrellisTest, FourLevelsAreFourApartBehindEveryState) {
  for (unsigned state = 0; state < kTrellisStates; ++state) {
    unsigned levels[4];
    for (unsigned symbol = 0; symbol < 4; ++symbol) {
      levels[symbol] = trellis_index(symbol << 10U | state);
    }
    std::sort(std::begin(levels), std::end(levels));
    for (unsigned i = 1; i < 4; ++i) ASSERT_EQ(levels[i], levels[i - 1] + 4) << state;
  }
}

class TrellisStepsTest : public ::testing::TestWithParam<std::size_t> {};

TEST_P(TrellisStepsTest, EqualDynamicProgramming) {
  const TrellisStepsMethod& method = trellis_steps_methods()[GetParam()];
  if (!method.is_available()) GTEST_SKIP() << "this CPU has no " << method.name;
  constexpr std::size_t kSteps = 40;
  constexpr float kFar = 1e30F;
  Rng rng(1);
  std::vector<float> level_costs(16 * kSteps);
  for (float& cost : level_costs) cost = rng.next_f32();
  // States by their windows without the oldest symbol.
  std::vector<float> least(kTrellisStates, kFar);
  least[5] = 0.0F;
  for (std::size_t t = 0; t < kSteps; ++t) {
    std::vector<float> next(kTrellisStates, kFar);
    for (unsigned state = 0; state < kTrellisStates; ++state) {
      for (unsigned symbol = 0; symbol < 4; ++symbol) {
        const unsigned window = state | symbol << 10U;
        const float cost = least[state] + level_costs[16 * t + trellis_index(window)];
        next[window >> 2U] = std::min(next[window >> 2U], cost);
      }
    }
    least = next;
  }
  std::vector<float> costs(kTrellisStates, kFar);
  costs[trellis_state(5U << 2U)] = 0.0F;
  std::vector<std::uint8_t> from(kTrellisStates * kSteps);
  method.run(level_costs.data(), kSteps, costs.data(), from.data());
  for (unsigned state = 0; state < kTrellisStates; ++state) {
    ASSERT_EQ(costs[trellis_state(state << 2U)], least[state]) << state;
  }
  std::vector<float> baseline_costs(kTrellisStates, kFar);
  baseline_costs[trellis_state(5U << 2U)] = 0.0F;
  std::vector<std::uint8_t> baseline_from(from.size());
  take_trellis_steps_baseline(level_costs.data(), kSteps, baseline_costs.data(),
                              baseline_from.data());
  EXPECT_EQ(from, baseline_from);
}

TEST(TrellisTest, MethodsOfTheTierAreAvailable) {
  testing_support::expect_methods_of_tier(trellis_steps_methods());
}

INSTANTIATE_TEST_SUITE_P(Methods, TrellisStepsTest,
                         ::testing::Range(std::size_t{0}, trellis_steps_methods().size()),
                         [](const auto& tested) {
                           return std::string(trellis_steps_methods()[tested.param].name);
                         });

// Bounds a little above what was measured on 80,000 weights, 0.0704 and 0.0204.
TEST(TrellisTest, NormalWeightsLoseLessThanInCodebooks) {
  constexpr double kBounds[] = {0.074, 0.0215};
  Rng rng(2);
  for (std::size_t f = 0; f < std::size(kFormats); ++f) {
    double error = 0.0;
    double nearest = 0.0;
    double energy = 0.0;
    for (int r = 0; r < 8; ++r) {
      const std::vector<float> row = normal_row(2048, rng);
      error += squared_error(row, round_trip(kFormats[f], row, {}));
      nearest += squared_error(row, round_trip(kFormats[f], row, kNearestRounding));
      energy += squared_error(row, std::vector<float>(row.size()));
    }
    EXPECT_LT(error / energy, kBounds[f]) << quant_type_name(kFormats[f].type);
    EXPECT_LT(error, 0.985 * nearest) << "scales are not fitted";
  }
}

TEST(TrellisTest, ZeroBlocksStayZero) {
  Rng rng(3);
  for (const BlockFormat format : kFormats) {
    std::vector<float> row = normal_row(200, rng);
    std::fill(row.begin() + 64, row.begin() + 128, 0.0F);
    const std::vector<float> back = round_trip(format, row, {});
    EXPECT_TRUE(
        std::all_of(back.begin() + 64, back.begin() + 128, [](float w) { return w == 0.0F; }));
    EXPECT_EQ(round_trip(format, std::vector<float>(70), {}), std::vector<float>(70));
  }
}

// Columns of little importance may lie far off where that serves the others.
TEST(TrellisTest, ImportantColumnsAreCloser) {
  Rng rng(4);
  const std::vector<float> row = normal_row(4096, rng);
  std::vector<float> importance(row.size());
  for (std::size_t i = 0; i < row.size(); ++i) importance[i] = i % 8 == 0 ? 100.0F : 1.0F;
  for (const BlockFormat format : kFormats) {
    const std::vector<float> even = round_trip(format, row, {});
    const std::vector<float> weighted = round_trip(format, row, {.importance = importance});
    double plain_error = 0.0;
    double error = 0.0;
    for (std::size_t i = 0; i < row.size(); i += 8) {
      plain_error += std::pow(double{row[i]} - even[i], 2);
      error += std::pow(double{row[i]} - weighted[i], 2);
    }
    EXPECT_LT(error, 0.5 * plain_error) << quant_type_name(format.type);
  }
}

// A path chosen in parts, each with three blocks behind it in view, is nearly as good as that of a
// row.
TEST(TrellisTest, PartsOfARowGoOnWhereTheLastOneEnded) {
  Rng rng(5);
  constexpr std::size_t kCols = 2048;
  const std::vector<float> row = normal_row(kCols, rng);
  const std::vector<float> costs(kCols, 1.0F);
  const std::vector<float> scales(kCols, 0.02F * 0.0667F);
  TrellisSearch search(QuantType::kQ2Trellis);
  const auto error_of = [&](std::size_t part) {
    double error = 0.0;
    search.start_row();
    for (std::size_t first = 0; first < kCols; first += part) {
      const std::size_t n = std::min(part + 192, kCols - first);
      TrellisTargets targets;
      set_trellis_targets(std::span(row).subspan(first, n), costs, scales, targets);
      std::vector<std::uint8_t> codes(std::min(part, kCols - first));
      std::vector<float> values(codes.size());
      search.next(targets, codes, values);
      for (std::size_t i = 0; i < codes.size(); ++i) {
        error += std::pow(double{row[first + i]} - scales[0] * values[i], 2);
      }
    }
    return error;
  };
  EXPECT_LT(error_of(64), 1.05 * error_of(kCols));
}

}  // namespace
}  // namespace qsf
