// SPDX-License-Identifier: MIT

#include "convert/choose/divergence.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/portable_math.h"
#include "base/ranges.h"
#include "ops/log_sum_exp.h"

namespace qsf {
namespace {

// Stores the probabilities of a window, sum of p log p and the logarithm of the sum of
// exponentials.
class ReferenceSink final : public LogitsSink {
 public:
  ReferenceSink(std::uint32_t n_vocab, std::span<float> p, std::span<double> log_z,
                std::span<double> negentropy)
      : n_vocab_(n_vocab), p_(p), log_z_(log_z), negentropy_(negentropy), sums_(log_z.size()) {}

  void consume(std::uint32_t row, std::uint32_t first_token,
               std::span<const float> logits) noexcept override {
    const std::span<float> of_row = p_.subspan(std::size_t{row} * n_vocab_, n_vocab_);
    ranges::copy(logits, of_row.begin() + first_token);
    sums_[row].add(logits);
    if (first_token + logits.size() != n_vocab_) return;
    log_z_[row] = sums_[row].value();
    double sum = 0.0;
    for (float& value : of_row) {
      const double log_p = static_cast<double>(value) - log_z_[row];
      value = static_cast<float>(portable::exp(log_p));
      // A banned token is -infinity, and 0 * infinity is NaN.
      if (value > 0.0F) sum += static_cast<double>(value) * log_p;
    }
    negentropy_[row] = sum;
  }

 private:
  std::uint32_t n_vocab_;
  std::span<float> p_;
  std::span<double> log_z_;
  std::span<double> negentropy_;
  std::vector<LogSumExp> sums_;
};

// Returns the sum of p log p - p log q over the vocabulary.
class ComparingSink final : public LogitsSink {
 public:
  ComparingSink(std::uint32_t n_vocab, std::span<const float> p, std::span<const double> negentropy,
                std::span<double> divergences)
      : n_vocab_(n_vocab),
        p_(p),
        negentropy_(negentropy),
        divergences_(divergences),
        sums_(negentropy.size()) {
    ranges::fill(divergences_, 0.0);
  }

  void consume(std::uint32_t row, std::uint32_t first_token,
               std::span<const float> logits) noexcept override {
    const auto p = p_.subspan(std::size_t{row} * n_vocab_ + first_token, logits.size());
    RowSums& sums = sums_[row];
    // Four sums side by side.
    std::array<double, 4> p_logits{};
    std::array<double, 4> all_p{};
    for (std::size_t i = 0; i < logits.size(); ++i) {
      // A banned token is -infinity in both, and 0 * infinity is NaN.
      const double product = p[i] > 0.0F ? static_cast<double>(p[i]) * logits[i] : 0.0;
      p_logits[i % 4] += product;
      all_p[i % 4] += p[i];
    }
    sums.p_logits += (p_logits[0] + p_logits[1]) + (p_logits[2] + p_logits[3]);
    sums.p += (all_p[0] + all_p[1]) + (all_p[2] + all_p[3]);
    sums.all.add(logits);
    if (first_token + logits.size() == n_vocab_) {
      // The rounded probabilities do not add up to exactly 1.
      divergences_[row] = negentropy_[row] - sums.p_logits + sums.p * sums.all.value();
    }
  }

 private:
  struct RowSums {
    LogSumExp all;
    double p_logits = 0.0;
    double p = 0.0;
  };
  std::uint32_t n_vocab_;
  std::span<const float> p_;
  std::span<const double> negentropy_;
  std::span<double> divergences_;
  std::vector<RowSums> sums_;
};

}  // namespace

DivergenceMeter::DivergenceMeter(std::span<const TokenId> tokens, std::uint32_t context,
                                 std::uint32_t n_vocab)
    : tokens_(tokens),
      context_(context),
      n_vocab_(n_vocab),
      p_(tokens.size() * n_vocab),
      log_z_(tokens.size()),
      negentropy_(tokens.size()),
      results_(tokens.size()) {}

Status DivergenceMeter::run_all(RunWindow run, bool reference) {
  for (std::size_t first = 0; first < tokens_.size(); first += context_) {
    const std::size_t n = std::min<std::size_t>(context_, tokens_.size() - first);
    const auto p = std::span(p_).subspan(first * n_vocab_, n * n_vocab_);
    const auto negentropy = std::span(negentropy_).subspan(first, n);
    if (reference) {
      ReferenceSink sink(n_vocab_, p, std::span(log_z_).subspan(first, n), negentropy);
      QSF_RETURN_IF_ERROR(run(first, tokens_.subspan(first, n), sink));
    } else {
      ComparingSink sink(n_vocab_, p, negentropy, std::span(results_).subspan(first, n));
      QSF_RETURN_IF_ERROR(run(first, tokens_.subspan(first, n), sink));
    }
  }
  const std::vector<double>& numbers = reference ? log_z_ : results_;
  const bool finite = ranges::all_of(numbers, [](double v) { return std::isfinite(v); });
  return finite ? ok_status() : corrupt("logits of the model: not finite; the model is damaged");
}

Status DivergenceMeter::take_reference(RunWindow run) {
  return run_all(run, true);
}

Result<double> DivergenceMeter::measure(RunWindow run) {
  QSF_RETURN_IF_ERROR(run_all(run, false));
  double sum = 0.0;
  for (const double divergence : results_) sum += divergence;
  // Equal models differ from 0 by rounding, on either side.
  return std::max(sum / static_cast<double>(results_.size()), 0.0);
}

}  // namespace qsf
