// SPDX-License-Identifier: MIT
//
// Runs operators of layers with a state over a text that is cut into passes, for their tests.

#ifndef QSF_OPS_TESTING_STATE_PASSES_H_
#define QSF_OPS_TESTING_STATE_PASSES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kv/state_cache.h"
#include "ops/testing/bench.h"

namespace qsf::testing_support {

// Returns the rows of `out` that layer 1 of two gives for n_rows rows, at most `rows_per_pass` in a
// pass. `upload(i, row)` makes a row of the text the i-th of the pass, `run(layer)` submits the
// operator. Layer 0 runs behind layer 1 in every pass, over the text from its end, so that a state
// of the wrong layer shows in the next pass.
template <typename Upload, typename Run>
std::vector<std::vector<float>> run_in_passes(Bench& bench, StateCache& states,
                                              std::uint32_t n_rows, std::uint32_t rows_per_pass,
                                              Buffer out, const Upload& upload, const Run& run) {
  Backend& backend = bench.backend();
  std::vector<std::vector<float>> outputs;
  for (std::uint32_t done = 0; done < n_rows;) {
    const std::uint32_t n = std::min(rows_per_pass, n_rows - done);
    states.begin(bench.sequence(), RowRole::kPrompt);
    bench.begin(n, RowRole::kPrompt);
    for (std::uint32_t i = 0; i < n; ++i) upload(i, done + i);
    run(1U);
    EXPECT_TRUE(backend.wait().ok());
    for (std::uint32_t i = 0; i < n; ++i) {
      const auto row = backend.read_row(out, i);
      outputs.emplace_back(row.begin(), row.end());
    }
    for (std::uint32_t i = 0; i < n; ++i) upload(i, n_rows - 1 - done - i);
    run(0U);
    EXPECT_TRUE(backend.wait().ok());
    states.commit(bench.sequence(), n);
    done += n;
  }
  return outputs;
}

}  // namespace qsf::testing_support

#endif  // QSF_OPS_TESTING_STATE_PASSES_H_
