// SPDX-License-Identifier: MIT
//
// Rows of queries, keys and values that go through the attention of a backend, pass by pass.

#ifndef QSF_OPS_TESTING_ATTENTION_TEXT_H_
#define QSF_OPS_TESTING_ATTENTION_TEXT_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/testing/bench.h"
#include "ops/testing/stored_rows.h"

namespace qsf::testing_support {

class AttentionText {
 public:
  // Requires  bench and rows outlive it
  AttentionText(Bench& bench, const RowShape& shape, const NaiveSparseInput& rows)
      : bench_(bench), rows_(rows) {
    const auto n = static_cast<std::uint32_t>(rows.q.size());
    q_ = bench.buffer(n, shape.n_heads * shape.head_dim);
    k_ = bench.buffer(n, shape.n_kv_heads * shape.head_dim);
    v_ = bench.buffer(n, shape.n_kv_heads * shape.head_dim);
    out_ = bench.buffer(n, shape.n_heads * shape.head_dim);
  }

  // Stores and attends the next n rows in the layer of `args`, whose buffers are filled in here,
  // and appends what comes out.
  void pass(std::uint32_t n, RowRole role, AttendArgs args, std::vector<std::vector<float>>& out) {
    Backend& backend = bench_.backend();
    bench_.begin(n, role);
    for (std::uint32_t i = 0; i < n; ++i) {
      backend.upload_row(q_, i, rows_.q[n_done_ + i]);
      backend.upload_row(k_, i, rows_.k[n_done_ + i]);
      backend.upload_row(v_, i, rows_.v[n_done_ + i]);
    }
    args.q = q_;
    args.out = out_;
    backend.store_kv(args.layer, k_, v_);
    backend.attend(args);
    EXPECT_TRUE(backend.wait().ok());
    for (std::uint32_t i = 0; i < n; ++i) {
      const auto row = backend.read_row(out_, i);
      out.emplace_back(row.begin(), row.end());
    }
    n_done_ += n;
  }
  std::uint32_t n_done() const { return n_done_; }

 private:
  Bench& bench_;
  const NaiveSparseInput& rows_;
  Buffer q_, k_, v_, out_;
  std::uint32_t n_done_ = 0;
};

// Calls pass(n) until n_rows are done, with n of `sizes` in turns.
template <typename Pass>
void for_passes(std::size_t n_rows, const std::vector<std::uint32_t>& sizes, const Pass& pass) {
  std::size_t next = 0;
  for (std::size_t done = 0; done < n_rows;) {
    const auto n = static_cast<std::uint32_t>(
        std::min<std::size_t>(sizes[next++ % sizes.size()], n_rows - done));
    pass(n);
    done += n;
  }
}

}  // namespace qsf::testing_support

#endif  // QSF_OPS_TESTING_ATTENTION_TEXT_H_
