// SPDX-License-Identifier: MIT
//
// The CPUs that the browser names; without threads one.

#include <emscripten/threading.h>

#include <algorithm>
#include <cerrno>
#include <numeric>

#include "platform/cpu_count.h"

namespace qsf {

double cpu_quota(const std::string&) {
  return kNoQuota;
}

std::vector<unsigned> one_cpu_per_core(const std::string&, std::span<const unsigned> cpus) {
  return {cpus.begin(), cpus.end()};
}

std::vector<unsigned> allowed_cpus() {
  std::vector<unsigned> cpus(
      static_cast<std::size_t>(std::max(1, ::emscripten_num_logical_cores())));
  std::iota(cpus.begin(), cpus.end(), 0U);
  return cpus;
}

int bind_thread(ThreadHandle, std::span<const unsigned>) {
  return ENOTSUP;
}

}  // namespace qsf
