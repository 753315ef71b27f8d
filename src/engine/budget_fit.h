// SPDX-License-Identifier: MIT
//
// Fitting a model into a budget: which context, how many rows a pass and how much memory for
// weights.
//
// Only measures that keep every result are taken, in a fixed order
// (docs/decisions/015-memory-plan.md): with what there is, first a ring that keeps the disk busy, then
// up to 512 rows a pass, then weights that stay in memory. When that is too much: fewer rows,
// nothing pinned, a smaller ring, and a shorter context where nobody named one. Arithmetic alone;
// nothing here knows a file or a machine.

#ifndef QSF_ENGINE_BUDGET_FIT_H_
#define QSF_ENGINE_BUDGET_FIT_H_

#include <cstdint>
#include <functional>

#include "base/result.h"

namespace qsf {

// What a choice costs, in bytes.
struct BudgetCosts {
  std::uint64_t base_bytes = 0;  // whatever is chosen: the program, threads, the tokenizer
  // Of what grows with the context alone: a prompt's text and tokens. Grows with its argument.
  std::function<std::uint64_t(std::uint32_t context)> context_bytes;
  // Of the activations of passes of so many rows, and of the keys and values that such passes need
  // at once. Grows with both arguments.
  std::function<std::uint64_t(std::uint32_t rows, std::uint32_t context)> rows_bytes;
  std::uint64_t all_weight_bytes = 0;  // every weight in memory
  // None but what must be, and a ring for the disk's full rate.
  std::uint64_t ring_weight_bytes = 0;
  std::uint64_t least_weight_bytes = 0;  // none but what must be, and the smallest ring
};

struct BudgetWishes {
  std::uint64_t budget_bytes = UINT64_MAX;  // UINT64_MAX: no bound
  std::uint32_t context = 1;                // positions
  bool context_named = false;               // by the user: it is kept or the budget is refused
  std::uint32_t rows = 1;                   // of a pass; at most `context`
};

struct BudgetFit {
  std::uint32_t context = 0;
  std::uint32_t rows = 0;
  std::uint64_t weight_bytes = 0;  // that weights may take: least_weight_bytes or more
  bool everything_resident = false;
};

// What a context is not shortened below by itself.
inline constexpr std::uint32_t kLeastContext = 1024;

// Returns what a choice takes in all, with the page tables of what is mapped for it.
// Requires  1 <= rows <= context
std::uint64_t bytes_of(const BudgetCosts& costs, std::uint32_t context, std::uint32_t rows,
                       std::uint64_t weight_bytes);

// Chooses.
// Requires    1 <= wishes.rows <= wishes.context
// Guarantees  bytes_of(the choice) <= budget_bytes
// Fails       kOutOfBudget, naming the smallest budget that works in MB, and the longest context
//             that would fit this one where there is one
Result<BudgetFit> fit_budget(const BudgetCosts& costs, const BudgetWishes& wishes);

}  // namespace qsf

#endif  // QSF_ENGINE_BUDGET_FIT_H_
