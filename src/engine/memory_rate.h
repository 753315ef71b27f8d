// SPDX-License-Identifier: MIT
//
// How fast this machine's memory is read, for predictions.

#ifndef QSF_ENGINE_MEMORY_RATE_H_
#define QSF_ENGINE_MEMORY_RATE_H_

namespace qsf {

class ThreadPool;

// Sweeps over a memory of its own, larger than most caches, with all threads, and returns the best
// rate in bytes a second; 0 when there is no memory for it or QSF_ISA names no instruction set.
// Takes some ten milliseconds.
double measure_memory_rate(ThreadPool& threads);

}  // namespace qsf

#endif  // QSF_ENGINE_MEMORY_RATE_H_
