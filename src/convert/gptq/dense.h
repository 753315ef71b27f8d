// SPDX-License-Identifier: MIT
//
// Dense f32 algebra for GPTQ: a Cholesky factor and products of matrices in column-major order
// (element (i, k) at i + k * stride). dense.cc is the only file that includes Eigen, whose headers
// take seconds to compile.
//
// The same bits on every machine of an architecture: blocking does not depend on its cache sizes.

#ifndef QSF_CONVERT_GPTQ_DENSE_H_
#define QSF_CONVERT_GPTQ_DENSE_H_

#include <cstddef>
#include <span>

namespace qsf {

// Rows of a product are computed in whole strips of this many, in the same order of sums in each.
inline constexpr std::size_t kDenseRowStrip = 48;

struct DenseView {
  const float* data;
  std::size_t stride;  // elements from one column to the next
};

// Replaces the lower triangle of a symmetric matrix by its Cholesky factor L, matrix = L L^T.
// Elements above the diagonal are neither read nor written.
// Shapes   matrix [n * n], in columns of n
// Returns  whether the matrix is positive definite in f32 arithmetic; if not, the lower triangle is
//          undefined
// Threads  any
bool factor_cholesky(std::size_t n, std::span<float> matrix);

// Adds a * b to c.
// Shapes      a [n_rows, n_inner], b [n_inner, n_cols], c [n_rows, n_cols] in columns of c_stride
// Requires    n_rows is a multiple of kDenseRowStrip; c overlaps neither a nor b
// Guarantees  a row of c does not depend on the other rows or on its position
// Threads     any
void add_product(DenseView a, DenseView b, std::size_t n_rows, std::size_t n_inner,
                 std::size_t n_cols, float* c, std::size_t c_stride);

// The same for one column.
// Shapes  a [n_rows, n_inner], b [n_inner], c [n_rows]
void add_column_product(DenseView a, const float* b, std::size_t n_rows, std::size_t n_inner,
                        float* c);

}  // namespace qsf

#endif  // QSF_CONVERT_GPTQ_DENSE_H_
