// SPDX-License-Identifier: MIT
//
// Attention over chunk and memory set straight from its definition, in f64 with every score of N x
// N at hand; for tests alone. Memory sets are given, since the choice of the heaviest positions
// is not continuous: whether they were well chosen is told by the column sums.

#ifndef QSF_OPS_TESTING_NAIVE_SPARSE_ATTENTION_H_
#define QSF_OPS_TESTING_NAIVE_SPARSE_ATTENTION_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/f16.h"

namespace qsf::testing_support {

struct NaiveSparseShape {
  std::uint32_t n_heads = 1;
  std::uint32_t n_kv_heads = 1;
  std::uint32_t head_dim = 1;
  std::uint32_t chunk = 1;
  std::uint32_t window = 0;  // positions before its chunk that a query sees whatever the memory set
  double scale = 1.0;
  double soft_cap = 0.0;         // 0: none
  std::vector<double> slopes{};  // [n_heads] or none
  bool bf16_biases = false;      // scaled products of slope and position in bf16, Falcon's
};

// Rows of all positions: q [n_heads * head_dim], k and v [n_kv_heads * head_dim].
struct NaiveSparseInput {
  std::vector<std::vector<float>> q, k, v;
};

// Members that chunk c attends to, by KV head: [chunks][n_kv_heads]; those of chunk 0 are none.
using MemorySets = std::vector<std::vector<std::vector<std::int32_t>>>;

struct NaiveSparseOutput {
  std::vector<std::vector<double>> out;  // [positions][n_heads * head_dim]
  // What the queries of chunk c paid to position j: [chunks][n_kv_heads][positions]
  std::vector<std::vector<std::vector<double>>> paid;
};

// What the distance from position j to i adds to a score.
inline double naive_bias(const NaiveSparseShape& shape, std::uint32_t head, std::int32_t j,
                         std::uint32_t i) {
  const double slope = shape.slopes[head];
  if (!shape.bf16_biases) return slope * (static_cast<double>(j) - i);
  const auto bias = [&](double position) -> double {
    return to_f32(to_bf16(static_cast<float>(
        slope * static_cast<double>(to_f32(to_bf16(static_cast<float>(position)))))));
  };
  return shape.scale * (bias(j) - bias(i));
}

inline NaiveSparseOutput naive_sparse_attention(const NaiveSparseShape& shape,
                                                const NaiveSparseInput& in,
                                                const MemorySets& sets) {
  const auto n = static_cast<std::uint32_t>(in.q.size());
  const std::uint32_t group = shape.n_heads / shape.n_kv_heads;
  NaiveSparseOutput result;
  result.out.assign(n, std::vector<double>(std::size_t{shape.n_heads} * shape.head_dim));
  result.paid.assign((n + shape.chunk - 1) / shape.chunk,
                     std::vector<std::vector<double>>(shape.n_kv_heads, std::vector<double>(n)));
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::uint32_t chunk = i / shape.chunk;
    for (std::uint32_t head = 0; head < shape.n_heads; ++head) {
      const std::uint32_t kv_head = head / group;
      std::vector<std::int32_t> seen = sets[chunk][kv_head];
      const std::uint32_t start = chunk * shape.chunk;
      for (std::uint32_t j = start - std::min(start, shape.window); j <= i; ++j) {
        seen.push_back(static_cast<std::int32_t>(j));
      }
      std::vector<double> weights;
      double total = 0.0;
      for (const std::int32_t j : seen) {
        double score = 0.0;
        for (std::uint32_t d = 0; d < shape.head_dim; ++d) {
          score +=
              static_cast<double>(in.q[i][head * shape.head_dim + d]) *
              static_cast<double>(in.k[static_cast<std::size_t>(j)][kv_head * shape.head_dim + d]);
        }
        score *= shape.scale;
        if (shape.soft_cap != 0.0) score = shape.soft_cap * std::tanh(score / shape.soft_cap);
        if (!shape.slopes.empty()) score += naive_bias(shape, head, j, i);
        weights.push_back(std::exp(score));
        total += weights.back();
      }
      for (std::size_t s = 0; s < seen.size(); ++s) {
        const auto j = static_cast<std::size_t>(seen[s]);
        const double weight = weights[s] / total;
        result.paid[chunk][kv_head][j] += weight;
        for (std::uint32_t d = 0; d < shape.head_dim; ++d) {
          result.out[i][head * shape.head_dim + d] +=
              weight * static_cast<double>(in.v[j][kv_head * shape.head_dim + d]);
        }
      }
    }
  }
  return result;
}

}  // namespace qsf::testing_support

#endif  // QSF_OPS_TESTING_NAIVE_SPARSE_ATTENTION_H_
