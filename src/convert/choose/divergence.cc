// SPDX-License-Identifier: MIT

#include "convert/choose/divergence.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/portable_math.h"
#include "base/ranges.h"
#include "ops/log_sum_exp.h"

namespace qsf {
namespace {

// Stores the logits of a window and the logarithm of the sum of their exponentials.
class ReferenceSink final : public LogitsSink {
 public:
  ReferenceSink(std::uint32_t n_vocab, std::span<float> logits, std::span<double> log_z)
      : n_vocab_(n_vocab), logits_(logits), log_z_(log_z), sums_(log_z.size()) {}

  void consume(std::uint32_t row, std::uint32_t first_token,
               std::span<const float> logits) noexcept override {
    ranges::copy(logits, logits_.begin() + static_cast<std::ptrdiff_t>(std::size_t{row} * n_vocab_ +
                                                                       first_token));
    sums_[row].add(logits);
    if (first_token + logits.size() == n_vocab_) log_z_[row] = sums_[row].value();
  }

 private:
  std::uint32_t n_vocab_;
  std::span<float> logits_;
  std::span<double> log_z_;
  std::vector<LogSumExp> sums_;
};

// Returns the sum of p (reference - model) over the vocabulary; the caller adds the two log Z.
class ComparingSink final : public LogitsSink {
 public:
  ComparingSink(std::uint32_t n_vocab, std::span<const float> logits, std::span<const double> log_z,
                std::span<double> divergences)
      : n_vocab_(n_vocab),
        logits_(logits),
        log_z_(log_z),
        divergences_(divergences),
        sums_(log_z.size()) {
    ranges::fill(divergences_, 0.0);
  }

  void consume(std::uint32_t row, std::uint32_t first_token,
               std::span<const float> logits) noexcept override {
    const auto expected = logits_.subspan(std::size_t{row} * n_vocab_ + first_token, logits.size());
    double sum = 0.0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const auto reference = static_cast<double>(expected[i]);
      const double p = portable::exp(reference - log_z_[row]);
      // A banned token is -infinity in both, and 0 * infinity is NaN.
      if (p > 0.0) sum += p * (reference - static_cast<double>(logits[i]));
    }
    divergences_[row] += sum;
    sums_[row].add(logits);
    if (first_token + logits.size() == n_vocab_) {
      divergences_[row] += sums_[row].value() - log_z_[row];
    }
  }

 private:
  std::uint32_t n_vocab_;
  std::span<const float> logits_;
  std::span<const double> log_z_;
  std::span<double> divergences_;
  std::vector<LogSumExp> sums_;
};

}  // namespace

DivergenceMeter::DivergenceMeter(std::span<const TokenId> tokens, std::uint32_t context,
                                 std::uint32_t n_vocab)
    : tokens_(tokens),
      context_(context),
      n_vocab_(n_vocab),
      logits_(tokens.size() * n_vocab),
      log_z_(tokens.size()),
      results_(tokens.size()) {}

Status DivergenceMeter::run(Engine& engine, bool reference) {
  for (std::size_t first = 0; first < tokens_.size(); first += context_) {
    const std::size_t n = std::min<std::size_t>(context_, tokens_.size() - first);
    const auto logits = std::span(logits_).subspan(first * n_vocab_, n * n_vocab_);
    const auto log_z = std::span(log_z_).subspan(first, n);
    const auto results = std::span(results_).subspan(first, n);
    QSF_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, engine.create_session());
    Status status;
    if (reference) {
      ReferenceSink sink(n_vocab_, logits, log_z);
      status = session->prefill_rows(tokens_.subspan(first, n), sink);
    } else {
      ComparingSink sink(n_vocab_, logits, log_z, results);
      status = session->prefill_rows(tokens_.subspan(first, n), sink);
    }
    QSF_RETURN_IF_ERROR(std::move(status));
  }
  const std::vector<double>& numbers = reference ? log_z_ : results_;
  const bool finite = ranges::all_of(numbers, [](double v) { return std::isfinite(v); });
  return finite ? ok_status() : corrupt("logits of the model: not finite; the model is damaged");
}

Status DivergenceMeter::take_reference(Engine& engine) {
  return run(engine, true);
}

Result<double> DivergenceMeter::measure(Engine& engine) {
  QSF_RETURN_IF_ERROR(run(engine, false));
  double sum = 0.0;
  for (const double divergence : results_) sum += divergence;
  // Equal models differ from 0 by rounding, on either side.
  return std::max(sum / static_cast<double>(results_.size()), 0.0);
}

}  // namespace qsf
