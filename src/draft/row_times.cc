// SPDX-License-Identifier: MIT

#include "draft/row_times.h"

#include <algorithm>

#include "base/check.h"

namespace qsf {
namespace {

// Passes that a mean is made of, about.
constexpr double kMeanPasses = 8.0;
// How far from the mean a pass counts: one that was interrupted is no news about its rows.
constexpr double kMostChange = 4.0;
// What a row beyond those measured computes, as a share of a row there: weights are decoded once
// for all rows.
constexpr double kFurtherRow = 0.5;
constexpr double kMostNs = 1e18;

}  // namespace

RowTimes::RowTimes(std::uint32_t max_rows)
    : means_(max_rows), least_ns_(max_rows), times_(max_rows) {
  QSF_CHECK(max_rows > 0);
}

void RowTimes::add(std::uint32_t n_rows, std::uint64_t pass_ns, std::uint64_t wait_ns) noexcept {
  QSF_DCHECK(n_rows > 0 && wait_ns <= pass_ns);
  if (n_rows > means_.size()) return;
  Mean& mean = means_[n_rows - 1];
  double ns = std::clamp(static_cast<double>(pass_ns), 1.0, kMostNs);
  double busy_ns = std::clamp(static_cast<double>(pass_ns - wait_ns), 1.0, kMostNs);
  if (mean.n_passes > 0.0) {
    ns = std::clamp(ns, mean.pass_ns / kMostChange, mean.pass_ns * kMostChange);
    busy_ns = std::min(busy_ns, ns);
  }
  mean.n_passes = std::min(mean.n_passes + 1.0, kMeanPasses);
  mean.pass_ns += (ns - mean.pass_ns) / mean.n_passes;
  mean.busy_ns += (busy_ns - mean.busy_ns) / mean.n_passes;
  measured_ = true;
  estimate();
}

void RowTimes::estimate() noexcept {
  const std::size_t n = means_.size();
  double least = kMostNs;
  for (std::size_t r = n; r-- > 0;) {
    if (means_[r].n_passes > 0.0) least = std::min(least, means_[r].pass_ns);
    least_ns_[r] = least;
  }
  least = 0.0;
  std::size_t known = n;  // the largest one before r that was measured
  for (std::size_t r = 0; r < n; ++r) {
    const auto next = static_cast<std::size_t>(
        std::find_if(means_.begin() + static_cast<std::ptrdiff_t>(r), means_.end(),
                     [](const Mean& mean) { return mean.n_passes > 0.0; }) -
        means_.begin());
    double ns = 0.0;
    if (next < n && (known == n || next == r)) {
      ns = least_ns_[next];
    } else if (next < n) {
      const double share = static_cast<double>(r - known) / static_cast<double>(next - known);
      ns = least_ns_[known] + share * (least_ns_[next] - least_ns_[known]);
    } else {
      const double more = static_cast<double>(r - known) / static_cast<double>(known + 1);
      ns = std::max(means_[known].pass_ns, means_[known].busy_ns * (1.0 + kFurtherRow * more));
    }
    if (next == r) known = r;
    least = std::max(least, ns);
    times_[r] = static_cast<std::uint64_t>(least);
  }
}

PassTimes RowTimes::from(std::uint32_t n_rows) const noexcept {
  QSF_DCHECK(n_rows > 0);
  if (!measured_ || n_rows > times_.size()) return {};
  return PassTimes(times_).subspan(n_rows - 1);
}

}  // namespace qsf
