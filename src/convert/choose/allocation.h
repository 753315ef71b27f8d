// SPDX-License-Identifier: MIT
//
// A multiple-choice knapsack: one choice per item, with a small total cost and a total size within
// a bound.
//
// Every item starts with its smallest choice. Then steps along the lower convex hull of each item's
// choices are taken by falling gain per byte, which is optimal for the sizes that it reaches
// (Everett, 1963). The remaining bytes go to improvements: another choice of one item, or an
// exchange between two, as long as one lowers the cost within the bound. The first item wins a tie,
// so the result depends on the numbers only.

#ifndef QSF_CONVERT_CHOOSE_ALLOCATION_H_
#define QSF_CONVERT_CHOOSE_ALLOCATION_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace qsf {

struct AllocationChoice {
  std::uint64_t bytes = 0;
  double cost = 0.0;
};

struct Allocation {
  std::vector<std::size_t> choices;  // by item
  std::uint64_t bytes = 0;           // of all
  double cost = 0.0;                 // of all
};

// Allocates. Choices may come in any order.
// Fails  kInvalidArgument on an item without choices, or a cost that is negative or not finite;
//        kOutOfBudget if fewest_bytes() is more than max_bytes
Result<Allocation> allocate(std::span<const std::vector<AllocationChoice>> items,
                            std::uint64_t max_bytes);

// Returns the total bytes of the smallest choices, the lower limit of any allocation.
std::uint64_t fewest_bytes(std::span<const std::vector<AllocationChoice>> items) noexcept;

}  // namespace qsf

#endif  // QSF_CONVERT_CHOOSE_ALLOCATION_H_
