// SPDX-License-Identifier: MIT

#include "model/expert_groups.h"

#include <algorithm>

namespace qsf {
namespace {

float group_rank(GroupRank by, std::span<const float> ranks) noexcept {
  float first = kNeverChosen;
  float second = kNeverChosen;
  for (const float rank : ranks) {
    second = std::max(second, std::min(first, rank));
    first = std::max(first, rank);
  }
  if (by == GroupRank::kLargest) return first;
  if (second == kNeverChosen) return kNeverChosen;
  // Ranks as low as a float can be are still those of a group.
  return std::max(first + second, std::numeric_limits<float>::lowest());
}

}  // namespace

void mask_groups(GroupRank by, std::uint32_t n_groups, std::uint32_t n_used,
                 std::span<float> ranks) noexcept {
  const std::size_t in_group = ranks.size() / n_groups;
  for (std::uint32_t n_masked = n_groups; n_masked > n_used; --n_masked) {
    // The worst of those that are left; the last of equal ones.
    std::size_t worst = ranks.size();
    float least = 0.0F;
    for (std::size_t at = 0; at < ranks.size(); at += in_group) {
      const float rank = group_rank(by, ranks.subspan(at, in_group));
      if (rank == kNeverChosen || (worst != ranks.size() && rank > least)) continue;
      worst = at;
      least = rank;
    }
    if (worst == ranks.size()) return;
    std::fill_n(ranks.begin() + static_cast<std::ptrdiff_t>(worst), in_group, kNeverChosen);
  }
}

void take_largest(std::span<float> ranks, std::span<ExpertChoice> chosen) noexcept {
  for (ExpertChoice& choice : chosen) {
    const auto best = std::max_element(ranks.begin(), ranks.end());
    *best = kNeverChosen;
    choice.expert = static_cast<std::uint32_t>(best - ranks.begin());
  }
}

}  // namespace qsf
