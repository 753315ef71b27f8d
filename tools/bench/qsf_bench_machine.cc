// SPDX-License-Identifier: MIT

#include "tools/bench/qsf_bench_machine.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

#include "platform/cpu.h"

namespace qsf_tools {
namespace {

// Returns what /proc/cpuinfo calls the first processor.
std::string cpu_name() {
  std::ifstream lines("/proc/cpuinfo");
  std::string line;
  while (std::getline(lines, line)) {
    const std::size_t colon = line.find(": ");
    const bool names = line.starts_with("model name") || line.starts_with("CPU part");
    if (names && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

Machine describe_machine() {
  Machine machine;
  machine.cpu = cpu_name();
  machine.features = qsf::cpu_features_text(qsf::host_cpu());
  utsname system = {};
  if (::uname(&system) == 0) machine.system = std::string(system.sysname) + " " + system.release;
  const long n_pages = ::sysconf(_SC_PHYS_PAGES);
  const long page_bytes = ::sysconf(_SC_PAGESIZE);
  if (n_pages > 0 && page_bytes > 0) {
    machine.memory_bytes =
        static_cast<std::uint64_t>(n_pages) * static_cast<std::uint64_t>(page_bytes);
  }
  return machine;
}

}  // namespace qsf_tools
