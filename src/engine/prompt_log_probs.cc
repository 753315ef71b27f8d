// SPDX-License-Identifier: MIT

#include "engine/prompt_log_probs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace qsf {

PromptLogProbs::PromptLogProbs(std::uint32_t n_drawable, std::size_t max_rows, std::uint32_t n_top,
                               LogitsSink& last)
    : n_drawable_(n_drawable), last_(last) {
  rows_.reserve(max_rows);
  for (std::size_t i = 0; i < max_rows; ++i) rows_.emplace_back(n_top);
}

void PromptLogProbs::begin(std::span<const TokenId> targets) {
  QSF_CHECK(targets.size() <= rows_.size());
  targets_ = targets;
}

void PromptLogProbs::consume(std::uint32_t row, std::uint32_t first_token,
                             std::span<const float> logits) noexcept {
  if (row >= targets_.size()) return last_.consume(0, first_token, logits);
  Row& state = rows_[row];
  if (first_token == 0) {
    state.total = {};
    state.target_logit = -std::numeric_limits<float>::infinity();
    state.top.clear();
  }
  if (first_token >= n_drawable_) return;
  const std::span<const float> drawable =
      logits.first(std::min<std::size_t>(logits.size(), n_drawable_ - first_token));
  state.total.add(drawable);
  state.top.add(first_token, drawable);
  const TokenId target = targets_[row];
  if (target >= first_token && target - first_token < drawable.size()) {
    state.target_logit = drawable[target - first_token];
  }
}

bool PromptLogProbs::is_sound(std::size_t row) const noexcept {
  return std::isfinite(rows_[row].total.value()) && !std::isnan(rows_[row].target_logit);
}

float PromptLogProbs::of(std::size_t row) const noexcept {
  const Row& state = rows_[row];
  return static_cast<float>(static_cast<double>(state.target_logit) - state.total.value());
}

std::span<const TokenLogProb> PromptLogProbs::top(std::size_t row) {
  return rows_[row].top.to_log_probs(rows_[row].total.value());
}

}  // namespace qsf
