// SPDX-License-Identifier: MIT
//
// Physical cores by affinity, topology and control-group quota, and threads bound to them.
//
// One thread a core: the second hardware thread of a core shares the vector units and caches that
// matrix kernels fill, and a bandwidth-bound decode gains nothing from it.

#include "platform/cpu_count.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <set>

#include "platform/cgroup.h"
#include "platform/threads.h"

#ifdef __linux__
#include <sched.h>
#endif
#include <unistd.h>

namespace qsf {
namespace {

// Takes the next word, up to white space or the end.
std::string_view take_word(std::string_view* text) {
  const std::size_t first = std::min(text->find_first_not_of(" \t\n"), text->size());
  const std::size_t last = std::min(text->find_first_of(" \t\n", first), text->size());
  const std::string_view word = text->substr(first, last - first);
  text->remove_prefix(last);
  return word;
}

bool parse_number(std::string_view text, std::int64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc{} && end == text.data() + text.size();
}

double quota_of(std::int64_t quota_us, std::int64_t period_us) {
  if (quota_us <= 0 || period_us <= 0) return kNoQuota;
  return static_cast<double>(quota_us) / static_cast<double>(period_us);
}

}  // namespace

std::vector<unsigned> parse_cpu_list(std::string_view text) {
  constexpr std::int64_t kMaxCpu = 1 << 16;
  std::vector<unsigned> cpus;
  text = take_word(&text);
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view range = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const std::size_t dash = std::min(range.find('-'), range.size());
    std::int64_t first = 0;
    if (!parse_number(range.substr(0, dash), &first)) return {};
    std::int64_t last = first;
    if (dash < range.size() && !parse_number(range.substr(dash + 1), &last)) return {};
    if (first < 0 || last < first || last > kMaxCpu) return {};
    for (std::int64_t cpu = first; cpu <= last; ++cpu) cpus.push_back(static_cast<unsigned>(cpu));
  }
  return cpus;
}

double parse_cpu_max(std::string_view text) {
  std::int64_t quota_us = 0;
  std::int64_t period_us = 0;
  if (!parse_number(take_word(&text), &quota_us)) return kNoQuota;
  if (!parse_number(take_word(&text), &period_us)) return kNoQuota;
  return quota_of(quota_us, period_us);
}

double parse_cfs_quota(std::string_view quota_text, std::string_view period_text) {
  std::int64_t quota_us = 0;
  std::int64_t period_us = 0;
  if (!parse_number(take_word(&quota_text), &quota_us)) return kNoQuota;
  if (!parse_number(take_word(&period_text), &period_us)) return kNoQuota;
  return quota_of(quota_us, period_us);
}

double cgroup_cpu_quota(const std::string& root) {
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

namespace {

unsigned at_most_quota(const std::string& root, std::size_t n_cpus) {
  const double usable = std::min({static_cast<double>(n_cpus), std::ceil(cgroup_cpu_quota(root)),
                                  static_cast<double>(kMaxThreads)});
  return std::max(1U, static_cast<unsigned>(usable));
}

}  // namespace

unsigned usable_cores(const std::string& root, std::span<const unsigned> cpus) {
  return at_most_quota(root, one_cpu_per_core(root, cpus).size());
}

unsigned usable_cpus(const std::string& root, std::span<const unsigned> cpus) {
  return at_most_quota(root, cpus.size());
}

std::vector<unsigned> allowed_cpus() {
  std::vector<unsigned> cpus;
#ifdef __linux__
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
#endif
  if (cpus.empty()) {
    const long n_online = ::sysconf(_SC_NPROCESSORS_ONLN);
    for (long cpu = 0; cpu < std::max(1L, n_online); ++cpu)
      cpus.push_back(static_cast<unsigned>(cpu));
  }
  return cpus;
}

int bind_thread(pthread_t thread, std::span<const unsigned> cpus) {
#ifdef __linux__
  const std::size_t n_cpus = std::size_t{*std::max_element(cpus.begin(), cpus.end())} + 1;
  cpu_set_t* set = CPU_ALLOC(n_cpus);
  if (set == nullptr) return ENOMEM;
  const std::size_t set_bytes = CPU_ALLOC_SIZE(n_cpus);
  CPU_ZERO_S(set_bytes, set);
  for (const unsigned cpu : cpus) CPU_SET_S(cpu, set_bytes, set);
  const int error = ::pthread_setaffinity_np(thread, set_bytes, set);
  CPU_FREE(set);
  return error;
#else
  static_cast<void>(thread);
  static_cast<void>(cpus);
  return ENOTSUP;
#endif
}

unsigned default_thread_count() {
  return usable_cores("", allowed_cpus());
}

}  // namespace qsf
