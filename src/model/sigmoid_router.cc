// SPDX-License-Identifier: MIT

#include "model/sigmoid_router.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace qsf {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// A score that is not a number has the sigmoid 0.
float sigmoid(float score) noexcept {
  if (std::isnan(score)) return 0.0F;
  return static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(score))));
}

// The sum of the two largest.
float sum_of_best(std::span<const float> values) noexcept {
  float first = kNever;
  float second = kNever;
  for (const float value : values) {
    second = std::max(second, std::min(first, value));
    first = std::max(first, value);
  }
  // Scores as low as a float can be are still those of a group.
  return second == kNever ? kNever : std::max(first + second, std::numeric_limits<float>::lowest());
}

// Makes the sums of all groups but the `n_used` best -infinity.
void mask_groups(std::uint32_t n_groups, std::uint32_t n_used, std::span<float> sums) noexcept {
  const std::size_t in_group = sums.size() / n_groups;
  for (std::uint32_t n_masked = n_groups; n_masked > n_used; --n_masked) {
    // The worst of those that are left; the last of equal ones.
    std::size_t worst = sums.size();
    float least = 0.0F;
    for (std::size_t at = 0; at < sums.size(); at += in_group) {
      const float sum = sum_of_best(sums.subspan(at, in_group));
      if (sum == kNever || (worst != sums.size() && sum > least)) continue;
      worst = at;
      least = sum;
    }
    if (worst == sums.size()) return;
    std::fill_n(sums.begin() + static_cast<std::ptrdiff_t>(worst), in_group, kNever);
  }
}

}  // namespace

void choose_by_sigmoid(const ModelSpec& spec, std::span<const float> corrections,
                       std::span<const float> scores, std::span<float> sums,
                       std::span<ExpertChoice> chosen) noexcept {
  QSF_DCHECK(chosen.size() <= scores.size() && sums.size() == scores.size());
  for (std::size_t e = 0; e < scores.size(); ++e) {
    const float sum = sigmoid(scores[e]) + (corrections.empty() ? 0.0F : corrections[e]);
    sums[e] = std::isfinite(sum) ? sum : std::numeric_limits<float>::lowest();
  }
  if (spec.expert_groups > 1) mask_groups(spec.expert_groups, spec.expert_groups_used, sums);
  float total = spec.expert_epsilon;
  for (ExpertChoice& choice : chosen) {
    const auto best = std::max_element(sums.begin(), sums.end());
    *best = kNever;
    choice.expert = static_cast<std::uint32_t>(best - sums.begin());
    choice.weight = sigmoid(scores[choice.expert]);
    total += choice.weight;
  }
  if (!spec.expert_renormalised) return;
  for (ExpertChoice& choice : chosen) choice.weight /= total;
}

}  // namespace qsf
