// SPDX-License-Identifier: MIT
//
// Residual streams beside each other, which are mixed before a layer and corrected behind it, and
// FFNs of which the largest gates alone are kept (Gaussian top-k).
// Based on: AltUp (Baykal et al., "Alternating updates for efficient transformers", 2023) as Gemma
// 3n has it.
//
// A row is one thread's work and its sums have one order, so that a row's numbers do not depend on
// the rows beside it.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/portable_math.h"
#include "ops/cpu_backend.h"

namespace qsf {
namespace {

constexpr double kLeastMeanSquare = 1e-5;  // of the model's definition

// Returns the sum of term(0) .. term(n - 1), in eight parts, so that their additions overlap.
template <typename Term>
double sum_of_columns(std::uint32_t n, const Term& term) {
  constexpr std::uint32_t kSums = 8;
  std::array<double, kSums> sums = {};
  std::uint32_t c = 0;
  for (; c + kSums <= n; c += kSums) {
    for (std::uint32_t i = 0; i < kSums; ++i) sums[i] += term(c + i);
  }
  for (; c < n; ++c) sums[c % kSums] += term(c);
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

double mean_square(const float* x, std::uint32_t n) {
  return sum_of_columns(n, [x](std::uint32_t c) { return static_cast<double>(x[c]) * x[c]; }) / n;
}

using StreamFactors = std::array<float, kMaxStreams>;

// m of StreamArgs.
StreamFactors run_stream_router(const StreamArgs& args, const float* normed) {
  StreamFactors m = {};
  for (std::uint32_t k = 0; k < args.n_streams; ++k) {
    const float* const weights = args.router.data() + std::size_t{k} * args.n_cols;
    const double dot = sum_of_columns(args.n_cols, [weights, normed](std::uint32_t c) {
      return static_cast<double>(weights[c]) * normed[c];
    });
    m[k] = static_cast<float>(portable::tanh(dot / args.n_cols));
  }
  return m;
}

float weigh(const float* factors, const StreamFactors& m, std::uint32_t n) {
  float sum = 0.0F;
  for (std::uint32_t k = 0; k < n; ++k) sum += factors[k] * m[k];
  return sum;
}

}  // namespace

void CpuBackend::predict_streams(const StreamArgs& args) {
  const Observation observed(*this, OperatorKind::kResidual, args.normed, args.streams, {});
  const OperatorTimer timer(profile_[OperatorKind::kResidual]);
  const Matrix& streams = matrix(args.streams);
  const Matrix& normed = matrix(args.normed);
  const std::uint32_t n = args.n_streams;
  const std::uint32_t n_cols = args.n_cols;
  QSF_CHECK(n <= kMaxStreams && args.router.size() == std::size_t{n} * n_cols);
  QSF_DCHECK(n * n_cols <= streams.n_cols && n_cols <= normed.n_cols);
  QSF_DCHECK(args.factors.size() == std::size_t{n} * n * n);
  activation_rows_.invalidate(args.streams.id);
  for_rows(static_cast<std::uint32_t>(rows_.size()), [&](std::uint32_t row) {
    const StreamFactors m = run_stream_router(args, normed.row(row));
    std::array<StreamFactors, kMaxStreams> mix = {};
    for (std::uint32_t i = 0; i < n; ++i) {
      for (std::uint32_t j = 0; j < n; ++j) {
        mix[i][j] = weigh(args.factors.data() + (std::size_t{i} * n + j) * n, m, n);
      }
    }
    float* const x = streams.row(row);
    for (std::uint32_t c = 0; c < n_cols; ++c) {
      StreamFactors before = {};
      for (std::uint32_t j = 0; j < n; ++j) before[j] = x[std::size_t{j} * n_cols + c];
      for (std::uint32_t i = 0; i < n; ++i) {
        x[std::size_t{i} * n_cols + c] = before[i] + weigh(mix[i].data(), before, n);
      }
    }
  });
}

void CpuBackend::correct_streams(const StreamArgs& args) {
  const Observation observed(*this, OperatorKind::kResidual, args.active, args.streams, {});
  const OperatorTimer timer(profile_[OperatorKind::kResidual]);
  const Matrix& streams = matrix(args.streams);
  const Matrix& normed = matrix(args.normed);
  const Matrix& active = matrix(args.active);
  const std::uint32_t n = args.n_streams;
  const std::uint32_t n_cols = args.n_cols;
  QSF_CHECK(n <= kMaxStreams && args.router.size() == std::size_t{n} * n_cols);
  QSF_DCHECK(n * n_cols <= streams.n_cols && n_cols <= normed.n_cols && n_cols <= active.n_cols);
  QSF_DCHECK(args.factors.size() == std::size_t{n} * n && args.scale.size() == n_cols);
  activation_rows_.invalidate(args.streams.id);
  activation_rows_.invalidate(args.active.id);
  for_rows(static_cast<std::uint32_t>(rows_.size()), [&](std::uint32_t row) {
    const StreamFactors m = run_stream_router(args, normed.row(row));
    float* const x = streams.row(row);
    float* const y = active.row(row);
    StreamFactors shares = {};
    for (std::uint32_t i = 0; i < n; ++i) {
      shares[i] = 1.0F + weigh(args.factors.data() + std::size_t{i} * n, m, n);
    }
    for (std::uint32_t c = 0; c < n_cols; ++c) {
      const float innovation = y[c] - x[c];
      for (std::uint32_t i = 0; i < n; ++i) {
        x[std::size_t{i} * n_cols + c] += shares[i] * innovation;
      }
      y[c] = x[c] * args.scale[c];
    }
  });
}

void CpuBackend::match_length(Buffer x, BufferColumns like, std::uint32_t n_cols) {
  const Observation observed(*this, OperatorKind::kNorm, x, x, kernels_.elementwise.name);
  const OperatorTimer timer(profile_[OperatorKind::kNorm]);
  const Matrix& m = matrix(x);
  const Matrix& wanted = matrix(like.buffer);
  QSF_DCHECK(n_cols <= m.n_cols && like.first + n_cols <= wanted.n_cols);
  activation_rows_.invalidate(x.id);
  for_rows(static_cast<std::uint32_t>(rows_.size()), [&](std::uint32_t row) {
    const double want = mean_square(wanted.row(row) + like.first, n_cols);
    const double have = std::max(mean_square(m.row(row), n_cols), kLeastMeanSquare);
    kernels_.elementwise.scale(m.row(row), static_cast<float>(std::sqrt(want / have)), n_cols);
  });
}

void CpuBackend::cut(Buffer x, std::uint32_t n_cols, float deviations) {
  const Observation observed(*this, OperatorKind::kClamp, x, x, {});
  const OperatorTimer timer(profile_[OperatorKind::kClamp]);
  const Matrix& m = matrix(x);
  QSF_DCHECK(n_cols <= m.n_cols);
  activation_rows_.invalidate(x.id);
  for_rows(static_cast<std::uint32_t>(rows_.size()), [&](std::uint32_t row) {
    float* const values = m.row(row);
    const double mean =
        sum_of_columns(n_cols,
                       [values](std::uint32_t c) { return static_cast<double>(values[c]); }) /
        n_cols;
    const double variance = sum_of_columns(n_cols,
                                           [values, mean](std::uint32_t c) {
                                             const double difference = values[c] - mean;
                                             return difference * difference;
                                           }) /
                            n_cols;
    const auto limit = static_cast<float>(mean + deviations * std::sqrt(variance));
    for (std::uint32_t c = 0; c < n_cols; ++c) values[c] = std::max(values[c] - limit, 0.0F);
  });
}

}  // namespace qsf
