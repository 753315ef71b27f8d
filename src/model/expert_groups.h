// SPDX-License-Identifier: MIT
//
// Groups of neighbouring experts of which a row takes the best alone.

#ifndef QSF_MODEL_EXPERT_GROUPS_H_
#define QSF_MODEL_EXPERT_GROUPS_H_

#include <cstdint>
#include <limits>
#include <span>

namespace qsf {

inline constexpr float kNeverChosen = -std::numeric_limits<float>::infinity();

// What a group is as good as: its largest rank, or the sum of its two largest.
enum class GroupRank : std::uint8_t { kLargest, kSumOfTwo };

// Makes the ranks of all groups but the n_used best kNeverChosen; of equal ones the first stay.
// Requires  n_groups divides ranks.size()
void mask_groups(GroupRank by, std::uint32_t n_groups, std::uint32_t n_used,
                 std::span<float> ranks) noexcept;

}  // namespace qsf

#endif  // QSF_MODEL_EXPERT_GROUPS_H_
