// SPDX-License-Identifier: MIT

#include "engine/process_memory.h"

#include <gtest/gtest.h>

#include <memory>

#include "platform/threads.h"

namespace qsf {
namespace {

// The limit is strict: inside a small control group more memory would end the process.
TEST(MemoryRateTest, MeasuresWithinTheBytesItMayTake) {
  const std::unique_ptr<ThreadPool> threads = ThreadPool::create(2, {}).value();
  EXPECT_EQ(measure_memory_rate(*threads, 0), 0.0);
  EXPECT_EQ(measure_memory_rate(*threads, 16U << 20), 0.0) << "caches, not memory";
  EXPECT_GT(measure_memory_rate(*threads, 40U << 20), 1e8);
}

}  // namespace
}  // namespace qsf
