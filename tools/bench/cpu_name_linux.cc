// SPDX-License-Identifier: MIT

#include <fstream>

#include "tools/bench/bench_system.h"

namespace qsf_tools {

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

}  // namespace qsf_tools
