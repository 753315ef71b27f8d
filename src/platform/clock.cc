// SPDX-License-Identifier: MIT
//
// The steady clock of the standard library.

#include "platform/clock.h"

#include <chrono>

namespace qsf {

std::uint64_t monotonic_ns() noexcept {
  const auto since_start = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(since_start).count());
}

}  // namespace qsf
