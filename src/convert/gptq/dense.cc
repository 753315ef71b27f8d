// SPDX-License-Identifier: MIT

#include "convert/gptq/dense.h"

#define EIGEN_DONT_PARALLELIZE
#define EIGEN_MPL2_ONLY
#include <Eigen/Cholesky>
#include <Eigen/Core>

#include "base/check.h"

namespace qsf {
namespace {

using Matrix = Eigen::MatrixXf;
using Index = Eigen::Index;
using Stride = Eigen::OuterStride<>;
using Strided = Eigen::Map<Matrix, Eigen::Unaligned, Stride>;
using ConstStrided = Eigen::Map<const Matrix, Eigen::Unaligned, Stride>;

// Eigen cuts products by the sizes of caches that it asks the CPU for, and with the cuts sums
// change. These are those of a small core of today.
void fix_cache_sizes() {
  static const bool is_fixed = [] {
    Eigen::setCpuCacheSizes(32 << 10, 512 << 10, 1 << 20);
    return true;
  }();
  static_cast<void>(is_fixed);
}

Index index(std::size_t n) noexcept {
  return static_cast<Index>(n);
}

ConstStrided view(DenseView a, std::size_t n_rows, std::size_t n_cols) noexcept {
  return {a.data, index(n_rows), index(n_cols), Stride(index(a.stride))};
}

}  // namespace

bool factor_cholesky(std::size_t n, std::span<float> matrix) {
  QSF_CHECK(matrix.size() == n * n);
  fix_cache_sizes();
  Eigen::Map<Matrix> map(matrix.data(), index(n), index(n));
  Eigen::Ref<Matrix> in_place(map);
  return Eigen::LLT<Eigen::Ref<Matrix>, Eigen::Lower>(in_place).info() == Eigen::Success;
}

void add_product(DenseView a, DenseView b, std::size_t n_rows, std::size_t n_inner,
                 std::size_t n_cols, float* c, std::size_t c_stride) {
  QSF_CHECK(n_rows % kDenseRowStrip == 0);
  if (n_inner == 0) return;
  fix_cache_sizes();
  Strided sum(c, index(n_rows), index(n_cols), Stride(index(c_stride)));
  sum.noalias() += view(a, n_rows, n_inner) * view(b, n_inner, n_cols);
}

void add_column_product(DenseView a, const float* b, std::size_t n_rows, std::size_t n_inner,
                        float* c) {
  if (n_inner == 0) return;
  fix_cache_sizes();
  Eigen::Map<Eigen::VectorXf> sum(c, index(n_rows));
  sum.noalias() += view(a, n_rows, n_inner) * Eigen::Map<const Eigen::VectorXf>(b, index(n_inner));
}

}  // namespace qsf
