// SPDX-License-Identifier: MIT

#include "platform/job_limits.h"

#include <algorithm>

#include "platform/cpu_count.h"

namespace qsf {
namespace {

constexpr std::uint32_t kLimitProcessMemory = 0x100;
constexpr std::uint32_t kLimitJobMemory = 0x200;
constexpr std::uint32_t kCpuRateEnabled = 0x1;
constexpr std::uint32_t kCpuRateHardCap = 0x4;
constexpr std::uint32_t kCpuRateMinMax = 0x10;
constexpr double kWholeRate = 10'000;

void add_limit(MemoryLimits& limits, std::uint64_t limit, std::uint64_t used) noexcept {
  // A limit of nothing would not have let this process start: the system does not say it.
  if (limit == 0) return;
  limits.limit_bytes = std::min(limits.limit_bytes, limit);
  limits.headroom_bytes = std::min(limits.headroom_bytes, limit - std::min(limit, used));
}

}  // namespace

MemoryLimits decode_job_memory(const JobMemory& job) noexcept {
  MemoryLimits limits;
  if ((job.limit_flags & kLimitProcessMemory) != 0) {
    add_limit(limits, job.process_limit_bytes, job.process_committed_bytes);
  }
  if ((job.limit_flags & kLimitJobMemory) != 0) {
    add_limit(limits, job.job_limit_bytes,
              std::max(job.job_committed_bytes, job.process_committed_bytes));
  }
  return limits;
}

double decode_job_cpu_rate(const JobCpuRate& job, unsigned n_cpus) noexcept {
  if ((job.control_flags & kCpuRateEnabled) == 0) return kNoQuota;
  double rate = 0;
  if ((job.control_flags & kCpuRateMinMax) != 0) {
    rate = job.max_rate;
  } else if ((job.control_flags & kCpuRateHardCap) != 0) {
    rate = job.rate;
  }
  if (rate <= 0 || rate >= kWholeRate) return kNoQuota;
  return rate / kWholeRate * n_cpus;
}

}  // namespace qsf
