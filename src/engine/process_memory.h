// SPDX-License-Identifier: MIT
//
// The memory of this process and the speed of this machine's memory.

#ifndef QSF_ENGINE_PROCESS_MEMORY_H_
#define QSF_ENGINE_PROCESS_MEMORY_H_

#include <cstdint>

namespace qsf {

class ThreadPool;

struct ProcessMemory {
  std::uint64_t resident_bytes = 0;       // now; 0 when the system does not report it
  std::uint64_t peak_resident_bytes = 0;  // the largest so far
};

// Threads  any
ProcessMemory process_memory() noexcept;

// Measures how fast memory is read: sweeps with all threads over memory of its own, larger than
// most caches but at most `most_bytes`. Takes some ten milliseconds.
// Returns  the best rate in bytes a second; 0 when `most_bytes` is too little to exceed the caches,
//          or QSF_ISA names no instruction set
double measure_memory_rate(ThreadPool& threads, std::uint64_t most_bytes);

}  // namespace qsf

#endif  // QSF_ENGINE_PROCESS_MEMORY_H_
