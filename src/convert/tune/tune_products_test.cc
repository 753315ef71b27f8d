// SPDX-License-Identifier: MIT
//
// Products against sums in double, for shapes that fill no strip and no block, and their bits with
// other threads and in parts.

#include "convert/tune/tune_products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/rng.h"

namespace qsf {
namespace {

std::vector<float> random_values(std::size_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(n);
  for (float& v : values) v = static_cast<float>(rng.below(2001)) / 1000.0F - 1.0F;
  return values;
}

struct Case {
  ProductShape shape;
  bool a_by_columns;
  bool b_by_columns;
};

class TuneProductsTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const ProductShape s = GetParam().shape;
    a_ = random_values(s.m * s.k, 1);
    b_ = random_values(s.k * s.n, 2);
    c_ = random_values(s.m * (s.n + 3), 3);
  }
  MatrixView a() const {
    const ProductShape s = GetParam().shape;
    return GetParam().a_by_columns ? by_rows(a_.data(), s.m).transposed() : by_rows(a_.data(), s.k);
  }
  MatrixView b() const {
    const ProductShape s = GetParam().shape;
    return GetParam().b_by_columns ? by_rows(b_.data(), s.k).transposed() : by_rows(b_.data(), s.n);
  }
  std::size_t stride() const { return GetParam().shape.n + 3; }

  std::vector<float> a_, b_, c_;
};

TEST_P(TuneProductsTest, IsTheSumOfProducts) {
  const ProductShape s = GetParam().shape;
  for (const bool adds : {false, true}) {
    std::vector<float> c = c_;
    multiply(a(), b(), s, c.data(), stride(), adds, 2);
    for (std::size_t i = 0; i < s.m; ++i) {
      for (std::size_t j = 0; j < s.n; ++j) {
        double want = adds ? static_cast<double>(c_[i * stride() + j]) : 0.0;
        for (std::size_t k = 0; k < s.k; ++k) {
          want += static_cast<double>(a().data[i * a().row + k * a().col]) *
                  static_cast<double>(b().data[k * b().row + j * b().col]);
        }
        const double bound = 1e-6 * static_cast<double>(s.k + 1);
        ASSERT_NEAR(static_cast<double>(c[i * stride() + j]), want, bound) << i << ", " << j;
      }
      for (std::size_t j = s.n; j < stride(); ++j) {
        ASSERT_EQ(c[i * stride() + j], c_[i * stride() + j]) << "past the row";
      }
    }
  }
}

TEST_P(TuneProductsTest, BitsDependOnNeitherThreadsNorNeighbours) {
  const ProductShape s = GetParam().shape;
  std::vector<float> whole = c_;
  multiply(a(), b(), s, whole.data(), stride(), true, 1);
  std::vector<float> threads = c_;
  multiply(a(), b(), s, threads.data(), stride(), true, 3);
  EXPECT_EQ(whole, threads);
  std::vector<float> last(c_.end() - static_cast<std::ptrdiff_t>(stride()), c_.end());
  multiply(a().from_row(s.m - 1), b(), {1, s.n, s.k}, last.data(), stride(), true);
  EXPECT_TRUE(
      std::equal(last.begin(), last.end(), whole.end() - static_cast<std::ptrdiff_t>(stride())));
}

INSTANTIATE_TEST_SUITE_P(Shapes, TuneProductsTest,
                         testing::Values(Case{{1, 1, 1}, false, false},
                                         Case{{7, 33, 300}, false, true},
                                         Case{{260, 17, 513}, false, true},
                                         Case{{13, 200, 64}, true, false},
                                         Case{{6, 16, 256}, true, true}));

}  // namespace
}  // namespace qsf
