// SPDX-License-Identifier: MIT
//
// What the texts of Linux about memory mean; other systems have no such texts.

#include "platform/memory_limits.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

namespace qsf {
namespace {

// Version 1 writes the largest multiple of a page for "none".
constexpr std::uint64_t kVersion1None = std::uint64_t{1} << 62;

}  // namespace

std::uint64_t leading_number(std::string_view text) {
  std::uint64_t value = 0;
  const std::size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  std::from_chars(text.data() + begin, text.data() + text.size(), value);
  return value;
}

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
    if (after == ' ' || after == '\t') return leading_number(line.substr(key.size()));
  }
  return 0;
}

std::uint64_t default_budget_bytes(const MemoryLimits& limits, std::uint64_t own_bytes) {
  constexpr std::uint64_t kLeastReserve = 8'000'000;
  constexpr std::uint64_t kMostReserve = 512'000'000;
  if (limits.headroom_bytes == kNoMemoryLimit) return kNoMemoryLimit;
  const std::uint64_t reserve = std::clamp(limits.headroom_bytes / 16, kLeastReserve, kMostReserve);
  return std::min(limits.limit_bytes,
                  std::max(own_bytes + limits.headroom_bytes, reserve) - reserve);
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

}  // namespace qsf
