// SPDX-License-Identifier: MIT
//
// What a machine is, for those who read figures measured on it.

#ifndef QSF_TOOLS_BENCH_QSF_BENCH_MACHINE_H_
#define QSF_TOOLS_BENCH_QSF_BENCH_MACHINE_H_

#include <cstdint>
#include <string>

namespace qsf_tools {

struct Machine {
  std::string cpu;       // the model's name, "unknown" where the system does not say
  std::string features;  // instruction sets that kernels may use
  std::string system;    // kernel and its release
  std::uint64_t memory_bytes = 0;
};

Machine describe_machine();

}  // namespace qsf_tools

#endif  // QSF_TOOLS_BENCH_QSF_BENCH_MACHINE_H_
