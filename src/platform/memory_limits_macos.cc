// SPDX-License-Identifier: MIT
//
// Limits from the machine's memory: macOS limits no process. Pages that it has compressed or can
// drop count as the system counts them.

#include <mach-o/dyld.h>
#include <mach/mach.h>
#include <sys/param.h>
#include <sys/stat.h>

#include <cstdint>

#include "platform/memory.h"
#include "platform/memory_limits.h"
#include "platform/sysctl_number.h"

namespace qsf {

MemoryLimits read_memory_limits(const std::string&) {
  MemoryLimits limits;
  if (const std::uint64_t total = sysctl_number("hw.memsize"); total != 0) {
    limits.limit_bytes = total;
  }
  vm_statistics64 pages = {};
  mach_msg_type_number_t n_words = HOST_VM_INFO64_COUNT;
  if (::host_statistics64(::mach_host_self(), HOST_VM_INFO64,
                          reinterpret_cast<host_info64_t>(&pages), &n_words) == KERN_SUCCESS) {
    const std::uint64_t n_available =
        std::uint64_t{pages.free_count} + pages.external_page_count + pages.purgeable_count;
    limits.headroom_bytes = n_available * page_bytes();
  }
  return limits;
}

MemoryLimitWatch::MemoryLimitWatch(const std::string&) {}

std::uint64_t MemoryLimitWatch::limit_bytes() const noexcept {
  return kNoMemoryLimit;
}

// The program's file counts whole. Libraries of the system are shared by all processes.
ProgramMemory program_memory() {
  ProgramMemory memory;
  char path[MAXPATHLEN];
  std::uint32_t n_bytes = sizeof path;
  struct stat file;
  if (::_NSGetExecutablePath(path, &n_bytes) == 0 && ::stat(path, &file) == 0) {
    memory.file_bytes = static_cast<std::uint64_t>(file.st_size);
  }
  task_vm_info info = {};
  mach_msg_type_number_t n_words = TASK_VM_INFO_COUNT;
  if (::task_info(::mach_task_self(), TASK_VM_INFO, reinterpret_cast<task_info_t>(&info),
                  &n_words) == KERN_SUCCESS) {
    memory.anonymous_bytes = info.phys_footprint;
  }
  return memory;
}

}  // namespace qsf
