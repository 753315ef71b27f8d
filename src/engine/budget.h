// SPDX-License-Identifier: MIT
//
// The RAM budget: fitting a model into it, and noticing when the limit of the process is lowered.
//
// fit_budget() chooses the context, the rows of a pass and the memory for weights. It takes only
// measures that keep every result, in a fixed order (docs/decisions/015-memory-plan.md). Memory is
// spent first on a ring that keeps the disk busy, then on up to 512 rows a pass, then on resident
// weights. When memory is short: fewer rows, no resident weights, a smaller ring, and a shorter
// context unless the user named one. It is arithmetic alone and reads no file and no machine.
//
// BudgetWatch: a control group's limit can be lowered at any time. Resident weights are then given
// back before the next pass, so that the kernel has no reason to kill the process. Less than what
// the plan takes without them cannot be reached.

#ifndef QSF_ENGINE_BUDGET_H_
#define QSF_ENGINE_BUDGET_H_

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "platform/memory_limits.h"

namespace qsf {

// What a choice costs, in bytes.
struct BudgetCosts {
  std::uint64_t base_bytes = 0;  // fixed: the program, threads, the tokenizer
  // Grows with the context alone: a prompt's text and tokens.
  std::function<std::uint64_t(std::uint32_t context)> context_bytes;
  // Activations of passes of `rows` rows, and the keys and values that such a pass needs at once.
  // Grows with both arguments.
  std::function<std::uint64_t(std::uint32_t rows, std::uint32_t context)> rows_bytes;
  std::uint64_t all_weight_bytes = 0;  // every weight in memory
  // The weights that must be resident, and a ring for the disk's full rate.
  std::uint64_t ring_weight_bytes = 0;
  std::uint64_t least_weight_bytes = 0;  // the same with the smallest ring
};

struct BudgetWishes {
  std::uint64_t budget_bytes = UINT64_MAX;  // UINT64_MAX: no bound
  std::uint32_t context = 1;                // positions
  bool context_named = false;               // by the user: kept, or the budget is rejected
  std::uint32_t rows = 1;                   // of a pass; at most `context`
};

struct BudgetFit {
  std::uint32_t context = 0;
  std::uint32_t rows = 0;
  std::uint64_t weight_bytes = 0;  // limit of the weights; at least least_weight_bytes
  bool everything_resident = false;
};

// Of a budget that is too small.
struct BudgetRefusal {
  std::uint64_t needed_bytes = 0;  // the smallest budget that works, in whole MB
  std::uint64_t budget_bytes = 0;
};

// The shortest context that is chosen when the user named none.
inline constexpr std::uint32_t kLeastContext = 1024;

// Returns the bytes of a choice, page tables included.
// Requires  1 <= rows <= context
std::uint64_t bytes_of(const BudgetCosts& costs, std::uint32_t context, std::uint32_t rows,
                       std::uint64_t weight_bytes);

// Chooses.
// Requires    1 <= wishes.rows <= wishes.context
// Guarantees  bytes_of(the choice) <= budget_bytes
// Fails       kOutOfBudget, naming the smallest budget that works in MB, and the longest context
//             that would fit this one where there is one; the sizes go to *refusal, if not null,
//             which is 0 where it fits
Result<BudgetFit> fit_budget(const BudgetCosts& costs, const BudgetWishes& wishes,
                             BudgetRefusal* refusal = nullptr);

// Threads  one at a time
class BudgetWatch {
 public:
  // `root` goes in front of /proc and /sys; empty on a real machine.
  BudgetWatch(std::uint64_t planned_bytes, const std::string& root)
      : limits_(root), held_bytes_(planned_bytes) {}

  // Returns the bytes to give back, each once: by how much the limit fell below what is held. Looks
  // at most every 100 ms. Allocates nothing.
  std::uint64_t bytes_to_give_back(std::uint64_t now_ns) noexcept;

 private:
  MemoryLimitWatch limits_;
  std::uint64_t held_bytes_;
  std::uint64_t next_look_ns_ = 0;
};

}  // namespace qsf

#endif  // QSF_ENGINE_BUDGET_H_
