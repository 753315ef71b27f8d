// SPDX-License-Identifier: MIT

#include "convert/gptq/dense.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/rng.h"

namespace qsf {
namespace {

std::vector<float> random_matrix(std::size_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> matrix(n);
  for (float& value : matrix) value = rng.next_normal();
  return matrix;
}

TEST(DenseTest, FactorTimesItselfIsTheMatrix) {
  for (const std::size_t n : {1U, 2U, 31U, 32U, 150U}) {
    // A A^T + n I, whose upper triangle is not to be read.
    const std::vector<float> a = random_matrix(n * n, n);
    std::vector<double> expected(n * n);
    std::vector<float> matrix(n * n, NAN);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j <= i; ++j) {
        double sum = i == j ? static_cast<double>(n) : 0.0;
        for (std::size_t k = 0; k < n; ++k) {
          sum += static_cast<double>(a[i * n + k]) * a[j * n + k];
        }
        expected[j * n + i] = sum;
        matrix[j * n + i] = static_cast<float>(sum);
      }
    }
    ASSERT_TRUE(factor_cholesky(n, matrix));
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j <= i; ++j) {
        double sum = 0.0;
        for (std::size_t k = 0; k <= j; ++k) {
          sum += static_cast<double>(matrix[k * n + i]) * matrix[k * n + j];
        }
        // Rounded n + 1 times on the way by at most 2^-24 of sqrt(m[i][i] m[j][j]).
        const double size = std::sqrt(expected[i * n + i] * expected[j * n + j]);
        EXPECT_NEAR(sum, expected[j * n + i], static_cast<double>(n + 2) * 0x1p-24 * size)
            << n << ": " << i << ", " << j;
      }
      for (std::size_t j = i + 1; j < n; ++j) EXPECT_TRUE(std::isnan(matrix[j * n + i]));
    }
  }
}

TEST(DenseTest, MatrixThatIsNotPositiveDefiniteHasNoFactor) {
  std::vector<float> matrix = {1.0F, 2.0F, 0.0F, 1.0F};  // 1 2 / 2 1
  EXPECT_FALSE(factor_cholesky(2, matrix));
}

TEST(DenseTest, ProductsAreSumsOverTheInnerIndex) {
  constexpr std::size_t kStride = 2 * kDenseRowStrip + 8;
  for (const std::size_t n_rows : {kDenseRowStrip, 2 * kDenseRowStrip}) {
    for (const std::size_t n_inner : {0U, 1U, 7U, 300U}) {
      for (const std::size_t n_cols : {1U, 3U, 32U, 256U}) {
        const std::vector<float> a = random_matrix(kStride * n_inner, 1);
        const std::vector<float> b = random_matrix((n_inner + 5) * n_cols, 2);
        const std::vector<float> before = random_matrix(kStride * n_cols, 3);
        std::vector<float> c = before;
        add_product({a.data(), kStride}, {b.data(), n_inner + 5}, n_rows, n_inner, n_cols, c.data(),
                    kStride);
        std::vector<float> column = before;
        add_column_product({a.data(), kStride}, b.data(), n_rows, n_inner, column.data());
        for (std::size_t j = 0; j < n_cols; ++j) {
          for (std::size_t i = 0; i < kStride; ++i) {
            double sum = before[j * kStride + i];
            double size = std::fabs(sum);
            for (std::size_t k = 0; k < n_inner && i < n_rows; ++k) {
              const double term =
                  static_cast<double>(a[k * kStride + i]) * b[j * (n_inner + 5) + k];
              sum += term;
              size += std::fabs(term);
            }
            const double bound = static_cast<double>(n_inner + 1) * 0x1p-24 * size;
            ASSERT_NEAR(c[j * kStride + i], sum, bound) << i << ", " << j;
            if (j == 0) {
              ASSERT_NEAR(column[i], sum, bound) << i;
            }
          }
        }
      }
    }
  }
}

TEST(DenseTest, RowsDoNotDependOnTheirPlace) {
  constexpr std::size_t kRows = 4 * kDenseRowStrip;
  constexpr std::size_t kInner = 700;
  constexpr std::size_t kCols = 40;
  // Every row of a is the same, so every row of c has to be.
  std::vector<float> a(kRows * kInner);
  const std::vector<float> row = random_matrix(kInner, 4);
  for (std::size_t k = 0; k < kInner; ++k) std::fill_n(a.begin() + k * kRows, kRows, row[k]);
  const std::vector<float> b = random_matrix(kInner * kCols, 5);
  std::vector<float> all(kRows * kCols);
  add_product({a.data(), kRows}, {b.data(), kInner}, kRows, kInner, kCols, all.data(), kRows);
  std::vector<float> few(kDenseRowStrip * kCols);
  add_product({a.data(), kRows}, {b.data(), kInner}, kDenseRowStrip, kInner, kCols, few.data(),
              kDenseRowStrip);
  std::vector<float> column(kRows);
  add_column_product({a.data(), kRows}, b.data(), kRows, kInner, column.data());
  for (std::size_t j = 0; j < kCols; ++j) {
    for (std::size_t i = 0; i < kRows; ++i) {
      ASSERT_EQ(all[j * kRows + i], few[j * kDenseRowStrip]) << i << ", " << j;
      ASSERT_EQ(column[i], column[0]) << i;
    }
  }
}

}  // namespace
}  // namespace qsf
