// SPDX-License-Identifier: MIT
//
// Limits from the machine's memory, the system's commit limit and the job of this process.

#include <windows.h>
// Needs the types of windows.h.
#include <psapi.h>

#include <algorithm>

#include "platform/job_limits.h"
#include "platform/memory_limits.h"

namespace qsf {
namespace {

std::uint64_t committed_bytes() noexcept {
  PROCESS_MEMORY_COUNTERS counters = {};
  ::K32GetProcessMemoryInfo(::GetCurrentProcess(), &counters, sizeof counters);
  return counters.PagefileUsage;
}

MemoryLimits job_limits() noexcept {
  JOBOBJECT_EXTENDED_LIMIT_INFORMATION about = {};
  if (::QueryInformationJobObject(nullptr, JobObjectExtendedLimitInformation, &about, sizeof about,
                                  nullptr) == 0) {
    return {};
  }
  JOBOBJECT_LIMIT_VIOLATION_INFORMATION used = {};
  ::QueryInformationJobObject(nullptr, JobObjectLimitViolationInformation, &used, sizeof used,
                              nullptr);
  return decode_job_memory({.limit_flags = about.BasicLimitInformation.LimitFlags,
                            .process_limit_bytes = about.ProcessMemoryLimit,
                            .job_limit_bytes = about.JobMemoryLimit,
                            .process_committed_bytes = committed_bytes(),
                            .job_committed_bytes = used.JobMemory});
}

}  // namespace

MemoryLimits read_memory_limits(const std::string&) {
  MemoryLimits limits = job_limits();
  MEMORYSTATUSEX machine = {};
  machine.dwLength = sizeof machine;
  if (::GlobalMemoryStatusEx(&machine) != 0) {
    limits.limit_bytes = std::min<std::uint64_t>(limits.limit_bytes, machine.ullTotalPhys);
    limits.headroom_bytes = std::min<std::uint64_t>(
        {limits.headroom_bytes, machine.ullAvailPhys, machine.ullAvailPageFile});
  }
  return limits;
}

MemoryLimitWatch::MemoryLimitWatch(const std::string&) {}

std::uint64_t MemoryLimitWatch::limit_bytes() const noexcept {
  return job_limits().limit_bytes;
}

// The image of the program as it lies in memory, and what the process has committed: heap, data and
// the stacks of its threads. Libraries of the system are shared by all processes.
ProgramMemory program_memory() {
  ProgramMemory memory;
  MODULEINFO image = {};
  if (::K32GetModuleInformation(::GetCurrentProcess(), ::GetModuleHandleW(nullptr), &image,
                                sizeof image) != 0) {
    memory.file_bytes = image.SizeOfImage;
  }
  memory.anonymous_bytes = committed_bytes();
  return memory;
}

}  // namespace qsf
