// SPDX-License-Identifier: MIT
//
// RowTimes: what passes of so many generated and drafted rows take, as measured.
//
// Each number of rows has a mean of its passes, in which old ones fade. Between two numbers that
// were measured times are interpolated; beyond the largest one a further row is expected to cost
// half of what a row computes there, and waiting for the disk hides it as long as there is any.
// Times never fall with more rows: what interrupts a pass only adds, so that fewer rows take at
// most what more rows took. Else a single row, once measured too slow, would make all drafts look
// free, and would never be measured again.
//
// Threads  one at a time

#ifndef QSF_DRAFT_ROW_TIMES_H_
#define QSF_DRAFT_ROW_TIMES_H_

#include <cstdint>
#include <vector>

#include "draft/draft_length.h"

namespace qsf {

class RowTimes {
 public:
  // Requires  max_rows > 0
  explicit RowTimes(std::uint32_t max_rows);

  // A pass of n_rows took pass_ns, wait_ns of them waiting for the disk. Passes of more rows than
  // the most are ignored. Allocates nothing.
  // Requires  n_rows > 0; wait_ns <= pass_ns
  void add(std::uint32_t n_rows, std::uint64_t pass_ns, std::uint64_t wait_ns) noexcept;

  // Times of passes of n_rows, n_rows + 1 ... rows; empty before the first add() and beyond the
  // most rows. Valid until the next add().
  // Requires  n_rows > 0
  PassTimes from(std::uint32_t n_rows) const noexcept;

 private:
  struct Mean {
    double n_passes = 0.0;  // 0: not measured
    double pass_ns = 0.0;
    double busy_ns = 0.0;  // without waiting
  };
  void estimate() noexcept;

  std::vector<Mean> means_;           // [max_rows]; [r - 1] of r rows
  std::vector<double> least_ns_;      // the same, of so many rows or more
  std::vector<std::uint64_t> times_;  // the same
  bool measured_ = false;
};

}  // namespace qsf

#endif  // QSF_DRAFT_ROW_TIMES_H_
