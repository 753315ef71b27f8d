// SPDX-License-Identifier: MIT

#include "convert/encode/rotated_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "base/rng.h"

namespace qsf {
namespace {

std::vector<float> random_values(std::size_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(n);
  for (float& value : values) value = rng.next_normal();
  return values;
}

// R as the definition has it: column i is what the rotation makes of the i-th unit vector.
std::vector<std::vector<float>> columns_of(const HadamardRotation& rotation, std::size_t n) {
  std::vector<std::vector<float>> columns;
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<float> x(n);
    x[i] = 1.0F;
    rotation.rotate(x);
    columns.push_back(x);
  }
  return columns;
}

TEST(HadamardRotationTest, BlocksAreTheLargestPowerOfTwo) {
  EXPECT_EQ(HadamardRotation(80, 256, 1).block(), 16U);
  EXPECT_EQ(HadamardRotation(256, 256, 1).block(), 256U);
  EXPECT_EQ(HadamardRotation(4096, 256, 1).block(), 256U);
  EXPECT_EQ(HadamardRotation(12, 256, 1).block(), 4U);
  EXPECT_EQ(HadamardRotation(7, 256, 1).block(), 1U);
}

// Up to signs of rows and columns, R is Sylvester's matrix: the sign of (i, j) is the parity of the
// ones that i and j share.
TEST(HadamardRotationTest, IsAHadamardMatrixBetweenSigns) {
  constexpr std::size_t kN = 24;
  const HadamardRotation rotation(kN, 256, 3);
  ASSERT_EQ(rotation.block(), 8U);
  const auto columns = columns_of(rotation, kN);
  const float size = std::sqrt(1.0F / 8.0F);
  std::set<float> signs_of_rows;
  for (std::size_t first = 0; first < kN; first += 8) {
    for (std::size_t j = 0; j < kN; ++j) {
      for (std::size_t i = first; i < first + 8; ++i) {
        if (j < first || j >= first + 8) {
          EXPECT_EQ(columns[j][i], 0.0F) << i << ", " << j;
          continue;
        }
        const bool odd = (__builtin_popcountll((i - first) & (j - first)) & 1) != 0;
        const float of_row = columns[first][i];
        const float of_column = columns[j][first] / columns[first][first];
        EXPECT_FLOAT_EQ(std::fabs(columns[j][i]), size);
        EXPECT_FLOAT_EQ(columns[j][i], (odd ? -1.0F : 1.0F) * of_row * of_column) << i << ", " << j;
        signs_of_rows.insert(of_row);
      }
    }
  }
  EXPECT_EQ(signs_of_rows.size(), 2U) << "no row has its sign drawn";
}

// Quantised values are rotated by H once more when they are stored.
TEST(HadamardRotationTest, IsNotUndoneByASecondHadamard) {
  constexpr std::size_t kN = 64;
  const HadamardRotation rotation(kN, kN, 2);
  std::vector<float> x(kN);
  x[5] = 1.0F;
  rotation.rotate(x);
  double largest = 0.0;
  for (std::size_t i = 0; i < kN; ++i) {
    double sum = 0.0;
    for (std::size_t j = 0; j < kN; ++j) {
      sum += (__builtin_popcountll(i & j) & 1) != 0 ? -static_cast<double>(x[j])
                                                    : static_cast<double>(x[j]);
    }
    largest = std::max(largest, std::fabs(sum) / std::sqrt(double{kN}));
  }
  EXPECT_LT(largest, 0.6) << "one column holds it all again";
}

TEST(HadamardRotationTest, KeepsProducts) {
  for (const std::uint32_t n : {16U, 48U, 256U, 768U}) {
    const HadamardRotation rotation(n, 256, 7);
    std::vector<float> x = random_values(n, 1);
    std::vector<float> y = random_values(n, 2);
    const auto dot = [&] {
      double sum = 0.0;
      for (std::uint32_t i = 0; i < n; ++i) sum += double{x[i]} * double{y[i]};
      return sum;
    };
    const double before = dot();
    rotation.rotate(x);
    rotation.rotate(y);
    EXPECT_NEAR(dot(), before, 1e-4) << n;
  }
}

TEST(HadamardRotationTest, MixesRowsAsItMixesElements) {
  constexpr std::size_t kN = 24;
  constexpr std::size_t kCols = 131;  // two panels and a rest
  const HadamardRotation rotation(kN, 256, 5);
  const std::vector<float> matrix = random_values(2 * kN * kCols, 4);  // two vectors a column
  std::vector<float> rows = matrix;
  for (std::uint32_t at = 0; at < 2 * kN; at += rotation.block()) {
    rotation.rotate_columns(at, kCols,
                            std::span(rows).subspan(at * kCols, rotation.block() * kCols));
  }
  for (std::size_t c = 0; c < kCols; ++c) {
    std::vector<float> column(2 * kN);
    for (std::size_t r = 0; r < column.size(); ++r) column[r] = matrix[r * kCols + c];
    rotation.rotate(column);
    for (std::size_t r = 0; r < column.size(); ++r) {
      ASSERT_EQ(rows[r * kCols + c], column[r]) << r << ", " << c;
    }
  }
}

}  // namespace
}  // namespace qsf
