// SPDX-License-Identifier: MIT
//
// Holds the operators of layers with a state to plain loops in f64, with the same bits on every
// instruction set and however a text is cut into passes.

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

constexpr std::uint32_t kConvolvedRows = 23;
constexpr std::uint32_t kChannels = 150;    // two whole blocks and a part
constexpr std::uint32_t kFirstChannel = 5;  // column of the first channel in the input

struct Convolution {
  std::uint32_t n_taps;
  bool has_bias;
};

class CpuStateTest : public testing::TestWithParam<BackendTier> {
 protected:
  CpuStateTest() {
    Rng rng(3);
    for (std::uint32_t i = 0; i < kConvolvedRows; ++i) {
      rows_.push_back(random_values(kFirstChannel + kChannels, rng));
    }
    taps_ = random_values(16 * kChannels, rng);
    bias_ = random_values(kChannels, rng);
  }

  // Runs all rows in passes of `rows_per_pass`.
  std::vector<std::vector<float>> run(const Convolution& of, std::uint32_t rows_per_pass,
                                      unsigned n_threads) const {
    Bench bench(n_threads,
                {.max_rows = kConvolvedRows,
                 .max_decode_rows = kConvolvedRows,
                 .max_context = kConvolvedRows,
                 .max_cols = 256},
                KvType::kF32, GetParam());
    const StateShape shape = {.n_layers = 2, .layer_size = (of.n_taps - 1) * kChannels};
    StateCache states =
        StateCache::create(shape, 1, bench.memory(StateCache::region_bytes(shape, 1)));
    Backend& backend = bench.backend();
    backend.attach_states(states);
    const Buffer in = bench.buffer(kConvolvedRows, kFirstChannel + kChannels);
    const Buffer out = bench.buffer(kConvolvedRows, kChannels);
    ConvolveArgs args = {.in = {in, kFirstChannel},
                         .out = out,
                         .n_channels = kChannels,
                         .n_taps = of.n_taps,
                         .taps = std::span(taps_).first(of.n_taps * kChannels)};
    if (of.has_bias) args.bias = bias_;
    const auto upload = [&](std::uint32_t i, std::uint32_t row) {
      backend.upload_row(in, i, rows_[row]);
    };
    const auto run_layer = [&](std::uint32_t layer) {
      args.layer = layer;
      backend.convolve(args);
    };
    return run_in_passes(bench, states, kConvolvedRows, rows_per_pass, out, upload, run_layer);
  }

  std::vector<std::vector<float>> rows_;
  std::vector<float> taps_;
  std::vector<float> bias_;
};

TEST_P(CpuStateTest, AConvolutionSeesTheRowsBeforeIt) {
  for (const Convolution of : {Convolution{3, false}, {2, true}, {4, true}, {16, false}}) {
    const auto got = run(of, kConvolvedRows, 2);
    for (std::uint32_t row = 0; row < kConvolvedRows; ++row) {
      for (std::uint32_t c = 0; c < kChannels; ++c) {
        double want = of.has_bias ? bias_[c] : 0.0;
        double size = std::fabs(want);
        for (std::uint32_t back = 0; back < of.n_taps && back <= row; ++back) {
          const double term = static_cast<double>(taps_[(of.n_taps - 1 - back) * kChannels + c]) *
                              static_cast<double>(rows_[row - back][kFirstChannel + c]);
          want += term;
          size += std::fabs(term);
        }
        // A rounding for each product and each sum.
        ASSERT_NEAR(got[row][c], want, (2.0 * of.n_taps + 1) * 0x1p-24 * size)
            << of.n_taps << ' ' << row << ' ' << c;
      }
    }
  }
}

TEST_P(CpuStateTest, APromptInPiecesGivesTheBitsOfTheWhole) {
  for (const Convolution of : {Convolution{3, false}, {4, true}, {16, true}}) {
    const auto whole = run(of, kConvolvedRows, 1);
    for (const std::uint32_t rows_per_pass : {1U, 2U, 5U, 9U, kConvolvedRows}) {
      EXPECT_EQ(run(of, rows_per_pass, 3), whole) << of.n_taps << ' ' << rows_per_pass;
    }
  }
}

TEST_P(CpuStateTest, ColumnsAreMultiplied) {
  Bench bench(2, {.max_rows = kConvolvedRows, .max_context = kConvolvedRows, .max_cols = 256},
              KvType::kF32, GetParam());
  const Buffer to = bench.buffer(kConvolvedRows, kFirstChannel + kChannels);
  const Buffer by = bench.buffer(kConvolvedRows, kChannels);
  bench.begin(kConvolvedRows, RowRole::kPrompt);
  for (std::uint32_t i = 0; i < kConvolvedRows; ++i) {
    bench.backend().upload_row(to, i, rows_[i]);
    bench.backend().upload_row(by, i, std::span(rows_[kConvolvedRows - 1 - i]).first(kChannels));
  }
  bench.backend().multiply({to, kFirstChannel}, {by, 7}, 90);
  for (std::uint32_t i = 0; i < kConvolvedRows; ++i) {
    const auto row = bench.read_row(to, i);
    for (std::uint32_t c = 0; c < kFirstChannel + kChannels; ++c) {
      const bool inside = c >= kFirstChannel && c < kFirstChannel + 90;
      const float want =
          inside ? rows_[i][c] * rows_[kConvolvedRows - 1 - i][c - kFirstChannel + 7] : rows_[i][c];
      ASSERT_EQ(row[c], want) << i << ' ' << c;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiers, CpuStateTest, testing::ValuesIn(backend_tiers()),
                         [](const auto& tier) { return tier.param.name(); });

}  // namespace
}  // namespace qsf
