// SPDX-License-Identifier: MIT

#include "engine/log_probs.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "ops/log_sum_exp.h"

namespace qsf {

LogProbs::LogProbs(std::uint32_t n_top) : n_top_(n_top) {
  QSF_CHECK(n_top <= kMaxTopLogProbs);
  top_.reserve(n_top_ + 1);
}

void LogProbs::take(std::span<const float> logits, std::span<float> kept) {
  std::copy(logits.begin(), logits.end(), kept.begin());
  kept_ = kept.first(logits.size());
  LogSumExp total;
  total.add(logits);
  log_total_ = total.value();
  top_.clear();
  for (TokenId id = 0; n_top_ != 0 && id < logits.size(); ++id) {
    const float logit = logits[id];
    if (!std::isfinite(logit)) continue;
    if (top_.size() == n_top_ && !(logit > top_.back().log_prob)) continue;
    const auto after = std::upper_bound(
        top_.begin(), top_.end(), logit,
        [](float value, const TokenLogProb& entry) { return value > entry.log_prob; });
    top_.insert(after, {id, logit});  // a logit as yet
    if (top_.size() > n_top_) top_.pop_back();
  }
  for (TokenLogProb& entry : top_) entry.log_prob = of(entry.token);
}

float LogProbs::of(TokenId token) const noexcept {
  return static_cast<float>(static_cast<double>(kept_[token]) - log_total_);
}

}  // namespace qsf
