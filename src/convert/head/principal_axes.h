// SPDX-License-Identifier: MIT
//
// The principal directions of rows: the eigenvectors of the sum of their outer products.

#ifndef QSF_CONVERT_HEAD_PRINCIPAL_AXES_H_
#define QSF_CONVERT_HEAD_PRINCIPAL_AXES_H_

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"

namespace qsf {

// Sums outer products of rows. Sums are f64, in the order of rows. Threads  one
class OuterProducts {
 public:
  explicit OuterProducts(std::size_t n_cols) : n_cols_(n_cols), sums_(n_cols * n_cols) {}

  // Shapes  row [n_cols]
  void add(std::span<const float> row) noexcept;
  std::size_t n_rows() const noexcept { return n_rows_; }

  // Returns the eigenvectors as rows, the largest eigenvalue first: [n_cols * n_cols], row-major.
  // Fails  kInvalidArgument if a sum is not finite
  Result<std::vector<float>> axes() const;

 private:
  std::size_t n_cols_;
  std::size_t n_rows_ = 0;
  std::vector<double> sums_;  // [n_cols, n_cols], the lower triangle
};

}  // namespace qsf

#endif  // QSF_CONVERT_HEAD_PRINCIPAL_AXES_H_
