// SPDX-License-Identifier: MIT
//
// Threads for the time of one piece of work, for conversions: what runs a model has a pool.

#ifndef QSF_BASE_RUN_ON_THREADS_H_
#define QSF_BASE_RUN_ON_THREADS_H_

#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace qsf {

// Calls work() on this thread and n_threads - 1 others, or as many of these as the system starts;
// returns when all calls have. What there is to do is divided among the calls by `work` itself.
// Requires  n_threads >= 1; work() lets no exception out
inline void run_on_threads(std::size_t n_threads, FunctionRef<void()> work) {
  std::vector<std::thread> threads;
  threads.reserve(n_threads - 1);
  try {
    while (threads.size() + 1 < n_threads) threads.emplace_back(work);
  } catch (const std::exception&) {
    // No more threads to be had: those that run and this one do the work.
  }
  work();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace qsf

#endif  // QSF_BASE_RUN_ON_THREADS_H_
