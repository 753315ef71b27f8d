// SPDX-License-Identifier: MIT
//
// Holds operators of residual streams, and the cut of gates, to plain loops in f64, and to the same
// bits on every instruction set, beside any other rows and on any number of threads.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/testing/bench.h"

namespace qsf {
namespace {

using testing_support::backend_tiers;
using testing_support::BackendTier;
using testing_support::Bench;
using testing_support::random_values;

constexpr std::uint32_t kStreamRows = 19;
constexpr std::uint32_t kStreamCols = 45;  // not a multiple of eight
using StreamRows = std::vector<std::vector<float>>;

double mean_square_of(const float* x, std::uint32_t n) {
  double sum = 0;
  for (std::uint32_t c = 0; c < n; ++c) sum += static_cast<double>(x[c]) * x[c];
  return sum / n;
}

class CpuStreamsTest : public testing::TestWithParam<BackendTier> {
 protected:
  static PassLimits limits() {
    return {.max_rows = kStreamRows,
            .max_decode_rows = kStreamRows,
            .max_context = kStreamRows,
            .max_cols = 512};
  }
  static StreamRows random_rows(std::uint32_t n_cols, Rng& rng) {
    StreamRows rows;
    for (std::uint32_t i = 0; i < kStreamRows; ++i) rows.push_back(random_values(n_cols, rng));
    return rows;
  }
  static StreamRows rows_of(Bench& bench, Buffer from, std::size_t n_rows) {
    StreamRows rows;
    for (std::uint32_t i = 0; i < n_rows; ++i) {
      const auto row = bench.read_row(from, i);
      rows.emplace_back(row.begin(), row.end());
    }
    return rows;
  }

  // What random streams and rows become of the first n rows.
  struct Outcome {
    StreamRows streams;
    StreamRows active;
    friend bool operator==(const Outcome&, const Outcome&) = default;
  };
  void draw(std::uint32_t n_streams) {
    Rng rng(n_streams);
    n_ = n_streams;
    streams_ = random_rows(n_ * kStreamCols, rng);
    normed_ = random_rows(kStreamCols, rng);
    active_ = random_rows(kStreamCols, rng);
    router_ = random_values(std::size_t{n_} * kStreamCols, rng);
    for (float& value : router_) value *= 6.0F;  // tanh bends
    predict_ = random_values(std::size_t{n_} * n_ * n_, rng);
    correct_ = random_values(std::size_t{n_} * n_, rng);
    scale_ = random_values(kStreamCols, rng);
  }
  Outcome run(bool correct, std::uint32_t n_rows, unsigned n_threads) const {
    Bench bench(n_threads, limits(), KvType::kF32, GetParam());
    Backend& backend = bench.backend();
    const Buffer streams = bench.buffer(kStreamRows, n_ * kStreamCols);
    const Buffer normed = bench.buffer(kStreamRows, kStreamCols);
    const Buffer active = bench.buffer(kStreamRows, kStreamCols);
    bench.begin(n_rows, RowRole::kGenerated);
    for (std::uint32_t i = 0; i < n_rows; ++i) {
      backend.upload_row(streams, i, streams_[i]);
      backend.upload_row(normed, i, normed_[i]);
      backend.upload_row(active, i, active_[i]);
    }
    StreamArgs args = {.streams = streams,
                       .normed = normed,
                       .active = active,
                       .n_streams = n_,
                       .n_cols = kStreamCols,
                       .router = router_,
                       .factors = correct ? correct_ : predict_,
                       .scale = scale_};
    if (correct) {
      backend.correct_streams(args);
    } else {
      backend.predict_streams(args);
    }
    return {rows_of(bench, streams, n_rows), rows_of(bench, active, n_rows)};
  }
  std::vector<double> routed_streams(std::uint32_t row) const {
    std::vector<double> m(n_);
    for (std::uint32_t k = 0; k < n_; ++k) {
      for (std::uint32_t c = 0; c < kStreamCols; ++c) {
        m[k] += static_cast<double>(router_[k * kStreamCols + c]) * normed_[row][c] / kStreamCols;
      }
      m[k] = std::tanh(m[k]);
    }
    return m;
  }

