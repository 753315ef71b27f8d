// SPDX-License-Identifier: MIT
//
// CPUs by the affinity of the process, cores and the rate of its job. A process of more than 64
// CPUs uses those of its first processor group.

#include <windows.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "platform/cpu_count.h"
#include "platform/job_limits.h"

namespace qsf {

double cpu_quota(const std::string&) {
  JOBOBJECT_CPU_RATE_CONTROL_INFORMATION rate = {};
  if (::QueryInformationJobObject(nullptr, JobObjectCpuRateControlInformation, &rate, sizeof rate,
                                  nullptr) == 0) {
    return kNoQuota;
  }
  return decode_job_cpu_rate({.control_flags = rate.ControlFlags,
                              .rate = rate.CpuRate,
                              .max_rate = static_cast<std::uint16_t>(rate.CpuRate >> 16)},
                             ::GetActiveProcessorCount(ALL_PROCESSOR_GROUPS));
}

std::vector<unsigned> one_cpu_per_core(const std::string&, std::span<const unsigned> cpus) {
  DWORD n_bytes = 0;
  ::GetLogicalProcessorInformationEx(RelationProcessorCore, nullptr, &n_bytes);
  std::vector<std::max_align_t> records(n_bytes / sizeof(std::max_align_t) + 1);
  auto* const first = reinterpret_cast<SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX*>(records.data());
  if (::GetLogicalProcessorInformationEx(RelationProcessorCore, first, &n_bytes) == 0) n_bytes = 0;
  std::vector<unsigned> chosen(cpus.begin(), cpus.end());
  std::sort(chosen.begin(), chosen.end());
  const auto* const bytes = reinterpret_cast<const std::byte*>(records.data());
  for (DWORD at = 0; at < n_bytes;) {
    const auto* record =
        reinterpret_cast<const SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX*>(bytes + at);
    at += record->Size;
    const GROUP_AFFINITY& group = record->Processor.GroupMask[0];
    if (group.Group != 0) continue;
    bool has_one = false;
    std::erase_if(chosen, [&](unsigned cpu) {
      if (cpu >= 64 || ((group.Mask >> cpu) & 1U) == 0) return false;
      return std::exchange(has_one, true);
    });
  }
  return chosen;
}

std::vector<unsigned> allowed_cpus() {
  DWORD_PTR ours = 0;
  DWORD_PTR all = 0;
  ::GetProcessAffinityMask(::GetCurrentProcess(), &ours, &all);
  std::vector<unsigned> cpus;
  for (unsigned cpu = 0; cpu < 64; ++cpu) {
    if (((ours >> cpu) & 1U) != 0) cpus.push_back(cpu);
  }
  if (!cpus.empty()) return cpus;
  SYSTEM_INFO about;
  ::GetSystemInfo(&about);
  for (unsigned cpu = 0; cpu < std::max<DWORD>(1, about.dwNumberOfProcessors); ++cpu)
    cpus.push_back(cpu);
  return cpus;
}

int bind_thread(ThreadHandle thread, std::span<const unsigned> cpus) {
  DWORD_PTR mask = 0;
  for (const unsigned cpu : cpus) {
    if (cpu < 64) mask |= DWORD_PTR{1} << cpu;
  }
  HANDLE handle = ::OpenThread(THREAD_SET_INFORMATION | THREAD_QUERY_INFORMATION, FALSE,
                               static_cast<DWORD>(thread));
  if (handle == nullptr) return ESRCH;
  const bool bound = ::SetThreadAffinityMask(handle, mask) != 0;
  ::CloseHandle(handle);
  return bound ? 0 : EINVAL;
}

}  // namespace qsf
