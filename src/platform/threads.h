// SPDX-License-Identifier: MIT
//
// ThreadPool: one fork-join at a time over a fixed set of threads.
//
// A pass forks a few times per tile, thousands of times per second. Therefore a fork allocates
// nothing, workers spin for a while before they park, and a join does not wait for workers that
// have not started: workers take chunks one by one, and a join ends with the last chunk. A core
// that is busy elsewhere costs only its share of the work.

#ifndef QSF_PLATFORM_THREADS_H_
#define QSF_PLATFORM_THREADS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/function_ref.h"
#include "base/result.h"
#include "platform/thread.h"

namespace qsf {

inline constexpr unsigned kMaxThreads = 1024;

// Returns the best number of threads: the physical cores that this process may run on, bounded by
// the CPU quota of its control groups, rounded up; at least 1. Threads  any
unsigned default_thread_count();

struct ThreadPoolOptions {
  // Binds each worker to its own physical core, including the thread that creates the pool, which
  // gets its CPUs back when it destroys the pool.
  bool pin = false;
};

class ThreadPool {
 public:
  // Receives items [begin, end) and the number of the worker that runs them, below n_threads().
  using Work = FunctionRef<void(std::size_t begin, std::size_t end, unsigned worker)>;

  // Starts n_threads - 1 threads: the caller of parallel_for is worker 0.
  // Fails  kInvalidArgument unless 1 <= n_threads <= kMaxThreads, or with pinning when there are
  //        fewer physical cores; kOutOfBudget when the system refuses a thread; kUnsupported where
  //        it cannot bind one
  static Result<std::unique_ptr<ThreadPool>> create(unsigned n_threads,
                                                    const ThreadPoolOptions& options = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  unsigned n_threads() const noexcept { return n_threads_; }
  // Returns the number of workers that run at once: at most the number of CPUs. Which workers run
  // may differ from job to job.
  unsigned n_parallel() const noexcept { return n_parallel_; }

  // Runs `work` over [0, n_items) in chunks of `grain` items (the last may be shorter), each chunk
  // exactly once, on whichever worker is free, and returns when all are done.
  // Requires    grain > 0; fewer than 2^32 chunks; not called from inside `work`, nor by two
  // threads
  //             at once (checked)
  // Guarantees  no allocation; writes of `work` are visible to the caller afterwards; n_items == 0
  //             calls nothing
  void parallel_for(std::size_t n_items, std::size_t grain, Work work);

  // Chunks that `worker` has run since creation. Requires  worker < n_threads()
  // Threads  any
  std::uint64_t chunks_done(unsigned worker) const noexcept;

 private:
  struct State;
  ThreadPool(unsigned n_threads, unsigned n_parallel);

  unsigned n_threads_;
  unsigned n_parallel_;
  std::unique_ptr<State> state_;
};

}  // namespace qsf

#endif  // QSF_PLATFORM_THREADS_H_
