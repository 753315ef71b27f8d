// SPDX-License-Identifier: MIT
//
// What qsf-bench prints: tables for people, or one JSON object for scripts.

#ifndef QSF_TOOLS_BENCH_QSF_BENCH_REPORT_H_
#define QSF_TOOLS_BENCH_QSF_BENCH_REPORT_H_

#include <optional>
#include <span>
#include <string>

#include "tools/bench/qsf_bench_limits.h"
#include "tools/bench/qsf_bench_model.h"
#include "tools/bench/qsf_bench_peer.h"

namespace qsf_tools {

struct BenchReport {
  std::optional<MachineLimits> limits;
  std::vector<BenchResult> results;
  std::optional<PeerInfo> peer;
};

// Returns the limit of arithmetic that prompts are set against: of f32 where products are exact, of
// bf16 where there are matrix units, elsewhere of int8 for coded weights and of f32 for floats.
const ArithmeticLimit* prompt_limit(const MachineLimits& limits, bool exact, bool float_weights);

void print_tables(const BenchOptions& options, const BenchModel& model, const BenchReport& report);
void print_json(const BenchOptions& options, const BenchModel& model, const BenchReport& report);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_BENCH_QSF_BENCH_REPORT_H_
