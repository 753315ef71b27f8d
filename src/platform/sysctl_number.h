// SPDX-License-Identifier: MIT

#ifndef QSF_PLATFORM_SYSCTL_NUMBER_H_
#define QSF_PLATFORM_SYSCTL_NUMBER_H_

#include <cstdint>

namespace qsf {

// Returns a number that macOS has under `name` (sysctlbyname), 0 where it has none. Only there.
// Threads  any
std::uint64_t sysctl_number(const char* name) noexcept;

}  // namespace qsf

#endif  // QSF_PLATFORM_SYSCTL_NUMBER_H_
