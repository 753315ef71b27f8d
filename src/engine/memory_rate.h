// SPDX-License-Identifier: MIT
//
// How fast this machine's memory is read, for predictions.

#ifndef QSF_ENGINE_MEMORY_RATE_H_
#define QSF_ENGINE_MEMORY_RATE_H_

#include <cstdint>

namespace qsf {

class ThreadPool;

// Sweeps over a memory of its own, larger than most caches but of `most_bytes` at most, with all
// threads, and returns the best rate in bytes a second; 0 when `most_bytes` is so little that it
// would tell of caches, or QSF_ISA names no instruction set. Takes some ten milliseconds.
double measure_memory_rate(ThreadPool& threads, std::uint64_t most_bytes);

}  // namespace qsf

#endif  // QSF_ENGINE_MEMORY_RATE_H_
