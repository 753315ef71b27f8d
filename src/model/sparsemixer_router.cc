// SPDX-License-Identifier: MIT

#include "model/sparsemixer_router.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/portable_math.h"

namespace qsf {
namespace {

// A score that is not a number counts as the lowest.
float ordered(float score) noexcept {
  return std::isnan(score) ? std::numeric_limits<float>::lowest() : score;
}

// The best of all experts but `taken`, which is n_experts where none is.
ExpertChoice best_but(std::span<const float> scores, std::uint32_t taken, float margin) noexcept {
  std::uint32_t best = taken == 0 ? 1 : 0;
  for (std::uint32_t e = best + 1; e < scores.size(); ++e) {
    if (e != taken && ordered(scores[e]) > ordered(scores[best])) best = e;
  }
  const float top = ordered(scores[best]);
  double total = 0.0;
  for (std::uint32_t e = 0; e < scores.size(); ++e) {
    if (e == taken) continue;
    const float score = ordered(scores[e]);
    if ((top - score) / std::max(std::fabs(score), top) > 2.0F * margin) continue;
    total += portable::exp(static_cast<double>(score) - top);
  }
  return {best, static_cast<float>(1.0 / total)};
}

}  // namespace

void choose_by_sparsemixer(std::span<const float> scores, float margin,
                           std::span<ExpertChoice> chosen) noexcept {
  QSF_DCHECK(chosen.size() == 2 && scores.size() >= 2);
  chosen[0] = best_but(scores, static_cast<std::uint32_t>(scores.size()), margin);
  chosen[1] = best_but(scores, chosen[0].expert, margin);
}

}  // namespace qsf
