// SPDX-License-Identifier: MIT
//
// Tests of ThreadPool and FunctionRef: every chunk runs exactly once, whoever is free runs it, and
// a late worker never touches a job that is over.

#include "platform/threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "platform/clock.h"
#include "platform/cpu_count.h"

namespace qsf {
namespace {

using testing::HasSubstr;

int twice(int value) {
  return 2 * value;
}

TEST(FunctionRefTest, CallsLambdasFunctionsAndConstObjects) {
  int calls = 0;
  auto count = [&calls](int step) { return calls += step; };
  const FunctionRef<int(int)> counting = count;
  EXPECT_EQ(counting(2), 2);
  EXPECT_EQ(counting(3), 5);
  EXPECT_EQ(FunctionRef<int(int)>(twice)(21), 42);
  const auto plus_one = [](int value) { return value + 1; };
  EXPECT_EQ(FunctionRef<int(int)>(plus_one)(1), 2);
  EXPECT_EQ(sizeof(FunctionRef<int(int)>), 2 * sizeof(void*));
}

// Busy for a while without sleeping, so that chunks overlap.
void compute_for(std::uint64_t ns) {
  const std::uint64_t end = monotonic_ns() + ns;
  while (monotonic_ns() < end) {
  }
}

class ThreadPoolTest : public testing::TestWithParam<unsigned> {
 protected:
  std::unique_ptr<ThreadPool> pool_ = ThreadPool::create(GetParam()).value();
};

TEST_P(ThreadPoolTest, RunsEveryItemOnce) {
  for (const std::size_t n_items : {0U, 1U, 2U, 3U, 7U, 64U, 65U, 1000U}) {
    for (const std::size_t grain : {1U, 2U, 5U, 64U, 5000U}) {
      std::vector<std::atomic<int>> runs(n_items);
      std::atomic<std::size_t> n_chunks{0};
      pool_->parallel_for(n_items, grain, [&](std::size_t begin, std::size_t end, unsigned worker) {
        EXPECT_LT(begin, end);
        EXPECT_LE(end, n_items);
        EXPECT_EQ(begin % grain, 0U);
        EXPECT_TRUE(end - begin == grain || end == n_items);
        EXPECT_LT(worker, GetParam());
        for (std::size_t i = begin; i < end; ++i) runs[i].fetch_add(1);
        n_chunks.fetch_add(1);
      });
      EXPECT_EQ(n_chunks.load(), (n_items + grain - 1) / grain);
      for (const auto& run : runs) ASSERT_EQ(run.load(), 1) << n_items << " by " << grain;
    }
  }
}

// Plain writes: what workers wrote must be visible after the join (and clean under tsan). Thousands
// of forks also run every interleaving of a late worker with the next job.
TEST_P(ThreadPoolTest, ThousandsOfTinyForksSeeEachOthersWrites) {
  constexpr std::size_t kItems = 5;
  std::uint64_t values[kItems] = {};
  const int n_forks = GetParam() > 8 ? 2000 : 20'000;
  for (int fork = 0; fork < n_forks; ++fork) {
    pool_->parallel_for(kItems, 1, [&](std::size_t begin, std::size_t end, unsigned) {
      for (std::size_t i = begin; i < end; ++i) values[i] += i + 1;
    });
  }
  for (std::size_t i = 0; i < kItems; ++i) EXPECT_EQ(values[i], n_forks * (i + 1));
}

TEST_P(ThreadPoolTest, CountsChunksByWorker) {
  pool_->parallel_for(300, 3, [](std::size_t, std::size_t, unsigned) {});
  std::uint64_t n_chunks = 0;
  for (unsigned worker = 0; worker < GetParam(); ++worker) n_chunks += pool_->chunks_done(worker);
  EXPECT_EQ(n_chunks, 100U);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadPoolTest, testing::Values(1U, 2U, 3U, 4U, 8U, 64U));

// One chunk waits until another worker has started the other: passes only if two really ran.
TEST(ThreadPoolWorkersTest, TwoWorkersRunAtOnce) {
  const auto pool = ThreadPool::create(2).value();
  if (pool->n_parallel() < 2) GTEST_SKIP() << "one CPU: workers take turns";
  std::atomic<int> n_started{0};
  pool->parallel_for(2, 1, [&](std::size_t, std::size_t, unsigned) {
    n_started.fetch_add(1);
    while (n_started.load() < 2) compute_for(1000);
  });
  EXPECT_EQ(pool->chunks_done(0), 1U);
  EXPECT_EQ(pool->chunks_done(1), 1U);
}

TEST(ThreadPoolWorkersTest, ParkedWorkersWakeUp) {
  const auto pool = ThreadPool::create(2).value();
  if (pool->n_parallel() < 2) GTEST_SKIP() << "one CPU: workers take turns";
  for (int round = 0; round < 20; ++round) {
    compute_for(1'000'000);  // far longer than workers spin
    std::atomic<int> n_started{0};
    pool->parallel_for(2, 1, [&](std::size_t, std::size_t, unsigned) {
      n_started.fetch_add(1);
      while (n_started.load() < 2) compute_for(1000);
    });
  }
  EXPECT_EQ(pool->chunks_done(1), 20U);
}

// A worker held up in one chunk costs the others nothing: they take the rest.
TEST(ThreadPoolWorkersTest, FreeWorkersTakeTheChunksOfABusyOne) {
  const auto pool = ThreadPool::create(2).value();
  if (pool->n_parallel() < 2) GTEST_SKIP() << "one CPU: workers take turns";
  std::atomic<int> n_done{0};
  std::atomic<std::uint64_t> by_worker[2] = {};
  pool->parallel_for(10, 1, [&](std::size_t begin, std::size_t, unsigned worker) {
    if (begin == 0) {
      while (n_done.load() < 9) compute_for(1000);
    } else {
      n_done.fetch_add(1);
    }
    by_worker[worker].fetch_add(1);
  });
  EXPECT_EQ(by_worker[0].load() * by_worker[1].load(), 9U);
}

// A job of a pool larger than the machine wakes no more workers than there are CPUs: each that
// wakes up parks again, which is a voluntary context switch.
TEST(ThreadPoolWorkersTest, NoMoreWakeUpThanThereAreCpus) {
  constexpr int kRounds = 100;
  const auto pool = ThreadPool::create(64).value();
  EXPECT_EQ(pool->n_threads(), 64U);
  EXPECT_GE(pool->n_parallel(), 1U);
  EXPECT_LE(pool->n_parallel(), allowed_cpus().size());
  if (pool->n_parallel() > 16) GTEST_SKIP() << "enough CPUs for most of the workers";
  const auto n_switches = [] {
    rusage usage = {};
    EXPECT_EQ(::getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_nvcsw;
  };
  ::usleep(100'000);  // those that were just started park
  const long before = n_switches();
  for (int round = 0; round < kRounds; ++round) {
    ::usleep(500);  // longer than workers spin
    pool->parallel_for(64, 1, [&](std::size_t, std::size_t, unsigned) { compute_for(2'000); });
  }
  // Of each round: the sleep, the workers, and as much again for waits at the mutex. All would
  // be 63.
  EXPECT_LT(n_switches() - before, kRounds * 2L * (1 + pool->n_parallel()));
}

TEST(PinnedThreadPoolTest, EachWorkerHasACoreOfItsOwnAndTheCallerGetsItsOwnBack) {
  const std::vector<unsigned> before = allowed_cpus();
  const std::vector<unsigned> cores = one_cpu_per_core("", before);
  const unsigned n_threads = std::min<unsigned>(2, static_cast<unsigned>(cores.size()));
  {
    const auto pool = ThreadPool::create(n_threads, {.pin = true}).value();
    EXPECT_THAT(allowed_cpus(), testing::ElementsAre(cores[0]));
    std::vector<std::vector<unsigned>> cpus(n_threads);
    std::atomic<unsigned> n_started{0};
    pool->parallel_for(n_threads, 1, [&](std::size_t, std::size_t, unsigned worker) {
      n_started.fetch_add(1);
      while (n_started.load() < std::min(n_threads, pool->n_parallel())) compute_for(1000);
      cpus[worker] = allowed_cpus();
    });
    for (unsigned worker = 0; worker < std::min(n_threads, pool->n_parallel()); ++worker) {
      EXPECT_THAT(cpus[worker], testing::ElementsAre(cores[worker]));
    }
  }
  EXPECT_EQ(allowed_cpus(), before);
}

TEST(PinnedThreadPoolTest, RefusesMoreThreadsThanCores) {
  const std::vector<unsigned> before = allowed_cpus();
  const std::size_t n_cores = one_cpu_per_core("", before).size();
  if (n_cores >= kMaxThreads) GTEST_SKIP() << "a core for every thread there can be";
  const auto refused = ThreadPool::create(static_cast<unsigned>(n_cores) + 1, {.pin = true});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message(), HasSubstr("physical cores; ask for at most"));
  EXPECT_EQ(allowed_cpus(), before);
}

TEST(ThreadPoolWorkersTest, NestedAndEmptyMisuseIsChecked) {
  const auto nested = [] {
    const auto pool = ThreadPool::create(1).value();
    pool->parallel_for(1, 1, [&](std::size_t, std::size_t, unsigned) {
      pool->parallel_for(1, 1, [](std::size_t, std::size_t, unsigned) {});
    });
  };
  EXPECT_DEATH(nested(), "check failed");
  const auto no_grain = [] {
    const auto pool = ThreadPool::create(1).value();
    pool->parallel_for(1, 0, [](std::size_t, std::size_t, unsigned) {});
  };
  EXPECT_DEATH(no_grain(), "check failed: grain > 0");
}

TEST(ThreadPoolWorkersTest, RefusesNumbersOutOfRange) {
  EXPECT_THAT(ThreadPool::create(0).error().message(), HasSubstr("threads: 0, expected 1 to"));
  EXPECT_EQ(ThreadPool::create(kMaxThreads + 1).error().code(), StatusCode::kInvalidArgument);
}

TEST(ThreadPoolWorkersTest, StacksHaveThePlannedSize) {
  const auto pool = ThreadPool::create(2).value();
  if (pool->n_parallel() < 2) GTEST_SKIP() << "one CPU: workers take turns";
  std::atomic<int> n_started{0};
  std::size_t stack_bytes = 0;
  pool->parallel_for(2, 1, [&](std::size_t, std::size_t, unsigned worker) {
    n_started.fetch_add(1);
    while (n_started.load() < 2) compute_for(1000);
    if (worker == 0) return;
    pthread_attr_t attributes;
    ASSERT_EQ(pthread_getattr_np(pthread_self(), &attributes), 0);
    void* address = nullptr;
    ASSERT_EQ(pthread_attr_getstack(&attributes, &address, &stack_bytes), 0);
    pthread_attr_destroy(&attributes);
  });
  EXPECT_LE(stack_bytes, thread_stack_bytes());
  EXPECT_GE(stack_bytes, thread_stack_bytes() - 64 * 1024);
}

}  // namespace
}  // namespace qsf
