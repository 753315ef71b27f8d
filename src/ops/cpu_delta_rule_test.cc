// SPDX-License-Identifier: MIT
//
// Holds gated delta rules to plain loops in f64, with the same bits on every instruction set and
// however a text is cut into passes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/testing/bench.h"
#include "ops/testing/state_passes.h"

namespace qsf {
namespace {

using testing_support::backend_tiers;
using testing_support::BackendTier;
using testing_support::Bench;
using testing_support::random_values;
using testing_support::run_in_passes;

constexpr std::uint32_t kDeltaRows = 19;
constexpr std::uint32_t kDeltaHeads = 6;
constexpr std::uint32_t kDeltaHeadDim = 39;  // a block of columns, and seven
constexpr std::uint32_t kDeltaState = 22;
constexpr std::uint32_t kDeltaInner = kDeltaHeads * kDeltaHeadDim;
constexpr std::uint32_t kDeltaStateAt = 7;  // values of the layer's state in front of the heads'

using DeltaRows = std::vector<std::vector<float>>;

class CpuDeltaRuleTest : public testing::TestWithParam<BackendTier> {
 protected:
  CpuDeltaRuleTest() {
    Rng rng(8);
    for (std::uint32_t i = 0; i < kDeltaRows; ++i) {
      rows_.push_back(random_values(2 * kDeltaHeads * kDeltaState + kDeltaInner, rng));
      rates_.push_back(random_values(kDeltaHeads, rng));
      steps_.push_back(random_values(kDeltaHeads, rng));
      for (float& step : steps_.back()) step *= 2.0F;
    }
    decay_ = random_values(kDeltaHeads, rng);
    for (float& value : decay_) value = -std::fabs(value);
    bias_ = random_values(kDeltaHeads, rng);
  }

  // Runs all rows in passes of `rows_per_pass`.
  DeltaRows run(std::uint32_t n_groups, bool in_turn, std::uint32_t rows_per_pass,
                unsigned n_threads) const {
    Bench bench(n_threads,
                {.max_rows = kDeltaRows,
                 .max_decode_rows = kDeltaRows,
                 .max_context = kDeltaRows,
                 .max_cols = 1024},
                KvType::kF32, GetParam());
    const StateShape shape = {.n_layers = 2,
                              .layer_size = kDeltaStateAt + kDeltaInner * kDeltaState};
    StateCache states =
        StateCache::create(shape, 1, bench.memory(StateCache::region_bytes(shape, 1)));
    Backend& backend = bench.backend();
    backend.attach_states(states);
    const std::uint32_t n_cols = 2 * n_groups * kDeltaState + kDeltaInner;
    const Buffer in = bench.buffer(kDeltaRows, n_cols);
    const Buffer rates = bench.buffer(kDeltaRows, kDeltaHeads);
    const Buffer steps = bench.buffer(kDeltaRows, kDeltaHeads);
    const Buffer out = bench.buffer(kDeltaRows, kDeltaInner);
    DeltaRuleArgs args = {.in = in,
                          .rate = rates,
                          .time_step = steps,
                          .out = out,
                          .n_heads = kDeltaHeads,
                          .head_dim = kDeltaHeadDim,
                          .n_state = kDeltaState,
                          .n_groups = n_groups,
                          .heads_in_turn = in_turn,
                          .state_at = kDeltaStateAt,
                          .decay = decay_,
                          .bias = bias_};
    const auto upload = [&](std::uint32_t i, std::uint32_t row) {
      backend.upload_row(in, i, std::span(rows_[row]).first(n_cols));
      backend.upload_row(rates, i, rates_[row]);
      backend.upload_row(steps, i, steps_[row]);
    };
    const auto run_layer = [&](std::uint32_t layer) {
      args.layer = layer;
      backend.delta_rule(args);
    };
    return run_in_passes(bench, states, kDeltaRows, rows_per_pass, out, upload, run_layer);
  }

  // Returns columns [at, at + kDeltaState) of a row, of length `length`.
  std::vector<double> unit(std::uint32_t row, std::size_t at, double length) const {
    std::vector<double> x(rows_[row].begin() + static_cast<std::ptrdiff_t>(at),
                          rows_[row].begin() + static_cast<std::ptrdiff_t>(at + kDeltaState));
    double squares = 1e-6;
    for (const double value : x) squares += value * value;
    for (double& value : x) value *= length / std::sqrt(squares);
    return x;
  }

