// SPDX-License-Identifier: MIT
//
// Measures models that are streamed from disk, within memory budgets, beside the rate of the disk.

#ifndef QSF_TOOLS_BENCH_BENCH_STREAM_H_
#define QSF_TOOLS_BENCH_BENCH_STREAM_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "tools/bench/bench_model.h"
#include "tools/bench/bench_options.h"
#include "tools/bench/bench_report.h"

namespace qsf_tools {

// The measurements of one run.
struct StreamRun {
  double seconds = 0.0;
  std::uint64_t bytes_read = 0;  // from the file
  double wait_seconds = 0.0;     // of `seconds`, spent waiting for the disk
  double disk_beside = 0.0;      // bytes a second of the disk just before and after, their mean
  // Of a mixture of experts: those that the passes used, by layer, and those not in memory.
  std::uint64_t experts_used = 0;
  std::uint64_t experts_missed = 0;
  std::uint64_t experts_foreseen = 0;    // of the missing ones, read ahead
  std::uint64_t experts_prefetched = 0;  // read ahead, rightly or not
  std::uint64_t expert_bytes_read = 0;
};

struct StreamResult {
  BenchTest test;
  std::vector<StreamRun> runs;

  template <typename Quantity>
  Spread spread(const Quantity& quantity) const {
    std::vector<double> values;
    for (const StreamRun& run : runs) values.push_back(quantity(run));
    return spread_of(std::move(values));
  }
  Spread tokens_per_second() const {
    return spread([this](const StreamRun& run) {
      return static_cast<double>(test.n_tokens) * test.n_sequences / run.seconds;
    });
  }
  Spread bytes_per_second() const {
    return spread([](const StreamRun& run) { return run.bytes_read / run.seconds; });
  }
  Spread disk_share() const {
    return spread([](const StreamRun& run) {
      return run.disk_beside > 0.0 ? run.bytes_read / run.seconds / run.disk_beside : 0.0;
    });
  }
  Spread expert_hits() const {
    return spread([](const StreamRun& run) {
      const auto used = static_cast<double>(std::max<std::uint64_t>(run.experts_used, 1));
      return 1.0 - static_cast<double>(run.experts_missed) / used;
    });
  }
  Spread wait_share() const {
    return spread([](const StreamRun& run) { return run.wait_seconds / run.seconds; });
  }
};

// One model within one budget.
struct Stream {
  std::uint64_t budget_bytes = 0;
  std::string mode;
  double resident_share = 0.0;
  std::uint64_t planned_bytes = 0;
  std::uint32_t rows_per_pass = 0;
  std::uint64_t streamed_bytes = 0;  // of a pass
  std::uint32_t n_experts = 0;       // of all layers
  std::uint32_t n_expert_slots = 0;
  std::vector<StreamResult> results;
};

// Runs the tests of the options once within each of their budgets, each run between two probes of
// the file's disk, and prints the result. Writes the timeline of the last run where the options
// name a file for it.
qsf::Status bench_streams(const BenchOptions& options);

// Measures the disk of the model's file, every combination of depth and block, and prints it.
qsf::Status bench_disk(const BenchOptions& options);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_BENCH_BENCH_STREAM_H_
