// SPDX-License-Identifier: MIT

#include "model/sigmoid_router.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/portable_math.h"
#include "model/expert_groups.h"

namespace qsf {
namespace {

// A score that is not a number has the sigmoid 0.
float sigmoid(float score) noexcept {
  if (std::isnan(score)) return 0.0F;
  return static_cast<float>(1.0 / (1.0 + portable::exp(-static_cast<double>(score))));
}

}  // namespace

void rank_by_sigmoid(const ModelSpec& spec, std::span<const float> corrections,
                     std::span<const float> scores, std::span<float> ranks) noexcept {
  QSF_DCHECK(ranks.size() == scores.size());
  // Sigmoids of large scores are equal, so those choose themselves where they can.
  const bool by_score = corrections.empty() && spec.expert_groups == 1;
  for (std::size_t e = 0; e < scores.size(); ++e) {
    const float sum =
        by_score ? scores[e] : sigmoid(scores[e]) + (corrections.empty() ? 0.0F : corrections[e]);
    using Limits = std::numeric_limits<float>;
    ranks[e] =
        std::isnan(sum) ? Limits::lowest() : std::clamp(sum, Limits::lowest(), Limits::max());
  }
  if (spec.expert_groups > 1) {
    mask_groups(GroupRank::kSumOfTwo, spec.expert_groups, spec.expert_groups_used, ranks);
  }
}

void weigh_by_sigmoid(const ModelSpec& spec, std::span<const float> scores,
                      std::span<ExpertChoice> chosen) noexcept {
  float total = spec.expert_epsilon;
  for (ExpertChoice& choice : chosen) {
    choice.weight = sigmoid(scores[choice.expert]);
    total += choice.weight;
  }
  if (!spec.expert_renormalised) return;
  for (ExpertChoice& choice : chosen) choice.weight /= total;
}

void choose_by_sigmoid(const ModelSpec& spec, std::span<const float> corrections,
                       std::span<const float> scores, std::span<float> ranks,
                       std::span<ExpertChoice> chosen) noexcept {
  QSF_DCHECK(chosen.size() <= scores.size());
  rank_by_sigmoid(spec, corrections, scores, ranks);
  take_largest(ranks, chosen);
  weigh_by_sigmoid(spec, scores, chosen);
}

}  // namespace qsf