  DeltaRows rows_, rates_, steps_;
  std::vector<float> decay_, bias_;
};

TEST_P(CpuDeltaRuleTest, AKeyAsksForWhatItsRowGaveIt) {
  struct Case {
    std::uint32_t n_groups;
    bool in_turn;
  };
  for (const auto& [n_groups, in_turn] :
       {Case{1, false}, {2, false}, {2, true}, {3, true}, {6, false}}) {
    const DeltaRows got = run(n_groups, in_turn, kDeltaRows, 2);
    std::vector<double> state(kDeltaInner * kDeltaState);
    for (std::uint32_t row = 0; row < kDeltaRows; ++row) {
      for (std::uint32_t i = 0; i < kDeltaInner; ++i) {
        const std::uint32_t head = i / kDeltaHeadDim;
        const std::uint32_t group = in_turn ? head % n_groups : head / (kDeltaHeads / n_groups);
        const auto query = unit(row, std::size_t{group} * kDeltaState, 1 / std::sqrt(kDeltaState));
        const auto key = unit(row, std::size_t{n_groups + group} * kDeltaState, 1.0);
        const double t = static_cast<double>(steps_[row][head]) + static_cast<double>(bias_[head]);
        const double decay = std::exp(std::log1p(std::exp(t)) * static_cast<double>(decay_[head]));
        const double rate = 1 / (1 + std::exp(-static_cast<double>(rates_[row][head])));
        double* const column = &state[std::size_t{i} * kDeltaState];
        double change = static_cast<double>(rows_[row][2 * n_groups * kDeltaState + i]);
        for (std::uint32_t n = 0; n < kDeltaState; ++n) {
          column[n] *= decay;
          change -= column[n] * key[n];
        }
        double want = 0;
        double all = 0;
        for (std::uint32_t n = 0; n < kDeltaState; ++n) {
          column[n] += rate * change * key[n];
          want += column[n] * query[n];
          all += std::fabs(column[n] * query[n]);
        }
        // A decay makes old errors small; what is asked for a key is off by a few roundings of all
        // that was there, and so is what is asked for a query.
        ASSERT_NEAR(got[row][i], want, 200 * 0x1p-24 * (all + std::fabs(change)))
            << n_groups << ' ' << in_turn << ' ' << row << ' ' << i;
      }
    }
  }
}

TEST_P(CpuDeltaRuleTest, APromptInPiecesGivesTheBitsOfTheWhole) {
  for (const std::uint32_t n_groups : {1U, 3U}) {
    const DeltaRows whole = run(n_groups, false, kDeltaRows, 1);
    for (const std::uint32_t rows_per_pass : {1U, 2U, 7U, kDeltaRows}) {
      EXPECT_EQ(run(n_groups, false, rows_per_pass, 3), whole) << n_groups << ' ' << rows_per_pass;
    }
  }
}

// With a rate of 1 and no decay a head gives for a key, asked as a query, the last value it was
// given for that key, whatever it was given before.
TEST_P(CpuDeltaRuleTest, ANewValueReplacesThatOfItsKey) {
  for (std::uint32_t row = 0; row < kDeltaRows; ++row) {
    std::ranges::fill(rates_[row], 100.0F);
    std::ranges::fill(steps_[row], -500.0F);
    std::copy_n(rows_[row].begin() + kDeltaState, kDeltaState, rows_[row].begin());
  }
  const DeltaRows got = run(1, false, kDeltaRows, 2);
  for (std::uint32_t row = 0; row < kDeltaRows; ++row) {
    for (std::uint32_t i = 0; i < kDeltaInner; ++i) {
      const double value = static_cast<double>(rows_[row][2 * kDeltaState + i]);
      ASSERT_NEAR(got[row][i] * std::sqrt(kDeltaState), value, 1e-5) << row << ' ' << i;
    }
  }
}

// Neither keys nor queries of zeros make something that is no number.
TEST_P(CpuDeltaRuleTest, AKeyOfZerosChangesNothing) {
  for (auto& row : rows_) std::fill_n(row.begin(), 2 * kDeltaState, 0.0F);
  for (const auto& row : run(1, false, kDeltaRows, 2)) {
    EXPECT_EQ(row, std::vector<float>(kDeltaInner));
  }
}

INSTANTIATE_TEST_SUITE_P(Tiers, CpuDeltaRuleTest, testing::ValuesIn(backend_tiers()),
                         [](const auto& tier) { return tier.param.name(); });

}  // namespace
}  // namespace qsf
