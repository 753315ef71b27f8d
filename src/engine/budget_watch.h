// SPDX-License-Identifier: MIT
//
// BudgetWatch: notices when the memory that this process may take is made less while it runs.
//
// A control group's limit can be lowered at any time. Weights that stay in memory for speed alone
// are then given back before the next pass, so that the kernel has no reason to kill. Below what
// the plan takes without them nothing helps.

#ifndef QSF_ENGINE_BUDGET_WATCH_H_
#define QSF_ENGINE_BUDGET_WATCH_H_

#include <cstdint>
#include <string>

#include "platform/memory_limits.h"

namespace qsf {

// Threads  one at a time
class BudgetWatch {
 public:
  // `root` goes in front of /proc and /sys; empty on a real machine.
  BudgetWatch(std::uint64_t planned_bytes, const std::string& root)
      : limits_(root), held_bytes_(planned_bytes) {}

  // Returns the bytes to give back because the limit is now below what is held, each once; looks no
  // more often than every 100 ms. Allocates nothing.
  std::uint64_t bytes_to_give_back(std::uint64_t now_ns) noexcept;

 private:
  MemoryLimitWatch limits_;
  std::uint64_t held_bytes_;
  std::uint64_t next_look_ns_ = 0;
};

}  // namespace qsf

#endif  // QSF_ENGINE_BUDGET_WATCH_H_
