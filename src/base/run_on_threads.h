// SPDX-License-Identifier: MIT
//
// Threads for one piece of work, for conversions. (Running a model uses a ThreadPool.)

#ifndef QSF_BASE_RUN_ON_THREADS_H_
#define QSF_BASE_RUN_ON_THREADS_H_

#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace qsf {

// Calls work() on this thread and on n_threads - 1 others, or as many as the system starts; returns
// when all calls have returned. `work` divides the items among the calls.
// Requires  n_threads >= 1; work() throws no exception
inline void run_on_threads(std::size_t n_threads, FunctionRef<void()> work) {
  std::vector<std::thread> threads;
  threads.reserve(n_threads - 1);
  try {
    while (threads.size() + 1 < n_threads) threads.emplace_back(work);
  } catch (const std::exception&) {
    // The system starts no more threads: the running ones and this one do the work.
  }
  work();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace qsf

#endif  // QSF_BASE_RUN_ON_THREADS_H_
