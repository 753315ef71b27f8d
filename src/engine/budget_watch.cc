// SPDX-License-Identifier: MIT

#include "engine/budget_watch.h"

namespace qsf {

std::uint64_t BudgetWatch::bytes_to_give_back(std::uint64_t now_ns) noexcept {
  constexpr std::uint64_t kBetweenLooksNs = 100'000'000;
  if (now_ns < next_look_ns_) return 0;
  next_look_ns_ = now_ns + kBetweenLooksNs;
  const std::uint64_t limit = limits_.limit_bytes();
  if (limit >= held_bytes_) return 0;
  const std::uint64_t excess = held_bytes_ - limit;
  held_bytes_ = limit;
  return excess;
}

}  // namespace qsf
