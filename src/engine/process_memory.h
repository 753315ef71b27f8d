// SPDX-License-Identifier: MIT
//
// What the process holds in memory, for callers above the engine, which may not ask the platform.

#ifndef QSF_ENGINE_PROCESS_MEMORY_H_
#define QSF_ENGINE_PROCESS_MEMORY_H_

#include <cstdint>

namespace qsf {

struct ProcessMemory {
  std::uint64_t resident_bytes = 0;       // physical memory now; 0 when the system does not say
  std::uint64_t peak_resident_bytes = 0;  // the most there ever was
};

// Threads  any
ProcessMemory process_memory() noexcept;

}  // namespace qsf

#endif  // QSF_ENGINE_PROCESS_MEMORY_H_
