// SPDX-License-Identifier: MIT
//
// CPUs by sysctl. macOS has no quotas, says nothing of which CPU belongs to which core, and binds
// no threads.

#include <algorithm>
#include <cerrno>

#include "platform/cpu_count.h"
#include "platform/sysctl_number.h"

namespace qsf {

double cpu_quota(const std::string&) {
  return kNoQuota;
}

// The slow cores of Apple's processors would keep the fast ones waiting at the end of each matrix.
std::vector<unsigned> one_cpu_per_core(const std::string&, std::span<const unsigned> cpus) {
  std::uint64_t n_cores = sysctl_number("hw.perflevel0.physicalcpu");
  if (n_cores == 0) n_cores = sysctl_number("hw.physicalcpu");
  std::vector<unsigned> chosen(cpus.begin(), cpus.end());
  std::sort(chosen.begin(), chosen.end());
  if (n_cores != 0 && n_cores < chosen.size()) chosen.resize(n_cores);
  return chosen;
}

std::vector<unsigned> allowed_cpus() {
  const std::uint64_t n_cpus = std::max<std::uint64_t>(1, sysctl_number("hw.logicalcpu"));
  std::vector<unsigned> cpus;
  for (unsigned cpu = 0; cpu < n_cpus; ++cpu) cpus.push_back(cpu);
  return cpus;
}

int bind_thread(ThreadHandle, std::span<const unsigned>) {
  return ENOTSUP;
}

}  // namespace qsf
