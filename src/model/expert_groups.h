// SPDX-License-Identifier: MIT
//
// Experts by rank: groups of neighbouring ones of which a row takes the best alone, and the best.

#ifndef QSF_MODEL_EXPERT_GROUPS_H_
#define QSF_MODEL_EXPERT_GROUPS_H_

#include <cstdint>
#include <limits>
#include <span>

#include "model/expert_router.h"

namespace qsf {

inline constexpr float kNeverChosen = -std::numeric_limits<float>::infinity();

// What a group is as good as: its largest rank, or the sum of its two largest.
enum class GroupRank : std::uint8_t { kLargest, kSumOfTwo };

// Makes the ranks of all groups but the n_used best kNeverChosen; of equal ones the first stay.
// Requires  n_groups divides ranks.size()
void mask_groups(GroupRank by, std::uint32_t n_groups, std::uint32_t n_used,
                 std::span<float> ranks) noexcept;

// Chooses the experts with the largest ranks, the first of equal ones before the second, and makes
// their ranks kNeverChosen. Requires  chosen.size() <= ranks.size()
void take_largest(std::span<float> ranks, std::span<ExpertChoice> chosen) noexcept;

}  // namespace qsf

#endif  // QSF_MODEL_EXPERT_GROUPS_H_
