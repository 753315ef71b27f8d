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

#include "platform/threads.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "platform/clock.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define QSF_WITH_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define QSF_WITH_SANITIZER 1
#endif
#endif

namespace qsf {
namespace {

constexpr std::size_t kDestructiveBytes = 64;  // of a cache line: no two threads' words share one
constexpr unsigned kPausesPerLook = 32;        // between two looks at the clock while spinning
constexpr std::uint64_t kSpinNs = 50'000;      // longer than the gap between two tiles of a layer

void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until `ready` or the time is up; returns what `ready` last said.
template <typename Ready>
bool spin_until(std::uint64_t spin_ns, Ready ready) {
  if (ready()) return true;
  if (spin_ns == 0) return false;
  const std::uint64_t end_ns = monotonic_ns() + spin_ns;
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
  void wait_for_chunks(std::uint32_t n_chunks);

  alignas(kDestructiveBytes) std::atomic<std::uint64_t> ticket{0};
  alignas(kDestructiveBytes) std::atomic<std::uint32_t> n_done{0};
  alignas(kDestructiveBytes) std::atomic<unsigned> n_parked{0};
  std::atomic<bool> caller_parked{false};
  std::atomic<bool> stopping{false};
  std::atomic<bool> in_use{false};
  Job job;  // written while no chunk is out, read by owners of chunks
  std::uint64_t spin_ns = 0;

  std::mutex mutex;  // guards nothing but the waits
  std::condition_variable work_ready;
  std::condition_variable work_done;

  std::vector<Worker> workers;
  std::vector<Start> starts;
  std::vector<pthread_t> threads;
};

void* ThreadPool::State::run_thread(void* argument) {
  const Start& start = *static_cast<Start*>(argument);
  start.state->serve(start.worker);
  return nullptr;
}

void ThreadPool::State::serve(unsigned worker) {
  const auto has_work = [this] { return remaining_of(ticket.load()) != 0 || stopping.load(); };
  for (;;) {
    if (!spin_until(spin_ns, has_work)) {
      std::unique_lock lock(mutex);
      n_parked.fetch_add(1);
      while (!has_work()) work_ready.wait(lock);
      n_parked.fetch_sub(1);
    }
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

void ThreadPool::State::wait_for_chunks(std::uint32_t n_chunks) {
  const auto all_done = [&] { return n_done.load() == n_chunks; };
  if (spin_until(spin_ns, all_done)) return;
  std::unique_lock lock(mutex);
  caller_parked.store(true);
  while (!all_done()) work_done.wait(lock);
  caller_parked.store(false);
}

std::size_t thread_stack_bytes() noexcept {
#ifdef QSF_WITH_SANITIZER
  return std::size_t{2} << 20;  // red zones and shadow calls take several times the frame
#else
  return std::size_t{256} << 10;
#endif
}

ThreadPool::ThreadPool(unsigned n_threads)
    : n_threads_(n_threads), state_(std::make_unique<State>(n_threads)) {}

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(unsigned n_threads) {
  if (n_threads < 1 || n_threads > kMaxThreads) {
    return invalid_argument("threads: %u, expected 1 to %u", n_threads, kMaxThreads);
  }
  std::unique_ptr<ThreadPool> pool(new ThreadPool(n_threads));
  State& state = *pool->state_;
  // More threads than cores: spinning would take the core from whom it waits for.
  state.spin_ns = n_threads <= default_thread_count() ? kSpinNs : 0;
  state.threads.reserve(n_threads - 1);

  pthread_attr_t attributes;
  QSF_CHECK(::pthread_attr_init(&attributes) == 0);
  QSF_CHECK(::pthread_attr_setstacksize(&attributes, thread_stack_bytes()) == 0);
  // Signals belong to the threads of the program that uses us.
  sigset_t all_signals;
  sigset_t old_signals;
  ::sigfillset(&all_signals);
  ::pthread_sigmask(SIG_SETMASK, &all_signals, &old_signals);
  int error = 0;
  for (unsigned worker = 1; worker < n_threads && error == 0; ++worker) {
    state.starts[worker] = {&state, worker};
    pthread_t thread;
    error = ::pthread_create(&thread, &attributes, &State::run_thread, &state.starts[worker]);
    if (error == 0) state.threads.push_back(thread);
  }
  ::pthread_sigmask(SIG_SETMASK, &old_signals, nullptr);
  ::pthread_attr_destroy(&attributes);
  if (error != 0) {
    return out_of_budget("threads: the system started %zu of %u threads: %s; ask for fewer",
                         state.threads.size() + 1, n_threads, std::strerror(error));
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  QSF_CHECK(!state_->in_use.load());
  state_->stopping.store(true);
  { const std::lock_guard lock(state_->mutex); }
  state_->work_ready.notify_all();
  for (const pthread_t thread : state_->threads) QSF_CHECK(::pthread_join(thread, nullptr) == 0);
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
    if (n_chunks > 1 && state.n_parked.load() != 0) {
      { const std::lock_guard lock(state.mutex); }
      if (n_chunks == 2) {
        state.work_ready.notify_one();
      } else {
        state.work_ready.notify_all();
      }
    }
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
