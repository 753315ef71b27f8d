// SPDX-License-Identifier: MIT
//
// Holds selective scans, and what comes before and behind them, to plain loops in f64, with the
// same bits on every instruction set and however a text is cut into passes.

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

constexpr std::uint32_t kScanRows = 19;
constexpr std::uint32_t kScanHeads = 6;
constexpr std::uint32_t kScanHeadDim = 5;
constexpr std::uint32_t kState = 23;
constexpr std::uint32_t kInner = kScanHeads * kScanHeadDim;
constexpr std::uint32_t kStepAt = 3;   // column of the first time step
constexpr std::uint32_t kStateAt = 7;  // values of the layer's state in front of the heads'

class CpuScanTest : public testing::TestWithParam<BackendTier> {
 protected:
  CpuScanTest() {
    Rng rng(5);
    for (std::uint32_t i = 0; i < kScanRows; ++i) {
      rows_.push_back(random_values(kInner + 2 * kScanHeads * kState, rng));
      steps_.push_back(random_values(kStepAt + kScanHeads, rng));
      for (float& step : steps_.back()) step *= 4.0F;
    }
    decay_ = random_values(kScanHeads, rng);
    for (float& value : decay_) value = -std::fabs(value);
    bias_ = random_values(kScanHeads, rng);
    skip_ = random_values(kScanHeads, rng);
  }

  // Runs all rows in passes of `rows_per_pass`.
  std::vector<std::vector<float>> run(std::uint32_t n_groups, std::uint32_t rows_per_pass,
                                      unsigned n_threads) const {
    Bench bench(n_threads,
                {.max_rows = kScanRows,
                 .max_decode_rows = kScanRows,
                 .max_context = kScanRows,
                 .max_cols = 512},
                KvType::kF32, GetParam());
    const StateShape shape = {.n_layers = 2, .layer_size = kStateAt + kInner * kState};
    StateCache states =
        StateCache::create(shape, 1, bench.memory(StateCache::region_bytes(shape, 1)));
    Backend& backend = bench.backend();
    backend.attach_states(states);
    const std::uint32_t n_cols = kInner + 2 * n_groups * kState;
    const Buffer in = bench.buffer(kScanRows, n_cols);
    const Buffer steps = bench.buffer(kScanRows, kStepAt + kScanHeads);
    const Buffer out = bench.buffer(kScanRows, kInner);
    ScanArgs args = {.in = in,
                     .time_step = {steps, kStepAt},
                     .out = out,
                     .n_heads = kScanHeads,
                     .head_dim = kScanHeadDim,
                     .n_state = kState,
                     .n_groups = n_groups,
                     .state_at = kStateAt,
                     .decay = decay_,
                     .bias = bias_,
                     .skip = skip_};
    const auto upload = [&](std::uint32_t i, std::uint32_t row) {
      backend.upload_row(in, i, std::span(rows_[row]).first(n_cols));
      backend.upload_row(steps, i, steps_[row]);
    };
    const auto run_layer = [&](std::uint32_t layer) {
      args.layer = layer;
      backend.scan(args);
    };
    return run_in_passes(bench, states, kScanRows, rows_per_pass, out, upload, run_layer);
  }

  std::vector<std::vector<float>> rows_;
  std::vector<std::vector<float>> steps_;
  std::vector<float> decay_, bias_, skip_;
};

TEST_P(CpuScanTest, AHeadRemembersWhatItsGroupTakesIn) {
  for (const std::uint32_t n_groups : {1U, 2U, 6U}) {
    const auto got = run(n_groups, kScanRows, 2);
    std::vector<double> h(kInner * kState);
    std::vector<double> size(kInner * kState);
    for (std::uint32_t row = 0; row < kScanRows; ++row) {
      for (std::uint32_t i = 0; i < kInner; ++i) {
        const std::uint32_t head = i / kScanHeadDim;
        const double t =
            static_cast<double>(steps_[row][kStepAt + head]) + static_cast<double>(bias_[head]);
        const double step = std::log1p(std::exp(t));
        const double exponent = step * static_cast<double>(decay_[head]);
        const double x = static_cast<double>(rows_[row][i]);
        const std::size_t b_at = kInner + std::size_t{head / (kScanHeads / n_groups)} * kState;
        double want = static_cast<double>(skip_[head]) * x;
        double all = std::fabs(want);
        for (std::uint32_t n = 0; n < kState; ++n) {
          double& value = h[i * kState + n];
          double& sum = size[i * kState + n];
          const double in = step * x * static_cast<double>(rows_[row][b_at + n]);
          const double c = static_cast<double>(rows_[row][b_at + n_groups * kState + n]);
          value = std::exp(exponent) * value + in;
          sum = std::exp(exponent) * sum + std::fabs(in);
          want += value * c;
          all += sum * std::fabs(c);
        }
        // A step is off by |t| + 4 roundings, what is remembered by as many times the exponent and
        // 6 more in each row, and the sum by one for each value.
        const double most = (1.0 + std::fabs(exponent)) * (std::fabs(t) + 20.0) + 6.0;
        ASSERT_NEAR(got[row][i], want, (most * (row + 1) + kState) * 0x1p-24 * all)
            << n_groups << ' ' << row << ' ' << i;
      }
    }
  }
}

