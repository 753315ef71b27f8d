// SPDX-License-Identifier: MIT
//
// Limits from /proc/meminfo and the files of control groups, both versions; the program's memory
// from /proc/self/smaps.

#include "platform/memory_limits.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <optional>

#include "base/sanitizer.h"
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

namespace {

// The first line of a mapping: "7f00-7f20 rw-p 00001000 fe:00 247498    /usr/lib/x.so".
struct MappingLine {
  std::uint64_t bytes = 0;
  std::string_view access;
  std::uint64_t file_offset = 0;
  std::string_view path;  // empty: no name
};

std::optional<std::uint64_t> parse_hex(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string_view take_word(std::string_view& text) {
  const std::size_t first = std::min(text.find_first_not_of(' '), text.size());
  const std::size_t last = std::min(text.find(' ', first), text.size());
  const std::string_view word = text.substr(first, last - first);
  text.remove_prefix(last);
  return word;
}

std::optional<MappingLine> parse_mapping(std::string_view line) {
  const std::string_view range = take_word(line);
  const std::size_t dash = range.find('-');
  if (dash == range.npos) return std::nullopt;
  const auto begin = parse_hex(range.substr(0, dash));
  const auto end = parse_hex(range.substr(dash + 1));
  MappingLine mapping;
  mapping.access = take_word(line);
  const auto offset = parse_hex(take_word(line));
  if (!begin || !end || *end < *begin || !offset || mapping.access.size() != 4) return std::nullopt;
  mapping.bytes = *end - *begin;
  mapping.file_offset = *offset;
  take_word(line);  // device
  take_word(line);  // inode
  mapping.path = line.substr(std::min(line.find_first_not_of(' '), line.size()));
  return mapping;
}

// The part of a file that is mapped, its gaps included. Unused are the mappings that the program
// advised by MADV_RANDOM and MADV_DONTDUMP, apart from their resident pages.
struct FileSpan {
  std::uint64_t begin = UINT64_MAX;
  std::uint64_t end = 0;
  std::uint64_t unused_bytes = 0;
  std::uint64_t n_unused = 0;
  std::uint64_t n_mappings = 0;
  std::uint64_t n_advised = 0;  // by MADV_RANDOM
};

bool is_program_file(std::string_view path) {
  return path.starts_with('/') && !path.starts_with("/dev/") && !path.starts_with("/memfd:");
}

// Bytes that may be read ahead of a fault or around it, of the file system that holds the program.
std::uint64_t readahead_bytes_of(const std::string& path) {
  constexpr std::uint64_t kUsual = 128 << 10;
  struct stat about = {};
  if (::stat(path.c_str(), &about) != 0) return kUsual;
  char name[64];
  std::snprintf(name, sizeof name, "/sys/class/bdi/%u:%u/read_ahead_kb", major(about.st_dev),
                minor(about.st_dev));
  const std::string text = read_system_text(name);
  std::uint64_t kilobytes = 0;
  std::from_chars(text.data(), text.data() + text.size(), kilobytes);
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

ProgramMemory add_up_mappings(std::string_view smaps, std::uint64_t readahead_bytes,
                              const std::function<std::uint64_t(const std::string&)>& file_size) {
  ProgramMemory memory;
  std::map<std::string_view, FileSpan> files;
  MappingLine mapping;
  std::uint64_t resident_bytes = 0;  // of the mapping
  while (!smaps.empty()) {
    const std::size_t end = std::min(smaps.find('\n'), smaps.size());
    const std::string_view line = smaps.substr(0, end);
    smaps.remove_prefix(std::min(end + 1, smaps.size()));
    if (const auto parsed = parse_mapping(line)) {
      mapping = *parsed;
      resident_bytes = 0;
      const bool writable = mapping.access[1] == 'w';
      // Memory that can be written counts whole: the heap, and the data of the program.
      if (mapping.path == "[heap]") memory.anonymous_bytes += mapping.bytes;
      if (!is_program_file(mapping.path)) continue;
      if (writable) memory.anonymous_bytes += mapping.bytes;
      FileSpan& span = files[mapping.path];
      span.begin = std::min(span.begin, mapping.file_offset);
      span.end = std::max(span.end, mapping.file_offset + mapping.bytes);
      ++span.n_mappings;
      continue;
    }
    const bool counted_whole = mapping.path == "[heap]" || (is_program_file(mapping.path) &&
                                                            mapping.access.substr(1, 1) == "w");
    if (mapping.path == "[stack]") {
      memory.stack_bytes += table_number(line, "Anonymous:") * 1024;
    } else if (mapping.path.starts_with("/") && !is_program_file(mapping.path)) {
      memory.anonymous_bytes += table_number(line, "Rss:") * 1024;
    } else if (!counted_whole) {
      memory.anonymous_bytes += table_number(line, "Anonymous:") * 1024;
      resident_bytes += table_number(line, "Rss:") * 1024;
    }
    if (line.starts_with("VmFlags:") && is_program_file(mapping.path)) {
      FileSpan& span = files[mapping.path];
      if (line.find(" rr") == line.npos) continue;
      ++span.n_advised;
      if (line.find(" dd") != line.npos) {
        ++span.n_unused;
        span.unused_bytes += mapping.bytes - std::min(mapping.bytes, resident_bytes);
      }
    }
  }
  for (const auto& [path, span] : files) {
    // Bytes that the kernel may read around a page of the file.
    const std::uint64_t around_bytes = span.n_advised == span.n_mappings ? 0 : readahead_bytes;
    const std::uint64_t begin = span.begin - std::min(span.begin, around_bytes);
    const std::uint64_t file_end = file_size(std::string(path));
    const std::uint64_t end = span.end + around_bytes;
    memory.file_bytes +=
        (file_end == 0 ? end : std::min(end, std::max(file_end, span.end))) - begin;
    memory.file_bytes -=
        span.unused_bytes - std::min(span.unused_bytes, 2 * around_bytes * span.n_unused);
  }
  return memory;
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
