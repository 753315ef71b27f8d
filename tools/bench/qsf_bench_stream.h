// SPDX-License-Identifier: MIT
//
// Measures models that are streamed from disk, within memory budgets, beside what the disk gives.

#ifndef QSF_TOOLS_BENCH_QSF_BENCH_STREAM_H_
#define QSF_TOOLS_BENCH_QSF_BENCH_STREAM_H_

#include "base/status.h"
#include "tools/bench/qsf_bench_options.h"

namespace qsf_tools {

// Runs the tests of the options once within each of their budgets, each run between two probes of
// the file's disk, and prints the result. Writes the timeline of the last run where the options
// name a file for it.
qsf::Status bench_streams(const BenchOptions& options);

// Measures the disk of the model's file, every combination of depth and block, and prints it.
qsf::Status bench_disk(const BenchOptions& options);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_BENCH_QSF_BENCH_STREAM_H_
