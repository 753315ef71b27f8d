// SPDX-License-Identifier: MIT
//
// The memory of this process: its limits, which are the machine's free memory and the limits of its
// control groups and their ancestors; and what it holds outside the memory plan, which is the
// program's own pages and what it allocated before.
//
// File pages that the kernel can drop do not count as used: the kernel drops them before it refuses
// or kills.

#ifndef QSF_PLATFORM_MEMORY_LIMITS_H_
#define QSF_PLATFORM_MEMORY_LIMITS_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace qsf {

inline constexpr std::uint64_t kNoMemoryLimit = std::numeric_limits<std::uint64_t>::max();

struct MemoryLimits {
  // The machine's memory or the smallest limit of a control group.
  std::uint64_t limit_bytes = kNoMemoryLimit;
  // The bytes that can be allocated now in addition to those in use.
  std::uint64_t headroom_bytes = kNoMemoryLimit;
};

// Parses a limit in the form of control groups: a number of bytes; "max" or version 1's huge number
// means no limit, and so does malformed text.
std::uint64_t parse_memory_limit(std::string_view text);

// Returns the number at the beginning of a text, behind blanks, or 0.
std::uint64_t leading_number(std::string_view text);

// Returns the number behind `key` on its line of a table of keys and numbers ("inactive_file 4096",
// "MemTotal:  24684084 kB", where the unit is left to the caller), or 0.
std::uint64_t table_number(std::string_view text, std::string_view key);

// Reads both figures. `root` goes in front of /proc and /sys; empty on a real machine.
MemoryLimits read_memory_limits(const std::string& root);

// Returns the default memory budget: the bytes that the process holds plus the headroom, minus a
// sixteenth (8 MB to 512 MB) for the rest of the machine.
std::uint64_t default_budget_bytes(const MemoryLimits& limits, std::uint64_t own_bytes);

// Reads limits that may be lowered while the process runs.
// Threads  one at a time
class MemoryLimitWatch {
 public:
  // `root` as in read_memory_limits.
  explicit MemoryLimitWatch(const std::string& root);
  // Returns the smallest limit of the control groups now. Allocates nothing.
  std::uint64_t limit_bytes() const noexcept;

 private:
  std::vector<std::string> paths_;
};

struct ProgramMemory {
  // Of executable and libraries: everything that may enter the page cache, used yet or not.
  std::uint64_t file_bytes = 0;
  // Heap, data and stacks that are resident now, without the main thread's stack, whose size
  // differs from run to run.
  std::uint64_t anonymous_bytes = 0;
  std::uint64_t stack_bytes = 0;  // of the main thread, resident now
};

// Adds up a /proc/self/smaps. A file counts with the span of all its mappings plus
// `readahead_bytes` on either side, which the kernel may read too, within its size, which
// `file_size` returns (0: unknown). The kernel reads nothing around a page where all mappings of
// the file are advised by MADV_RANDOM. A mapping that is advised by MADV_DONTDUMP too is not used:
// it counts with its resident bytes and those that are read around it. Mappings of files under
// `/dev` and `/memfd:` and of the kernel count with their resident bytes.
ProgramMemory add_up_mappings(std::string_view smaps, std::uint64_t readahead_bytes,
                              const std::function<std::uint64_t(const std::string&)>& file_size);

// Returns the figures of this process; 0 where the system does not report them. In builds with
// sanitizers anonymous_bytes is 0, because their shadow memory is several times the memory that
// they watch.
ProgramMemory program_memory();

}  // namespace qsf

#endif  // QSF_PLATFORM_MEMORY_LIMITS_H_
