// SPDX-License-Identifier: MIT

#include "convert/head/principal_axes.h"

#define EIGEN_DONT_PARALLELIZE
#define EIGEN_MPL2_ONLY
#include <Eigen/Eigenvalues>
#include <cmath>

#include "base/check.h"
#include "base/ranges.h"

namespace qsf {

void OuterProducts::add(std::span<const float> row) noexcept {
  QSF_CHECK(row.size() == n_cols_);
  for (std::size_t i = 0; i < n_cols_; ++i) {
    double* const sums = &sums_[i * n_cols_];
    const auto factor = static_cast<double>(row[i]);
    for (std::size_t k = 0; k <= i; ++k) sums[k] += factor * static_cast<double>(row[k]);
  }
  ++n_rows_;
}

Result<std::vector<float>> OuterProducts::axes() const {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  if (!ranges::all_of(sums_, [](double sum) { return std::isfinite(sum); })) {
    return invalid_argument("head sketch: hidden rows of the calibration are not finite");
  }
  const auto n = static_cast<Eigen::Index>(n_cols_);
  const Eigen::Map<const Matrix> sums(sums_.data(), n, n);
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(sums);  // reads the lower triangle
  if (solver.info() != Eigen::Success) {
    return invalid_argument("head sketch: the calibration's rows have no principal directions");
  }
  std::vector<float> axes(n_cols_ * n_cols_);
  for (Eigen::Index i = 0; i < n; ++i) {
    for (Eigen::Index k = 0; k < n; ++k) {
      axes[static_cast<std::size_t>(i * n + k)] =
          static_cast<float>(solver.eigenvectors()(k, n - 1 - i));
    }
  }
  return axes;
}

}  // namespace qsf
