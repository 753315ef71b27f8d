// SPDX-License-Identifier: MIT
//
// The fork-join of ThreadPool.
//
// One 64-bit word, the ticket, holds the number of the job in its upper half and the chunks not yet
// taken in its lower half. Whoever lowers it by one, with a compare-and-swap on the whole word,
// owns a chunk; until that chunk is counted as done the job cannot end, so its description may be
// read. A worker that wakes up late finds another job's number or no chunks and has touched
// nothing: that is why a join waits for chunks and never for workers.
//
// Both sides spin first and park on a condition variable when that takes too long. Each announces
// itself (n_parked, caller_parked) before it looks a last time, and the other changes the word it
// looks at before it reads the announcement, all sequentially consistent: no wake-up is lost, and
// none is sent to somebody who is awake.
//
// No more workers are woken than there are CPUs besides the caller's, so a pool larger than the
// machine costs its stacks and nothing else, and whoever spins does not spin in the way of another.

#include "platform/threads.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "platform/clock.h"
#include "platform/cpu_count.h"

namespace qsf {
namespace {

constexpr std::size_t kDestructiveBytes = 64;  // of a cache line: no two threads' words share one
constexpr unsigned kPausesPerLook = 32;        // between two looks at the clock while spinning
constexpr std::uint64_t kSpinNs = 50'000;      // longer than the gap between two products

void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until `ready` or the time is up; returns the last result of `ready`.
template <typename Ready>
bool spin_until(Ready ready) {
  if (ready()) return true;
  const std::uint64_t end_ns = monotonic_ns() + kSpinNs;
  do {
    for (unsigned i = 0; i < kPausesPerLook; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (monotonic_ns() < end_ns);
  return ready();
}

constexpr std::uint32_t remaining_of(std::uint64_t ticket) noexcept {
  return static_cast<std::uint32_t>(ticket);
}

}  // namespace

struct ThreadPool::State {
  struct Job {
    std::optional<Work> work;
    std::size_t n_items = 0;
    std::size_t grain = 1;
    std::uint32_t n_chunks = 0;
  };
  struct alignas(kDestructiveBytes) Worker {
    std::atomic<std::uint64_t> n_chunks{0};
  };
  struct Start {
    State* state;
    unsigned worker;
  };

  explicit State(unsigned n_threads) : workers(n_threads), starts(n_threads) {}

  static void* run_thread(void* argument);
  void serve(unsigned worker);
  void run_chunks(unsigned worker);
  template <typename HasWork>
  void park(HasWork has_work);
  void wake(std::uint32_t n_wanted);
  Status pin(const std::vector<unsigned>& cpus);
  void wait_for_chunks(std::uint32_t n_chunks);

  alignas(kDestructiveBytes) std::atomic<std::uint64_t> ticket{0};
  alignas(kDestructiveBytes) std::atomic<std::uint32_t> n_done{0};
  alignas(kDestructiveBytes) std::atomic<unsigned> n_parked{0};
  std::atomic<bool> caller_parked{false};
  std::atomic<bool> stopping{false};
  std::atomic<bool> in_use{false};
  Job job;  // written while no chunk is out, read by owners of chunks

  std::mutex mutex;      // guards the waits and n_woken
  unsigned n_woken = 0;  // workers that were told to wake up and have not yet
  std::condition_variable work_ready;
  std::condition_variable work_done;

  std::vector<Worker> workers;
  std::vector<Start> starts;
  std::vector<Thread> threads;
  ThreadHandle pinned_caller = 0;
  std::vector<unsigned> caller_cpus;  // that it may run on without us; empty: not pinned
};

void* ThreadPool::State::run_thread(void* argument) {
  const Start& start = *static_cast<Start*>(argument);
  start.state->serve(start.worker);
  return nullptr;
}

// Sleeps until woken, unless `has_work` says at the last moment that there is some.
template <typename HasWork>
void ThreadPool::State::park(HasWork has_work) {
  std::unique_lock lock(mutex);
  n_parked.fetch_add(1);
  if (has_work()) {
    n_parked.fetch_sub(1);
    return;
  }
  while (n_woken == 0 && !stopping.load()) work_ready.wait(lock);
  if (n_woken > 0) --n_woken;  // who woke us took us off n_parked
}

void ThreadPool::State::serve(unsigned worker) {
  const auto has_work = [this] { return remaining_of(ticket.load()) != 0 || stopping.load(); };
  for (;;) {
    if (!spin_until(has_work)) park(has_work);
    if (stopping.load()) return;
    run_chunks(worker);
  }
}

void ThreadPool::State::run_chunks(unsigned worker) {
  std::uint64_t seen = ticket.load();
  while (remaining_of(seen) != 0) {
    if (!ticket.compare_exchange_weak(seen, seen - 1)) continue;
    const std::uint32_t n_chunks = job.n_chunks;
    const std::size_t begin = static_cast<std::size_t>(n_chunks - remaining_of(seen)) * job.grain;
    const std::size_t n_left = job.n_items - begin;
    (*job.work)(begin, begin + (n_left < job.grain ? n_left : job.grain), worker);
    workers[worker].n_chunks.fetch_add(1, std::memory_order_relaxed);
    // From here on the job may be gone.
    if (n_done.fetch_add(1) + 1 == n_chunks && caller_parked.load()) {
      { const std::lock_guard lock(mutex); }
      work_done.notify_one();
    }
    seen = ticket.load();
  }
}

// Makes sure that `n_wanted` workers besides the caller are awake or waking up, or all there are.
void ThreadPool::State::wake(std::uint32_t n_wanted) {
  if (n_parked.load() == 0) return;
  unsigned n = 0;
  {
    const std::lock_guard lock(mutex);
    const unsigned parked = n_parked.load();
    const unsigned awake = static_cast<unsigned>(threads.size()) - parked;
    n = awake < n_wanted ? std::min(n_wanted - awake, parked) : 0;
    n_parked.fetch_sub(n);
    n_woken += n;
  }
  for (unsigned i = 0; i < n; ++i) work_ready.notify_one();
}

void ThreadPool::State::wait_for_chunks(std::uint32_t n_chunks) {
  const auto all_done = [&] { return n_done.load() == n_chunks; };
  if (spin_until(all_done)) return;
  std::unique_lock lock(mutex);
  caller_parked.store(true);
  while (!all_done()) work_done.wait(lock);
  caller_parked.store(false);
}

// Binds the calling thread, worker 0, and all others to a core each.
Status ThreadPool::State::pin(const std::vector<unsigned>& cpus) {
  const std::vector<unsigned> cores = one_cpu_per_core("", cpus);
  if (cores.size() < workers.size()) {
    return invalid_argument(
        "pinning: %zu threads, but this process may run on %zu physical cores; ask for at most "
        "that many threads, or no pinning",
        workers.size(), cores.size());
  }
  for (std::size_t worker = 0; worker < workers.size(); ++worker) {
    const ThreadHandle thread = worker == 0 ? this_thread() : threads[worker - 1].handle();
    const int error = bind_thread(thread, {&cores[worker], 1});
    if (error != 0) {
      return unsupported(
          "pinning: the system did not bind a thread to CPU %u: %s; run without pinning",
          cores[worker], std::strerror(error));
    }
    if (worker == 0) {
      pinned_caller = thread;
      caller_cpus = cpus;
    }
  }
  return ok_status();
}

ThreadPool::ThreadPool(unsigned n_threads, unsigned n_parallel)
    : n_threads_(n_threads), n_parallel_(n_parallel), state_(std::make_unique<State>(n_threads)) {}

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(unsigned n_threads,
                                                       const ThreadPoolOptions& options) {
  if (n_threads < 1 || n_threads > kMaxThreads) {
    return invalid_argument("threads: %u, expected 1 to %u", n_threads, kMaxThreads);
  }
  const std::vector<unsigned> cpus = allowed_cpus();
  std::unique_ptr<ThreadPool> pool(
      new ThreadPool(n_threads, std::min(n_threads, usable_cpus("", cpus))));
  State& state = *pool->state_;
  state.threads.reserve(n_threads - 1);

  int error = 0;
  for (unsigned worker = 1; worker < n_threads && error == 0; ++worker) {
    state.starts[worker] = {&state, worker};
    Thread thread;
    error = thread.start(&State::run_thread, &state.starts[worker]);
    if (error == 0) state.threads.push_back(std::move(thread));
  }
  if (error != 0) {
    return out_of_budget("threads: the system started %zu of %u threads: %s; ask for fewer",
                         state.threads.size() + 1, n_threads, std::strerror(error));
  }
  if (options.pin) QSF_RETURN_IF_ERROR(state.pin(cpus));
  return pool;
}

ThreadPool::~ThreadPool() {
  QSF_CHECK(!state_->in_use.load());
  state_->stopping.store(true);
  { const std::lock_guard lock(state_->mutex); }
  state_->work_ready.notify_all();
  for (Thread& thread : state_->threads) thread.join();
  const std::vector<unsigned>& cpus = state_->caller_cpus;
  if (!cpus.empty() && state_->pinned_caller == this_thread()) {
    bind_thread(state_->pinned_caller, cpus);  // may fail, and then the binding stays
  }
}

void ThreadPool::parallel_for(std::size_t n_items, std::size_t grain, Work work) {
  QSF_CHECK(grain > 0);
  const std::uint64_t n_chunks = ceil_div(n_items, grain);
  QSF_CHECK(n_chunks <= 0xFFFFFFFFU);
  State& state = *state_;
  QSF_CHECK(!state.in_use.exchange(true));
  if (n_chunks != 0) {
    state.job = {work, n_items, grain, static_cast<std::uint32_t>(n_chunks)};
    state.n_done.store(0);
    const std::uint64_t job_number = (state.ticket.load() >> 32) + 1;
    state.ticket.store(job_number << 32 | n_chunks);
    state.wake(static_cast<std::uint32_t>(std::min<std::uint64_t>(n_chunks, n_parallel_) - 1));
    state.run_chunks(0);
    state.wait_for_chunks(static_cast<std::uint32_t>(n_chunks));
  }
  state.in_use.store(false);
}

std::uint64_t ThreadPool::chunks_done(unsigned worker) const noexcept {
  QSF_CHECK(worker < n_threads_);
  return state_->workers[worker].n_chunks.load(std::memory_order_relaxed);
}

}  // namespace qsf
