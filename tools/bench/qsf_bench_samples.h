// SPDX-License-Identifier: MIT
//
// Repeated measurements of one quantity.

#ifndef QSF_TOOLS_BENCH_QSF_BENCH_SAMPLES_H_
#define QSF_TOOLS_BENCH_QSF_BENCH_SAMPLES_H_

#include <vector>

namespace qsf_tools {

struct Spread {
  double median = 0.0;  // of an even number the mean of the two in the middle
  double min = 0.0;
  double max = 0.0;
};

// Returns zeros for no samples.
Spread spread_of(std::vector<double> samples);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_BENCH_QSF_BENCH_SAMPLES_H_
