// SPDX-License-Identifier: MIT
//
// Limits from /proc/meminfo and the files of control groups, both versions; the program's memory
// from /proc/self/smaps.

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/sanitizer.h"
#include "platform/cgroup.h"
#include "platform/memory_limits.h"

namespace qsf {
namespace {

// Names of a folder's files, by version.
struct LimitFiles {
  const char* limits[2];  // each of them binds; null: none
  const char* usage;
  const char* inactive_file;  // keys of memory.stat that count descendants too
  const char* active_file;
};
constexpr LimitFiles kVersion1 = {{"/memory.limit_in_bytes", nullptr},
                                  "/memory.usage_in_bytes",
                                  "total_inactive_file",
                                  "total_active_file"};
// Above memory.high a group is not killed but slowed down until nothing moves.
constexpr LimitFiles kVersion2 = {
    {"/memory.max", "/memory.high"}, "/memory.current", "inactive_file", "active_file"};

const LimitFiles& files_of(const CgroupFolder& folder) {
  return folder.version_2 ? kVersion2 : kVersion1;
}

std::uint64_t less(std::uint64_t a, std::uint64_t b) {
  return a - std::min(a, b);
}

// Bytes that may be read ahead of a fault or around it, of the file system that holds the program.
std::uint64_t readahead_bytes_of(const std::string& path) {
  constexpr std::uint64_t kUsual = 128 << 10;
  struct stat about = {};
  if (::stat(path.c_str(), &about) != 0) return kUsual;
  char name[64];
  std::snprintf(name, sizeof name, "/sys/class/bdi/%u:%u/read_ahead_kb", major(about.st_dev),
                minor(about.st_dev));
  const std::uint64_t kilobytes = leading_number(read_system_text(name));
  return kilobytes == 0 ? kUsual : kilobytes * 1024;
}

std::uint64_t file_size_of(const std::string& path) {
  struct stat about = {};
  return ::stat(path.c_str(), &about) == 0 ? static_cast<std::uint64_t>(about.st_size) : 0;
}

std::string read_whole(const char* path) {
  std::string text;
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return text;
  char part[4096];
  while (const std::size_t n_read = std::fread(part, 1, sizeof part, file))
    text.append(part, n_read);
  std::fclose(file);
  return text;
}

}  // namespace

MemoryLimits read_memory_limits(const std::string& root) {
  MemoryLimits limits;
  const std::string machine = read_system_text(root + "/proc/meminfo");
  if (const std::uint64_t total = table_number(machine, "MemTotal:"); total != 0) {
    limits.limit_bytes = total * 1024;
    limits.headroom_bytes = table_number(machine, "MemAvailable:") * 1024;
  }
  for (const CgroupFolder& folder : cgroup_folders(root, "memory")) {
    const LimitFiles& files = files_of(folder);
    std::uint64_t limit = kNoMemoryLimit;
    for (const char* file : files.limits) {
      if (file == nullptr) continue;
      limit = std::min(limit, parse_memory_limit(read_system_text(folder.path + file)));
    }
    if (limit == kNoMemoryLimit) continue;
    const std::string stat = read_system_text(folder.path + "/memory.stat");
    const std::uint64_t droppable =
        table_number(stat, files.inactive_file) + table_number(stat, files.active_file);
    const std::uint64_t usage = leading_number(read_system_text(folder.path + files.usage));
    limits.limit_bytes = std::min(limits.limit_bytes, limit);
    limits.headroom_bytes = std::min(limits.headroom_bytes, less(limit, less(usage, droppable)));
  }
  return limits;
}

MemoryLimitWatch::MemoryLimitWatch(const std::string& root) {
  for (const CgroupFolder& folder : cgroup_folders(root, "memory")) {
    for (const char* file : files_of(folder).limits) {
      if (file == nullptr || ::access((folder.path + file).c_str(), R_OK) != 0) continue;
      paths_.push_back(folder.path + file);
    }
  }
}

std::uint64_t MemoryLimitWatch::limit_bytes() const noexcept {
  std::uint64_t smallest = kNoMemoryLimit;
  for (const std::string& path : paths_) {
    const int handle = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (handle < 0) continue;
    char text[32];
    const ssize_t n_read = ::read(handle, text, sizeof text);
    ::close(handle);
    if (n_read <= 0) continue;
    smallest = std::min(smallest, parse_memory_limit({text, static_cast<std::size_t>(n_read)}));
  }
  return smallest;
}

ProgramMemory program_memory() {
  ProgramMemory memory = add_up_mappings(read_whole("/proc/self/smaps"),
                                         readahead_bytes_of("/proc/self/exe"), file_size_of);
#ifdef QSF_WITH_SANITIZER
  memory.anonymous_bytes = 0;
#endif
  return memory;
}

}  // namespace qsf
