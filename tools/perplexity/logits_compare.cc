// SPDX-License-Identifier: MIT

#include "tools/perplexity/logits_compare.h"

#include <algorithm>
#include <cmath>

namespace qsf_tools {

void RowLogits::add(std::size_t first_token, std::span<const float> logits,
                    std::size_t target) noexcept {
  const auto largest = std::max_element(logits.begin(), logits.end());
  const auto block_max = static_cast<double>(*largest);
  if (first_token == 0 || block_max > max_) {
    sum_ = first_token == 0 ? 0.0 : sum_ * std::exp(max_ - block_max);
    max_ = block_max;
    top_ = first_token + static_cast<std::size_t>(largest - logits.begin());
  }
  for (const float logit : logits) sum_ += std::exp(static_cast<double>(logit) - max_);
  if (target >= first_token && target - first_token < logits.size()) {
    target_logit_ = static_cast<double>(logits[target - first_token]);
  }
}

double RowLogits::log_z() const noexcept {
  return max_ + std::log(sum_);
}

LogitsComparison::LogitsComparison(std::size_t n_vocab, std::size_t max_rows)
    : n_vocab_(n_vocab), rows_(max_rows), reference_(n_vocab * max_rows) {}

void LogitsComparison::begin(std::span<const int> targets) noexcept {
  targets_ = targets;
  std::fill(rows_.begin(), rows_.end(), Row());
}

void LogitsComparison::add_reference(std::size_t row, std::size_t first_token,
                                     std::span<const float> logits) noexcept {
  rows_[row].reference.add(first_token, logits, static_cast<std::size_t>(targets_[row]));
  std::copy(logits.begin(), logits.end(), reference_.data() + row * n_vocab_ + first_token);
}

void LogitsComparison::add_model(std::size_t row, std::size_t first_token,
                                 std::span<const float> logits) noexcept {
  Row& state = rows_[row];
  state.model.add(first_token, logits, static_cast<std::size_t>(targets_[row]));
  const double log_z = state.reference.log_z();
  const float* const reference = reference_.data() + row * n_vocab_ + first_token;
  double sum = 0.0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const auto expected = static_cast<double>(reference[i]);
    const double probability = std::exp(expected - log_z);
    // A banned token is -infinity in both, and 0 * infinity is no number.
    if (probability > 0.0) sum += probability * (expected - static_cast<double>(logits[i]));
  }
  state.weighted += sum;
}

RowComparison LogitsComparison::row(std::size_t index) const noexcept {
  const Row& state = rows_[index];
  return {.divergence = state.weighted - state.reference.log_z() + state.model.log_z(),
          .same_top = state.reference.top() == state.model.top(),
          .log_prob = state.model.target_log_prob(),
          .reference_log_prob = state.reference.target_log_prob()};
}

}  // namespace qsf_tools
