// SPDX-License-Identifier: MIT

#include "tools/bench/qsf_bench_samples.h"

#include <algorithm>
#include <cstddef>

namespace qsf_tools {

Spread spread_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const std::size_t middle = samples.size() / 2;
  const double median =
      samples.size() % 2 == 1 ? samples[middle] : 0.5 * (samples[middle - 1] + samples[middle]);
  return {median, samples.front(), samples.back()};
}

}  // namespace qsf_tools
