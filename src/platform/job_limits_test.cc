// SPDX-License-Identifier: MIT
//
// Limits of Windows jobs, as described by their fields.

#include "platform/job_limits.h"

#include <gtest/gtest.h>

#include "platform/cpu_count.h"

namespace qsf {
namespace {

constexpr std::uint32_t kProcessMemory = 0x100;
constexpr std::uint32_t kWholeJobMemory = 0x200;

TEST(JobLimitsTest, FieldsWithoutTheirFlagAreNoLimit) {
  const MemoryLimits none = decode_job_memory({.limit_flags = 0x2000,  // ends with its last handle
                                               .process_limit_bytes = 4096,
                                               .job_limit_bytes = 4096});
  EXPECT_EQ(none.limit_bytes, kNoMemoryLimit);
  EXPECT_EQ(none.headroom_bytes, kNoMemoryLimit);
  // Wine answers with zeros.
  EXPECT_EQ(decode_job_memory({.limit_flags = kProcessMemory}).limit_bytes, kNoMemoryLimit);
}

TEST(JobLimitsTest, TheSmallerLimitAndWhatItLeavesHold) {
  const MemoryLimits process = decode_job_memory({.limit_flags = kProcessMemory,
                                                  .process_limit_bytes = 200'000'000,
                                                  .job_limit_bytes = 100,
                                                  .process_committed_bytes = 50'000'000});
  EXPECT_EQ(process.limit_bytes, 200'000'000u);
  EXPECT_EQ(process.headroom_bytes, 150'000'000u);
  const MemoryLimits both = decode_job_memory({.limit_flags = kProcessMemory | kWholeJobMemory,
                                               .process_limit_bytes = 200'000'000,
                                               .job_limit_bytes = 300'000'000,
                                               .process_committed_bytes = 50'000'000,
                                               .job_committed_bytes = 290'000'000});
  EXPECT_EQ(both.limit_bytes, 200'000'000u);
  EXPECT_EQ(both.headroom_bytes, 10'000'000u);
}

TEST(JobLimitsTest, NothingIsLeftAboveALimit) {
  const MemoryLimits limits = decode_job_memory(
      {.limit_flags = kWholeJobMemory, .job_limit_bytes = 1000, .process_committed_bytes = 2000});
  EXPECT_EQ(limits.headroom_bytes, 0u);
}

TEST(JobLimitsTest, RatesAreSharesOfAllCpus) {
  EXPECT_EQ(decode_job_cpu_rate({.control_flags = 0x5, .rate = 2500}, 8), 2.0);
  EXPECT_EQ(decode_job_cpu_rate({.control_flags = 0x11, .rate = 100, .max_rate = 5000}, 8), 4.0);
  EXPECT_EQ(decode_job_cpu_rate({.control_flags = 0x4, .rate = 2500}, 8), kNoQuota);  // disabled
  EXPECT_EQ(decode_job_cpu_rate({.control_flags = 0x3, .rate = 5}, 8), kNoQuota);     // a weight
  EXPECT_EQ(decode_job_cpu_rate({.control_flags = 0x5, .rate = 10'000}, 8), kNoQuota);
}

}  // namespace
}  // namespace qsf
