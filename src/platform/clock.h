// SPDX-License-Identifier: MIT
//
// The clock for measuring durations.

#ifndef QSF_PLATFORM_CLOCK_H_
#define QSF_PLATFORM_CLOCK_H_

#include <cstdint>

namespace qsf {

// Returns nanoseconds since an arbitrary start; never goes back.
// Threads  any
std::uint64_t monotonic_ns() noexcept;

}  // namespace qsf

#endif  // QSF_PLATFORM_CLOCK_H_
