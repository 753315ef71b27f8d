// SPDX-License-Identifier: MIT
//
// Which of its choices each of many items takes so that their costs together are small and their
// bytes together are at most so many: a knapsack with one choice of each item.
//
// Items first take their fewest bytes. Then steps along the lower convex hull of each item's
// choices are taken by falling gain a byte, which is optimal for the sizes it comes to (Everett,
// 1963); what is left over goes to improvements: any other choice of an item, or exchanges of two
// items, as long as one lowers the cost within the bytes. Ties go to the item that comes first, so
// the result depends on the numbers alone.

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
//        kOutOfBudget when all items' fewest bytes are more than max_bytes
Result<Allocation> allocate(std::span<const std::vector<AllocationChoice>> items,
                            std::uint64_t max_bytes);

// Returns the bytes of every item's smallest choice together, below which nothing is.
std::uint64_t fewest_bytes(std::span<const std::vector<AllocationChoice>> items) noexcept;

}  // namespace qsf

#endif  // QSF_CONVERT_CHOOSE_ALLOCATION_H_
