// SPDX-License-Identifier: MIT
//
// Trellis types: the search for a path against plain dynamic programming, and what it gains.

#include "quant/trellis.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/rng.h"
#include "quant/codec.h"
#include "quant/search/trellis_search.h"
#include "quant/search/trellis_steps.h"
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
  Rng rng(1);
  std::vector<std::int16_t> level_costs(kTrellisLevels * kSteps);
  for (std::int16_t& cost : level_costs) cost = static_cast<std::int16_t>(rng.next_f32() * 800);
  struct alignas(64) Costs {
    std::int16_t of[kTrellisStates];
  };
  std::vector<Costs> costs(kSteps + 1);
  std::vector<int> least(kTrellisStates, 10000);
  least[5] = INT16_MIN;
  for (unsigned state = 0; state < kTrellisStates; ++state) {
    costs[0].of[trellis_place(state, false)] = static_cast<std::int16_t>(least[state]);
  }
  method.run(level_costs.data(), kSteps, costs[0].of);
  for (std::size_t t = 0; t < kSteps; ++t) {
    std::vector<int> next(kTrellisStates, INT_MAX);
    for (unsigned state = 0; state < kTrellisStates; ++state) {
      for (unsigned symbol = 0; symbol < 4; ++symbol) {
        const unsigned window = state | symbol << 10U;
        const int cost = least[state] + level_costs[kTrellisLevels * t + trellis_index(window)];
        next[window >> 2U] = std::min(next[window >> 2U], cost);
      }
    }
    least = next;
    for (unsigned state = 0; state < kTrellisStates; ++state) {
      const unsigned place = trellis_place(state, t % 2 == 0);
      ASSERT_EQ(trellis_state_at(place, t % 2 == 0), state);
      ASSERT_EQ(costs[t + 1].of[place], least[state]) << t << ", " << state;
    }
  }
}

// Returns the least cost of a path, summed as it is.
double least_cost(QuantType type, const TrellisTargets& targets) {
  double sum = 0.0;
  for (std::size_t stream = 0; stream < kTrellisStreams; ++stream) {
    std::vector<double> least(kTrellisStates, HUGE_VAL);
    least[0] = 0.0;
    for (std::size_t i = stream; i < targets.values.size(); i += kTrellisStreams) {
      std::vector<double> next(kTrellisStates, HUGE_VAL);
      for (unsigned window = 0; window < kTrellisWindows; ++window) {
        const double distance =
            targets.values[i] + kTrellisZero - trellis_levels(type)[trellis_index(window)];
        const double nearest = type == QuantType::kQ3Trellis && distance > 0.5 * kTrellisRefinement
                                   ? distance - kTrellisRefinement
                                   : distance;
        const double cost =
            least[window & (kTrellisStates - 1)] + targets.costs[i] * nearest * nearest;
        next[window >> 2U] = std::min(next[window >> 2U], cost);
      }
      least = next;
    }
    sum += *std::min_element(least.begin(), least.end());
  }
  return sum;
}

double path_cost(QuantType type, const TrellisTargets& targets) {
  TrellisSearch search(type);
  std::vector<std::uint8_t> codes(targets.values.size());
  std::vector<float> values(codes.size());
  search.next(targets, codes, values);
  double cost = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    cost += targets.costs[i] * std::pow(double{targets.values[i]} - values[i], 2);
  }
  return cost;
}

// Costs are counted in 16 bits, in a row with weights far out, columns of very uneven cost and some
// that cost nothing.
TEST(TrellisTest, PathsCostHardlyMoreThanTheLeast) {
  constexpr std::size_t kCols = 1401;
  Rng rng(7);
  for (const BlockFormat format : kFormats) {
    for (const float unevenness : {0.0F, 1.0F, 3.0F}) {
      TrellisTargets targets;
      for (std::size_t i = 0; i < kCols; ++i) {
        targets.values.push_back((i % 50 == 0 ? 60.0F : 14.0F) * rng.next_normal());
        targets.costs.push_back(i % 97 == 0 ? 0.0F
                                            : 1e-9F * std::exp(unevenness * rng.next_normal()));
      }
      EXPECT_LT(path_cost(format.type, targets), 1.01 * least_cost(format.type, targets))
          << quant_type_name(format.type) << ", " << unevenness;
    }
  }
}

// Sums leave 16 bits several times.
TEST(TrellisTest, LongRowsCostNoMoreThanTheirParts) {
  constexpr std::size_t kPart = 4096;
  constexpr std::size_t kParts = 6;
  for (const BlockFormat format : kFormats) {
    Rng rng(8);
    TrellisTargets row;
    double of_parts = 0.0;
    for (std::size_t p = 0; p < kParts; ++p) {
      TrellisTargets part;
      for (std::size_t i = 0; i < kPart; ++i) part.values.push_back(14.0F * rng.next_normal());
      part.costs.assign(kPart, 1.0F);
      of_parts += path_cost(format.type, part);
      row.values.insert(row.values.end(), part.values.begin(), part.values.end());
    }
    row.costs.assign(row.values.size(), 1.0F);
    EXPECT_LT(path_cost(format.type, row), of_parts) << quant_type_name(format.type);
  }
}

// The four values that can follow the state of a start may all be far off.
TEST(TrellisTest, RowsStartWithTheNearestOfFourValues) {
  for (const BlockFormat format : kFormats) {
    for (const float target : {90.0F, -90.0F}) {
      const TrellisTargets targets = {std::vector<float>(4, target), std::vector<float>(4, 1.0F)};
      TrellisSearch search(format.type);
      std::vector<std::uint8_t> codes(4);
      std::vector<float> values(4);
      search.next(targets, codes, values);
      const float refined =
          format.type == QuantType::kQ3Trellis && target > 0.0F ? kTrellisRefinement : 0.0F;
      float nearest = HUGE_VALF;
      for (unsigned symbol = 0; symbol < 4; ++symbol) {
        const unsigned level = trellis_levels(format.type)[trellis_index(symbol << 10U)];
        const float value = static_cast<float>(level) - kTrellisZero + refined;
        if (std::fabs(value - target) < std::fabs(nearest - target)) nearest = value;
      }
      EXPECT_EQ(values, std::vector<float>(4, nearest)) << quant_type_name(format.type);
    }
  }
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
