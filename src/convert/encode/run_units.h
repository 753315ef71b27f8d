// SPDX-License-Identifier: MIT
//
// Work that is cut into numbered units, on threads: the same result whichever thread did what.

#ifndef QSF_CONVERT_ENCODE_RUN_UNITS_H_
#define QSF_CONVERT_ENCODE_RUN_UNITS_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <new>
#include <utility>
#include <vector>

#include "base/run_on_threads.h"
#include "base/status.h"

namespace qsf {

// Runs work(unit), which returns a Status. An exception that left a thread would end the process
// and leave the temporary file behind.
template <typename Work>
Status run_unit(const Work& work, std::size_t unit) {
  try {
    return work(unit);
  } catch (const std::bad_alloc&) {
    return out_of_budget("not enough memory to convert; use fewer threads");
  }
}

// Runs work(0) .. work(n - 1) on up to n_threads threads. Returns the failure of the lowest number,
// whichever thread finished first.
template <typename Work>
Status run_units(std::size_t n_units, unsigned n_threads, const Work& work) {
  std::vector<Status> statuses(n_units);
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  const auto loop = [&] {
    // A unit that was taken is always done and units are taken in order, so the lowest failing one
    // is the same at any number of threads.
    while (!failed) {
      const std::size_t unit = next++;
      if (unit >= n_units) return;
      statuses[unit] = run_unit(work, unit);
      if (!statuses[unit].ok()) failed = true;
    }
  };
  run_on_threads(std::clamp<std::size_t>(n_units, 1, n_threads), loop);
  for (Status& status : statuses) QSF_RETURN_IF_ERROR(std::move(status));
  return ok_status();
}

}  // namespace qsf

#endif  // QSF_CONVERT_ENCODE_RUN_UNITS_H_
