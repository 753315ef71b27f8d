// SPDX-License-Identifier: MIT
//
// The CPU cores that this process may use: the parts of default_thread_count() and of pinning,
// separate so that tests can describe any machine as text.

#ifndef QSF_PLATFORM_CPU_COUNT_H_
#define QSF_PLATFORM_CPU_COUNT_H_

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "platform/thread.h"

namespace qsf {

inline constexpr double kNoQuota = std::numeric_limits<double>::infinity();

// Parses a list such as "0-3,8" as Linux writes sets of CPUs; empty when it is malformed.
std::vector<unsigned> parse_cpu_list(std::string_view text);

// Returns the CPUs a control group may use at once: of version 2's cpu.max ("150000 100000": 1.5,
// "max 100000": kNoQuota), and of version 1's pair of files. Malformed text means no quota.
double parse_cpu_max(std::string_view text);
double parse_cfs_quota(std::string_view quota_us, std::string_view period_us);

// Returns the smallest quota of this process's control groups, their ancestors included; kNoQuota
// where the system has no such groups. `root` goes in front of /proc and /sys; empty on a real
// machine.
double cpu_quota(const std::string& root);

// Returns the CPUs that the calling thread may run on; all CPUs where the system does not say.
std::vector<unsigned> allowed_cpus();

// Returns one of `cpus` for each physical core they belong to, ascending; a CPU whose topology is
// unknown is one core.
std::vector<unsigned> one_cpu_per_core(const std::string& root, std::span<const unsigned> cpus);

// Returns how many threads can run at once: one for each physical core of `cpus`, or for each CPU,
// bounded by the quota. At least 1.
unsigned usable_cores(const std::string& root, std::span<const unsigned> cpus);
unsigned usable_cpus(const std::string& root, std::span<const unsigned> cpus);

// Restricts a thread to `cpus`. Returns 0 or the system's error number, ENOTSUP where threads
// cannot be bound.
int bind_thread(ThreadHandle thread, std::span<const unsigned> cpus);

}  // namespace qsf

#endif  // QSF_PLATFORM_CPU_COUNT_H_
