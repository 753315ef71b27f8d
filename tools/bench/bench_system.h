// SPDX-License-Identifier: MIT
//
// What the benchmark asks of the system.

#ifndef QSF_TOOLS_BENCH_BENCH_SYSTEM_H_
#define QSF_TOOLS_BENCH_BENCH_SYSTEM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace qsf_tools {

// Returns the name of the CPU model; "unknown" where the system has none.
std::string cpu_name();
// Returns the system and its release; empty where it does not say.
std::string system_name();
// Returns the memory of the machine, 0 where it is not known.
std::uint64_t machine_memory_bytes();

// Whether a file may be read.
bool is_readable(const std::string& path);
// Returns why a program cannot be run, which is looked up in PATH as a shell would when it names no
// folder; empty when it can.
std::string program_problem(const std::string& path);
// Runs a program and returns what it wrote to standard output; its standard error is dropped.
// Fails  kIo when it cannot be started, kUnsupported when it fails
qsf::Result<std::string> output_of_program(const std::vector<std::string>& arguments);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_BENCH_BENCH_SYSTEM_H_
