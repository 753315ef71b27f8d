// SPDX-License-Identifier: MIT
//
// Tests of the reference of sparse attention on cases whose answers are known: what judges the
// engine is judged itself.

#include "ops/testing/naive_sparse_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/rng.h"

namespace qsf::testing_support {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pointwise;

std::vector<std::vector<float>> random_rows(std::size_t n, std::size_t columns, Rng& rng) {
  std::vector<std::vector<float>> rows(n, std::vector<float>(columns));
  for (auto& row : rows) {
    for (float& value : row) value = rng.next_normal();
  }
  return rows;
}

TEST(NaiveSparseAttentionTest, EqualScoresGiveTheMeanOfWhatIsSeen) {
  // Four positions in chunks of two; of the first chunk, position 1 is remembered.
  const NaiveSparseInput in{{{0}, {0}, {0}, {0}}, {{5}, {6}, {7}, {8}}, {{1}, {10}, {100}, {1000}}};
  const auto result = naive_sparse_attention({.chunk = 2}, in, {{{}}, {{1}}});
  EXPECT_THAT(result.out, ElementsAre(ElementsAre(1.0), ElementsAre(5.5), ElementsAre(55.0),
                                      ElementsAre(DoubleNear(370.0, 1e-12))));
  const double third = 1.0 / 3;
  ASSERT_EQ(result.paid.size(), 2U);
  EXPECT_THAT(result.paid[0][0], ElementsAre(1.5, 0.5, 0.0, 0.0));
  EXPECT_THAT(result.paid[1][0],
              Pointwise(DoubleNear(1e-15), std::vector{0.0, 0.5 + third, 0.5 + third, third}));
}

TEST(NaiveSparseAttentionTest, WeightsAreExponentialsOfScaledProducts) {
  const NaiveSparseInput in{{{9, 9}, {1, 2}}, {{3, 0}, {0, 1}}, {{1, 0}, {0, 1}}};
  const auto first_weight = [&in](NaiveSparseShape shape) {
    shape.head_dim = 2;
    shape.chunk = 4;
    shape.scale = 0.5;
    const auto result = naive_sparse_attention(shape, in, {{{}}});
    EXPECT_NEAR(result.out[1][0] + result.out[1][1], 1.0, 1e-15);
    EXPECT_NEAR(result.paid[0][0][0], 1.0 + result.out[1][0], 1e-15);
    return result.out[1][0];
  };
  const auto of_scores = [](double first, double second) {
    return std::exp(first) / (std::exp(first) + std::exp(second));
  };
  EXPECT_NEAR(first_weight({}), of_scores(1.5, 1.0), 1e-15);
  EXPECT_NEAR(first_weight({.soft_cap = 2.0}), of_scores(2 * std::tanh(0.75), 2 * std::tanh(0.5)),
              1e-15);
  EXPECT_NEAR(first_weight({.slopes = {0.25}}), of_scores(1.25, 1.0), 1e-15);
}

TEST(NaiveSparseAttentionTest, AGroupIsItsHeadsWithOneKeyAndValue) {
  Rng rng(1);
  const NaiveSparseInput grouped_rows{random_rows(7, 18, rng), random_rows(7, 6, rng),
                                      random_rows(7, 6, rng)};
  const auto repeat_heads = [](const std::vector<std::vector<float>>& rows) {
    std::vector<std::vector<float>> repeated(rows.size());
    for (std::size_t at = 0; at < rows.size(); ++at) {
      for (std::size_t i = 0; i < 18; ++i) repeated[at].push_back(rows[at][i / 9 * 3 + i % 3]);
    }
    return repeated;
  };
  const NaiveSparseInput rows{grouped_rows.q, repeat_heads(grouped_rows.k),
                              repeat_heads(grouped_rows.v)};
  const std::vector<std::int32_t> a = {0, 2};
  const std::vector<std::int32_t> b = {1, 3};
  const auto grouped = naive_sparse_attention(
      {.n_heads = 6, .n_kv_heads = 2, .head_dim = 3, .chunk = 4}, grouped_rows, {{{}, {}}, {a, b}});
  const auto single =
      naive_sparse_attention({.n_heads = 6, .n_kv_heads = 6, .head_dim = 3, .chunk = 4}, rows,
                             {std::vector<std::vector<std::int32_t>>(6), {a, a, a, b, b, b}});
  EXPECT_EQ(grouped.out, single.out);
  for (std::size_t chunk = 0; chunk < 2; ++chunk) {
    double total = 0.0;
    for (std::size_t h = 0; h < 2; ++h) {
      for (std::size_t j = 0; j < 7; ++j) {
        const auto& of_heads = single.paid[chunk];
        const double sum = of_heads[3 * h][j] + of_heads[3 * h + 1][j] + of_heads[3 * h + 2][j];
        EXPECT_NEAR(grouped.paid[chunk][h][j], sum, 1e-14);
        total += grouped.paid[chunk][h][j];
      }
    }
    EXPECT_NEAR(total, 6.0 * (chunk == 0 ? 4 : 3), 1e-12);  // every query pays 1
  }
}

}  // namespace
}  // namespace qsf::testing_support
