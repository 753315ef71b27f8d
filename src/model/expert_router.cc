// SPDX-License-Identifier: MIT

#include "model/expert_router.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace qsf {
namespace {

// A score that is not a number is chosen last.
float comparable(float score) noexcept {
  return std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
}

}  // namespace

void choose_experts(std::span<const float> scores, bool renormalise,
                    std::span<ExpertChoice> chosen) noexcept {
  QSF_DCHECK(chosen.size() <= scores.size());
  if (chosen.empty()) return;
  // The best so far, best first; of equal ones the first.
  auto end = chosen.begin();
  for (std::uint32_t e = 0; e < scores.size(); ++e) {
    const auto place = std::upper_bound(chosen.begin(), end, comparable(scores[e]),
                                        [&](float score, const ExpertChoice& choice) {
                                          return score > comparable(scores[choice.expert]);
                                        });
    if (place == chosen.end()) continue;
    if (end != chosen.end()) ++end;
    std::move_backward(place, end - 1, end);
    place->expert = e;
  }
  const double most = comparable(scores[chosen[0].expert]);
  double total = 0.0;
  for (std::size_t e = 0; e < (renormalise ? chosen.size() : scores.size()); ++e) {
    total += std::exp(comparable(scores[renormalise ? chosen[e].expert : e]) - most);
  }
  for (ExpertChoice& choice : chosen) {
    choice.weight = static_cast<float>(std::exp(comparable(scores[choice.expert]) - most) / total);
  }
}

ExpertRows::ExpertRows(const ModelSpec& spec, std::uint32_t max_rows)
    : renormalise_(spec.expert_renormalised),
      scale_(spec.residual_scale),
      n_used_(spec.n_experts_used),
      ends_(std::size_t{spec.n_experts} + 1) {
  const std::size_t most = std::size_t{max_rows} * n_used_;
  choices_.reserve(most);
  rows_.resize(most);
  weights_.resize(most);
}

void ExpertRows::clear() noexcept {
  choices_.clear();
}

void ExpertRows::add(std::span<const float> scores) {
  QSF_DCHECK(choices_.size() + n_used_ <= rows_.size());
  choices_.resize(choices_.size() + n_used_);
  choose_experts(scores, renormalise_, std::span(choices_).last(n_used_));
}

void ExpertRows::sort() {
  std::fill(ends_.begin(), ends_.end(), 0);
  for (const ExpertChoice& choice : choices_) ++ends_[choice.expert + 1];
  for (std::size_t e = 1; e < ends_.size(); ++e) ends_[e] += ends_[e - 1];
  // Rows are placed from the last one on, each at the end of its expert's part, which moves to the
  // part's start.
  for (std::size_t i = choices_.size(); i > 0; --i) {
    const ExpertChoice& choice = choices_[i - 1];
    const std::uint32_t at = --ends_[choice.expert + 1];
    rows_[at] = static_cast<std::uint32_t>((i - 1) / n_used_);
    weights_[at] = choice.weight * scale_;
  }
  // Now ends_[e + 1] is the start of expert e.
  std::rotate(ends_.begin(), ends_.begin() + 1, ends_.end());
  ends_.back() = static_cast<std::uint32_t>(choices_.size());
}

std::span<const std::uint32_t> ExpertRows::rows_of(std::uint32_t expert) const noexcept {
  return std::span(rows_).subspan(ends_[expert], ends_[expert + 1] - ends_[expert]);
}

std::span<const float> ExpertRows::weights_of(std::uint32_t expert) const noexcept {
  return std::span(weights_).subspan(ends_[expert], ends_[expert + 1] - ends_[expert]);
}

}  // namespace qsf
