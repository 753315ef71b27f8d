// SPDX-License-Identifier: MIT
//
// Random rows of queries, keys and values for tests of attention, and what a cache makes of them.

#ifndef QSF_OPS_TESTING_STORED_ROWS_H_
#define QSF_OPS_TESTING_STORED_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
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

// A row as the cache holds it: coded and read again, head by head.
inline std::vector<float> as_stored(std::vector<float> x, KvType type, std::uint32_t head_dim,
                                    bool keys) {
  if (type == KvType::kF16) {
    for (float& value : x) value = to_f32(to_f16(value));
  }
  if (!kv_is_quantised(type)) return x;
  const kernels::KvRowKernels& kv_rows = kernels::kv_row_kernels().back();
  const kernels::KvRowFormat format = kernels::kv_row_format(type, head_dim);
  const bool turned = keys || kv_rotates_values(type);
  std::vector<std::byte> coded(kernels::kv_quantised_row_bytes(format));
  std::vector<float> row(format.head_dim);
  for (auto head = x.begin(); head != x.end(); head += head_dim) {
    std::fill(std::copy_n(head, head_dim, row.begin()), row.end(), 0.0F);
    if (turned) kv_rows.rotate(row.data(), format.head_dim);
    kv_rows.quantise(row.data(), coded.data(), format);
    kv_rows.dequantise(coded.data(), row.data(), format);
    if (turned) kv_rows.rotate(row.data(), format.head_dim);
    std::copy_n(row.begin(), head_dim, head);
  }
  return x;
}
inline NaiveSparseInput as_stored(NaiveSparseInput in, KvType type, std::uint32_t head_dim) {
  for (std::vector<float>& k : in.k) k = as_stored(std::move(k), type, head_dim, true);
  for (std::vector<float>& v : in.v) v = as_stored(std::move(v), type, head_dim, false);
  return in;
}

}  // namespace qsf::testing_support

#endif  // QSF_OPS_TESTING_STORED_ROWS_H_
