// SPDX-License-Identifier: MIT
//
// CPUs by affinity, topology in /sys and the quota of control groups, and threads bound to them.

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "platform/cgroup.h"
#include "platform/cpu_count.h"

namespace qsf {

double cpu_quota(const std::string& root) {
  double quota = kNoQuota;
  for (const CgroupFolder& group : cgroup_folders(root, "cpu")) {
    quota =
        std::min(quota, group.version_2
                            ? parse_cpu_max(read_system_text(group.path + "/cpu.max"))
                            : parse_cfs_quota(read_system_text(group.path + "/cpu.cfs_quota_us"),
                                              read_system_text(group.path + "/cpu.cfs_period_us")));
  }
  return quota;
}

std::vector<unsigned> one_cpu_per_core(const std::string& root, std::span<const unsigned> cpus) {
  std::set<unsigned> cores;  // each core by its lowest hardware thread
  std::vector<unsigned> chosen;
  for (const unsigned cpu : cpus) {
    const std::vector<unsigned> siblings =
        parse_cpu_list(read_system_text(root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                                        "/topology/thread_siblings_list"));
    const unsigned core =
        siblings.empty() ? cpu : *std::min_element(siblings.begin(), siblings.end());
    if (cores.insert(core).second) chosen.push_back(cpu);
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::vector<unsigned> allowed_cpus() {
  std::vector<unsigned> cpus;
  // More CPUs than a fixed cpu_set_t holds make the call fail with EINVAL: ask for larger sets.
  for (std::size_t n_cpus = 1024; n_cpus <= (1U << 16) && cpus.empty(); n_cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(n_cpus);
    if (set == nullptr) break;
    const std::size_t set_bytes = CPU_ALLOC_SIZE(n_cpus);
    if (::sched_getaffinity(0, set_bytes, set) == 0) {
      for (unsigned cpu = 0; cpu < n_cpus; ++cpu) {
        if (CPU_ISSET_S(cpu, set_bytes, set)) cpus.push_back(cpu);
      }
    }
    CPU_FREE(set);
  }
  if (cpus.empty()) {
    const long n_online = ::sysconf(_SC_NPROCESSORS_ONLN);
    for (long cpu = 0; cpu < std::max(1L, n_online); ++cpu)
      cpus.push_back(static_cast<unsigned>(cpu));
  }
  return cpus;
}

int bind_thread(ThreadHandle thread, std::span<const unsigned> cpus) {
  const std::size_t n_cpus = std::size_t{*std::max_element(cpus.begin(), cpus.end())} + 1;
  cpu_set_t* set = CPU_ALLOC(n_cpus);
  if (set == nullptr) return ENOMEM;
  const std::size_t set_bytes = CPU_ALLOC_SIZE(n_cpus);
  CPU_ZERO_S(set_bytes, set);
  for (const unsigned cpu : cpus) CPU_SET_S(cpu, set_bytes, set);
  const int error = ::pthread_setaffinity_np(thread, set_bytes, set);
  CPU_FREE(set);
  return error;
}

}  // namespace qsf
