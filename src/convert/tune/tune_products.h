// SPDX-License-Identifier: MIT
//
// Products of f32 matrices for tuning, forwards and backwards. Eigen's are not used: with the
// instructions that every CPU has they take twice as long, and with others bits would change.
//
// An element of a product is summed over `k` in blocks of a fixed length, multiply and add not
// fused, so its bits depend on neither the CPU model, the number of threads nor the other elements.

#ifndef QSF_CONVERT_TUNE_TUNE_PRODUCTS_H_
#define QSF_CONVERT_TUNE_TUNE_PRODUCTS_H_

#include <cstddef>

namespace qsf {

// A matrix whose element (i, k) is at data[i * row + k * col].
struct MatrixView {
  const float* data;
  std::size_t row;
  std::size_t col;

  MatrixView transposed() const noexcept { return {data, col, row}; }
  MatrixView from_row(std::size_t i) const noexcept { return {data + i * row, row, col}; }
};

// Returns the view of a matrix in rows of n_cols elements.
inline MatrixView by_rows(const float* data, std::size_t n_cols) noexcept {
  return {data, n_cols, 1};
}

struct ProductShape {
  std::size_t m;
  std::size_t n;
  std::size_t k;
};

// c = a b, or c += a b where `adds`.
// Shapes    a [m, k], b [k, n], c [m, n] in rows of c_stride
// Requires  c overlaps neither a nor b
// Threads   any; the second form works on up to n_threads of its own
void multiply(MatrixView a, MatrixView b, ProductShape shape, float* c, std::size_t c_stride,
              bool adds);
void multiply(MatrixView a, MatrixView b, ProductShape shape, float* c, std::size_t c_stride,
              bool adds, unsigned n_threads);

}  // namespace qsf

#endif  // QSF_CONVERT_TUNE_TUNE_PRODUCTS_H_
