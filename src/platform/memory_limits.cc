// SPDX-License-Identifier: MIT
//
// Limits from /proc/meminfo and the files of control groups, both versions.

#include "platform/memory_limits.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "platform/cgroup.h"

namespace qsf {
namespace {

// Version 1 writes the largest multiple of a page for "none".
constexpr std::uint64_t kVersion1None = std::uint64_t{1} << 62;

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

std::uint64_t parse_bytes(std::string_view text) {
  std::uint64_t value = 0;
  const std::size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  std::from_chars(text.data() + begin, text.data() + text.size(), value);
  return value;
}

std::uint64_t less(std::uint64_t a, std::uint64_t b) {
  return a - std::min(a, b);
}

}  // namespace

std::uint64_t parse_memory_limit(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = end == text.data() + text.size() || *end == '\n';
  if (error != std::errc{} || !whole || value >= kVersion1None) return kNoMemoryLimit;
  return value;
}

std::uint64_t table_number(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with(key) || line.size() == key.size()) continue;
    const char after = line[key.size()];
    if (after == ' ' || after == '\t') return parse_bytes(line.substr(key.size()));
  }
  return 0;
}

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
    const std::uint64_t usage = parse_bytes(read_system_text(folder.path + files.usage));
    limits.limit_bytes = std::min(limits.limit_bytes, limit);
    limits.headroom_bytes = std::min(limits.headroom_bytes, less(limit, less(usage, droppable)));
  }
  return limits;
}

std::uint64_t default_budget_bytes(const MemoryLimits& limits, std::uint64_t own_bytes) {
  constexpr std::uint64_t kLeastReserve = 8'000'000;
  constexpr std::uint64_t kMostReserve = 512'000'000;
  if (limits.headroom_bytes == kNoMemoryLimit) return kNoMemoryLimit;
  const std::uint64_t reserve = std::clamp(limits.headroom_bytes / 16, kLeastReserve, kMostReserve);
  return std::min(limits.limit_bytes, less(own_bytes + limits.headroom_bytes, reserve));
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

}  // namespace qsf