TEST_P(CpuScanTest, APromptInPiecesGivesTheBitsOfTheWhole) {
  for (const std::uint32_t n_groups : {1U, 3U}) {
    const auto whole = run(n_groups, kScanRows, 1);
    for (const std::uint32_t rows_per_pass : {1U, 2U, 7U, kScanRows}) {
      EXPECT_EQ(run(n_groups, rows_per_pass, 3), whole) << n_groups << ' ' << rows_per_pass;
    }
  }
}

// A time step far below 0 adds nothing and loses nothing; one far above is the step itself.
TEST_P(CpuScanTest, TimeStepsOfAnySizeAreSoftened) {
  for (auto& row : steps_) std::ranges::fill(row, -500.0F);
  const auto still = run(1, kScanRows, 1);
  for (std::uint32_t row = 0; row < kScanRows; ++row) {
    for (std::uint32_t i = 0; i < kInner; ++i) {
      EXPECT_EQ(still[row][i], skip_[i / kScanHeadDim] * rows_[row][i]) << row << ' ' << i;
    }
  }
  for (auto& row : steps_) std::ranges::fill(row, 100.0F);
  std::ranges::fill(decay_, -1.0F);
  const auto lost = run(1, kScanRows, 1);
  for (std::uint32_t row = 0; row < kScanRows; ++row) {
    for (std::uint32_t i = 0; i < kInner; ++i) {
      double product = 0;
      double all = 0;
      for (std::uint32_t n = 0; n < kState; ++n) {
        const double term = static_cast<double>(rows_[row][kInner + n]) *
                            static_cast<double>(rows_[row][kInner + kState + n]);
        product += term;
        all += std::fabs(term);
      }
      const double x = static_cast<double>(rows_[row][i]);
      const double step = 100.0 + static_cast<double>(bias_[i / kScanHeadDim]);
      const double skipped = static_cast<double>(skip_[i / kScanHeadDim]) * x;
      EXPECT_NEAR(lost[row][i], step * x * product + skipped,
                  (kState + 12) * 0x1p-24 * (step * std::fabs(x) * all + std::fabs(skipped)));
    }
  }
}

double silu(double x) {
  return x / (1.0 + std::exp(-x));
}

TEST_P(CpuScanTest, ColumnsAreGated) {
  constexpr std::uint32_t kCols = 40;
  Bench bench(2, {.max_rows = kScanRows, .max_context = kScanRows, .max_cols = 256}, KvType::kF32,
              GetParam());
  Backend& backend = bench.backend();
  const Buffer to = bench.buffer(kScanRows, kCols);
  const Buffer by = bench.buffer(kScanRows, kCols);
  bench.begin(kScanRows, RowRole::kPrompt);
  for (std::uint32_t i = 0; i < kScanRows; ++i) {
    backend.upload_row(to, i, std::span(rows_[i]).first(kCols));
    backend.upload_row(by, i, std::span(rows_[kScanRows - 1 - i]).first(kCols));
  }
  backend.gate({to, 2}, {by, 5}, 30, ActivationKind::kSilu);
  for (std::uint32_t i = 0; i < kScanRows; ++i) {
    const auto row = bench.read_row(to, i);
    for (std::uint32_t c = 0; c < kCols; ++c) {
      const bool inside = c >= 2 && c < 32;
      const double x = static_cast<double>(rows_[i][c]);
      const double want =
          inside ? silu(x) * static_cast<double>(rows_[kScanRows - 1 - i][c + 3]) : x;
      ASSERT_NEAR(row[c], want, inside ? 8 * 0x1p-24 * std::fabs(want) : 0.0) << i << ' ' << c;
    }
  }
}

TEST_P(CpuScanTest, AConvolutionMayHaveAnActivationBehindItsBias) {
  constexpr std::uint32_t kCols = 90;
  Bench bench(2, {.max_rows = kScanRows, .max_context = kScanRows, .max_cols = 256}, KvType::kF32,
              GetParam());
  Backend& backend = bench.backend();
  const StateShape shape = {.n_layers = 1, .layer_size = kCols};
  StateCache states =
      StateCache::create(shape, 1, bench.memory(StateCache::region_bytes(shape, 1)));
  backend.attach_states(states);
  const Buffer in = bench.buffer(kScanRows, kCols);
  const Buffer out = bench.buffer(kScanRows, kCols);
  const std::vector<float> taps(2 * kCols, 1.0F);
  states.begin(bench.sequence(), RowRole::kPrompt);
  bench.begin(kScanRows, RowRole::kPrompt);
  for (std::uint32_t i = 0; i < kScanRows; ++i) {
    backend.upload_row(in, i, std::span(rows_[i]).first(kCols));
  }
  backend.convolve({.in = {in, 0},
                    .out = out,
                    .n_channels = kCols,
                    .n_taps = 2,
                    .taps = taps,
                    .bias = rows_[0],
                    .activation = ActivationKind::kSilu});
  for (std::uint32_t i = 0; i < kScanRows; ++i) {
    const auto row = bench.read_row(out, i);
    for (std::uint32_t c = 0; c < kCols; ++c) {
      const float sum = ((i == 0 ? 0.0F : rows_[i - 1][c]) + rows_[i][c]) + rows_[0][c];
      const double want = silu(static_cast<double>(sum));
      ASSERT_NEAR(row[c], want, 8 * 0x1p-24 * std::fabs(want)) << i << ' ' << c;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiers, CpuScanTest, testing::ValuesIn(backend_tiers()),
                         [](const auto& tier) { return tier.param.name(); });

}  // namespace
}  // namespace qsf
