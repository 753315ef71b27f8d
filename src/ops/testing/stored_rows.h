// SPDX-License-Identifier: MIT
//
// Random rows of queries, keys and values for tests of attention, and what a cache makes of them.

#ifndef QSF_OPS_TESTING_STORED_ROWS_H_
#define QSF_OPS_TESTING_STORED_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/f16.h"
#include "base/rng.h"
#include "kernels/kv_rows/kv_store.h"
#include "ops/testing/bench.h"
#include "ops/testing/naive_sparse_attention.h"

namespace qsf::testing_support {

struct RowShape {
  std::uint32_t n_heads;
  std::uint32_t n_kv_heads;
  std::uint32_t head_dim;
};

inline NaiveSparseInput random_rows(const RowShape& shape, std::uint32_t n, std::uint64_t seed) {
  Rng rng(seed);
  NaiveSparseInput in;
  for (std::uint32_t i = 0; i < n; ++i) {
    in.q.push_back(random_values(std::size_t{shape.n_heads} * shape.head_dim, rng));
    in.k.push_back(random_values(std::size_t{shape.n_kv_heads} * shape.head_dim, rng));
    in.v.push_back(random_values(std::size_t{shape.n_kv_heads} * shape.head_dim, rng));
    // Some keys that every query likes, and some that none does.
    if (i % 37 == 5) {
      for (float& k : in.k.back()) k *= 3.0F;
    }
  }
  return in;
}

// What the cache holds: keys and values coded and read again.
inline NaiveSparseInput as_stored(NaiveSparseInput in, KvType type, std::uint32_t head_dim) {
  const kernels::KvRowKernels& kv_rows = kernels::kv_row_kernels().back();
  for (const bool keys : {true, false}) {
    for (std::vector<float>& x : keys ? in.k : in.v) {
      for (std::size_t first = 0; first < x.size(); first += head_dim) {
        float* at = x.data() + first;
        if (type == KvType::kF16) {
          for (std::uint32_t d = 0; d < head_dim; ++d) at[d] = to_f32(to_f16(at[d]));
        }
        if (!kv_is_quantised(type)) continue;
        const kernels::KvRowFormat format = kernels::kv_row_format(type, head_dim);
        std::vector<std::byte> coded(kernels::kv_quantised_row_bytes(format));
        std::vector<float> row(format.head_dim);
        std::copy_n(at, head_dim, row.begin());
        const bool turned = keys || kv_rotates_values(type);
        if (turned) kv_rows.rotate(row.data(), format.head_dim);
        kv_rows.quantise(row.data(), coded.data(), format);
        kv_rows.dequantise(coded.data(), row.data(), format);
        if (turned) kv_rows.rotate(row.data(), format.head_dim);
        std::copy_n(row.begin(), head_dim, at);
      }
    }
  }
  return in;
}

}  // namespace qsf::testing_support

#endif  // QSF_OPS_TESTING_STORED_ROWS_H_
