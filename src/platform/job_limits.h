// SPDX-License-Identifier: MIT
//
// What the limits of a Windows job object mean. A container or a service gives a process its limits
// so; the fields are those that Windows hands out, as plain numbers, so that tests can describe any
// job on any machine.
//
// Based on: Microsoft, JOBOBJECT_BASIC_LIMIT_INFORMATION, JOBOBJECT_EXTENDED_LIMIT_INFORMATION and
// JOBOBJECT_CPU_RATE_CONTROL_INFORMATION.

#ifndef QSF_PLATFORM_JOB_LIMITS_H_
#define QSF_PLATFORM_JOB_LIMITS_H_

#include <cstdint>

#include "platform/memory_limits.h"

namespace qsf {

// Memory limits of a job bound what is committed, resident or not.
struct JobMemory {
  std::uint32_t limit_flags = 0;
  std::uint64_t process_limit_bytes = 0;
  std::uint64_t job_limit_bytes = 0;
  std::uint64_t process_committed_bytes = 0;
  std::uint64_t job_committed_bytes = 0;  // of all processes of the job
};

struct JobCpuRate {
  std::uint32_t control_flags = 0;
  // Hundredths of a percent of all CPUs together.
  std::uint32_t rate = 0;      // with a hard cap
  std::uint16_t max_rate = 0;  // with a least and a largest rate
};

// The smaller of the two limits, and what it leaves; no limit for flags that set none.
MemoryLimits decode_job_memory(const JobMemory& job) noexcept;

// Returns how many of `n_cpus` CPUs the job may use at once, kNoQuota where it is not capped.
double decode_job_cpu_rate(const JobCpuRate& job, unsigned n_cpus) noexcept;

}  // namespace qsf

#endif  // QSF_PLATFORM_JOB_LIMITS_H_
