// SPDX-License-Identifier: MIT
//
// qsf run --bench: how fast a model runs here, in a few seconds. qsf bench has the limits of the
// machine beside it, and more tests.

#ifndef QSF_TOOLS_RUN_RUN_BENCH_H_
#define QSF_TOOLS_RUN_RUN_BENCH_H_

#include "qsf/qsf.h"

namespace qsf_tools {

// Computes a prompt of any tokens and generates behind it, kBenchRuns times, and prints the medians
// to standard output. Returns the exit code. Requires  speculation is off
inline constexpr int kBenchRuns = 3;
int run_bench(QSFEngine* engine);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_RUN_RUN_BENCH_H_
