// SPDX-License-Identifier: MIT

#include "engine/log_probs.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "ops/log_sum_exp.h"

namespace qsf {

TopLogits::TopLogits(std::uint32_t n) : n_(n) {
  QSF_CHECK(n <= kMaxTopLogProbs);
  entries_.reserve(n_ + 1);
}

void TopLogits::add(TokenId first, std::span<const float> logits) {
  for (std::size_t i = 0; n_ != 0 && i < logits.size(); ++i) {
    const float logit = logits[i];
    if (!std::isfinite(logit)) continue;
    if (entries_.size() == n_ && !(logit > entries_.back().log_prob)) continue;
    const auto after = std::upper_bound(
        entries_.begin(), entries_.end(), logit,
        [](float value, const TokenLogProb& entry) { return value > entry.log_prob; });
    entries_.insert(after, {first + static_cast<TokenId>(i), logit});  // a logit as yet
    if (entries_.size() > n_) entries_.pop_back();
  }
}

std::span<const TokenLogProb> TopLogits::to_log_probs(double log_total) noexcept {
  for (TokenLogProb& entry : entries_) {
    entry.log_prob = static_cast<float>(static_cast<double>(entry.log_prob) - log_total);
  }
  return entries_;
}

LogProbs::LogProbs(std::uint32_t n_top) : top_logits_(n_top) {}

void LogProbs::take(std::span<const float> logits, std::span<float> kept) {
  std::copy(logits.begin(), logits.end(), kept.begin());
  kept_ = kept.first(logits.size());
  LogSumExp total;
  total.add(logits);
  log_total_ = total.value();
  top_logits_.clear();
  top_logits_.add(0, logits);
  top_ = top_logits_.to_log_probs(log_total_);
}

float LogProbs::of(TokenId token) const noexcept {
  return static_cast<float>(static_cast<double>(kept_[token]) - log_total_);
}

}  // namespace qsf
