// SPDX-License-Identifier: MIT
//
// Measures speculation on recorded texts: each is generated with and without drafts, in turns.
//
// Whatever the model's logits are, its token is that of the text. So the drafts that the model of
// the recording accepted are accepted by any model, one of random weights too, and what is measured
// is the speed of that model at this acceptance.

#ifndef QSF_TOOLS_BENCH_BENCH_TEXTS_H_
#define QSF_TOOLS_BENCH_BENCH_TEXTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "tools/bench/bench_options.h"
#include "tools/bench/bench_report.h"

namespace qsf_tools {

// A text within a budget.
struct TextFigure {
  std::uint64_t budget_bytes = 0;  // 0: none
  std::string text;
  std::uint32_t n_tokens = 0;   // of the answer
  std::uint64_t n_drafted = 0;  // in the last run
  std::uint64_t n_accepted = 0;
  std::vector<double> off_rates;  // tokens a second of each run, behind the first token
  std::vector<double> drafted_rates;

  Spread off() const { return spread_of(off_rates); }
  Spread drafted() const { return spread_of(drafted_rates); }
  // The median of the ratios of runs that followed one another.
  double ratio() const;
  double tokens_per_pass() const {
    return static_cast<double>(n_tokens) / static_cast<double>(n_tokens - n_accepted);
  }
};

// Runs the texts of the options within each of their budgets, and prints the result.
qsf::Status bench_texts(const BenchOptions& options);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_BENCH_BENCH_TEXTS_H_
