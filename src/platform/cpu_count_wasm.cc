// SPDX-License-Identifier: MIT
//
// One CPU: this build has no threads.

#include <cerrno>

#include "platform/cpu_count.h"

namespace qsf {

double cpu_quota(const std::string&) {
  return kNoQuota;
}

std::vector<unsigned> one_cpu_per_core(const std::string&, std::span<const unsigned> cpus) {
  return {cpus.begin(), cpus.end()};
}

std::vector<unsigned> allowed_cpus() {
  return {0};
}

int bind_thread(ThreadHandle, std::span<const unsigned>) {
  return ENOTSUP;
}

}  // namespace qsf