  std::uint32_t n_ = 0;
  StreamRows streams_, normed_, active_;
  std::vector<float> router_, predict_, correct_, scale_;
};

TEST_P(CpuStreamsTest, StreamsBecomeSumsOfAllThatTheRouterWeighs) {
  for (const std::uint32_t n : {2U, 3U, 4U, kMaxStreams}) {
    draw(n);
    const StreamRows got = run(false, kStreamRows, 2).streams;
    for (std::uint32_t row = 0; row < kStreamRows; ++row) {
      const std::vector<double> m = routed_streams(row);
      for (std::uint32_t i = 0; i < n * kStreamCols; ++i) {
        double want = static_cast<double>(streams_[row][i]);
        for (std::uint32_t j = 0; j < n; ++j) {
          double factor = 0;
          for (std::uint32_t k = 0; k < n; ++k) {
            factor += predict_[(i / kStreamCols * n + j) * n + k] * m[k];
          }
          want += factor * streams_[row][j * kStreamCols + i % kStreamCols];
        }
        ASSERT_NEAR(got[row][i], want, 1e-5 * n) << n << ' ' << row << ' ' << i;
      }
    }
  }
}

TEST_P(CpuStreamsTest, StreamsAreCorrectedByWhatThePredictionLacked) {
  for (const std::uint32_t n : {2U, 3U, 4U, kMaxStreams}) {
    draw(n);
    const Outcome got = run(true, kStreamRows, 2);
    for (std::uint32_t row = 0; row < kStreamRows; ++row) {
      const std::vector<double> m = routed_streams(row);
      for (std::uint32_t i = 0; i < n * kStreamCols; ++i) {
        const std::uint32_t c = i % kStreamCols;
        double share = 1;
        for (std::uint32_t k = 0; k < n; ++k) share += correct_[i / kStreamCols * n + k] * m[k];
        const double lacked =
            static_cast<double>(active_[row][c]) - static_cast<double>(streams_[row][c]);
        const double want = streams_[row][i] + share * lacked;
        ASSERT_NEAR(got.streams[row][i], want, 1e-5 * n) << n << ' ' << row << ' ' << i;
        if (i >= kStreamCols) continue;
        ASSERT_NEAR(got.active[row][c], scale_[c] * want, 2e-5 * n) << n << ' ' << row << ' ' << i;
      }
    }
  }
}

TEST_P(CpuStreamsTest, ARowHasTheSameBitsBesideAnyOthers) {
  for (const std::uint32_t n : {3U, 4U}) {
    draw(n);
    for (const bool correct : {false, true}) {
      const Outcome all = run(correct, kStreamRows, 1);
      EXPECT_EQ(run(correct, kStreamRows, 3), all);
      const Outcome few = run(correct, 2, 1);
      EXPECT_TRUE(std::equal(few.streams.begin(), few.streams.end(), all.streams.begin()));
      EXPECT_TRUE(std::equal(few.active.begin(), few.active.end(), all.active.begin()));
    }
  }
}

// Columns beside those that are named, and streams other than the first, are left alone.
TEST_P(CpuStreamsTest, RowsGetTheLengthOfAnother) {
  constexpr std::uint32_t kFirst = 7;
  Bench bench(2, limits(), KvType::kF32, GetParam());
  Backend& backend = bench.backend();
  Rng rng(3);
  StreamRows x = random_rows(kStreamCols + 3, rng);
  const StreamRows like = random_rows(kFirst + kStreamCols + 5, rng);
  std::fill(x[1].begin(), x[1].end(), 0.0F);
  for (float& value : x[2]) value *= 1e-4F;  // below the least mean square
  const Buffer to = bench.buffer(kStreamRows, kStreamCols + 3);
  const Buffer of = bench.buffer(kStreamRows, kFirst + kStreamCols + 5);
  bench.begin(kStreamRows, RowRole::kPrompt);
  for (std::uint32_t i = 0; i < kStreamRows; ++i) {
    backend.upload_row(to, i, x[i]);
    backend.upload_row(of, i, like[i]);
  }
  backend.match_length(to, {of, kFirst}, kStreamCols);
  const StreamRows got = rows_of(bench, to, kStreamRows);
  for (std::uint32_t row = 0; row < kStreamRows; ++row) {
    const double want = mean_square_of(like[row].data() + kFirst, kStreamCols);
    const double have = std::max(mean_square_of(x[row].data(), kStreamCols), 1e-5);
    for (std::uint32_t c = 0; c < kStreamCols + 3; ++c) {
      const double factor = c < kStreamCols ? std::sqrt(want / have) : 1.0;
      ASSERT_NEAR(got[row][c], factor * x[row][c], 1e-6 * std::fabs(factor * x[row][c]))
          << row << ' ' << c;
    }
  }
}

TEST_P(CpuStreamsTest, GatesAreCutAtDeviationsAboveTheirMean) {
  for (const std::uint32_t n_cols : {1U, 6U, kStreamCols}) {
    for (const float deviations : {0.0F, 0.5F, -1.0F, 1.6448534F}) {
      Bench bench(2, limits(), KvType::kF32, GetParam());
      Backend& backend = bench.backend();
      Rng rng(n_cols);
      StreamRows x = random_rows(kStreamCols, rng);
      for (float& value : x[0]) value += 100.0F;  // the mean is far above the deviation
      std::fill(x[1].begin(), x[1].end(), 3.0F);
      const Buffer to = bench.buffer(kStreamRows, kStreamCols);
      bench.begin(kStreamRows, RowRole::kPrompt);
      for (std::uint32_t i = 0; i < kStreamRows; ++i) backend.upload_row(to, i, x[i]);
      backend.cut(to, n_cols, deviations);
      const StreamRows got = rows_of(bench, to, kStreamRows);
      for (std::uint32_t row = 0; row < kStreamRows; ++row) {
        double mean = 0;
        double variance = 0;
        for (std::uint32_t c = 0; c < n_cols; ++c) mean += static_cast<double>(x[row][c]) / n_cols;
        for (std::uint32_t c = 0; c < n_cols; ++c) {
          variance += (x[row][c] - mean) * (x[row][c] - mean) / n_cols;
        }
        for (std::uint32_t c = 0; c < kStreamCols; ++c) {
          const double above =
              x[row][c] - (mean + static_cast<double>(deviations) * std::sqrt(variance));
          const double want = c < n_cols ? std::max(above, 0.0) : static_cast<double>(x[row][c]);
          ASSERT_NEAR(got[row][c], want, 1e-6 * (1 + std::fabs(mean))) << n_cols << ' ' << row;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiers, CpuStreamsTest, testing::ValuesIn(backend_tiers()),
                         [](const auto& param) { return param.param.name(); });

}  // namespace
}  // namespace qsf
