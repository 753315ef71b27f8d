// SPDX-License-Identifier: MIT

#include <sys/sysctl.h>

#include <cstddef>

#include "tools/bench/bench_system.h"

namespace qsf_tools {

std::string cpu_name() {
  char name[256] = {};
  std::size_t n_bytes = sizeof name - 1;
  if (::sysctlbyname("machdep.cpu.brand_string", name, &n_bytes, nullptr, 0) != 0) return "unknown";
  return name;
}

}  // namespace qsf_tools
