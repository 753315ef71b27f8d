// SPDX-License-Identifier: MIT
//
// How much memory this process may take: what the machine has at hand and what its control groups
// still allow, every ancestor included.
//
// File pages that the kernel can drop are not counted as used, since it drops them before it
// refuses or kills.

#ifndef QSF_PLATFORM_MEMORY_LIMITS_H_
#define QSF_PLATFORM_MEMORY_LIMITS_H_

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace qsf {

inline constexpr std::uint64_t kNoMemoryLimit = std::numeric_limits<std::uint64_t>::max();

struct MemoryLimits {
  std::uint64_t limit_bytes = kNoMemoryLimit;     // the machine's memory or the smallest limit of a
                                                  // control group: more can never be had
  std::uint64_t headroom_bytes = kNoMemoryLimit;  // what can be taken now on top of what is in use
};

// Parses a limit as a control group writes it: a number of bytes, "max" or version 1's huge number
// for none. Malformed text is no limit.
std::uint64_t parse_memory_limit(std::string_view text);

// Returns the number behind `key` on its line of a table of keys and numbers ("inactive_file 4096",
// "MemTotal:  24684084 kB", where the unit is left to the caller), or 0.
std::uint64_t table_number(std::string_view text, std::string_view key);

// Reads both figures. `root` goes in front of /proc and /sys; empty on a real machine.
MemoryLimits read_memory_limits(const std::string& root);

// Returns the budget of a process that was given none: what it holds already and the headroom, less
// a sixteenth of it (8 MB to 512 MB) for what else the machine does.
std::uint64_t default_budget_bytes(const MemoryLimits& limits, std::uint64_t own_bytes);

// Watches whether limits are lowered while the process runs.
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

}  // namespace qsf

#endif  // QSF_PLATFORM_MEMORY_LIMITS_H_
