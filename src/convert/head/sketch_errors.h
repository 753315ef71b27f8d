// SPDX-License-Identifier: MIT
//
// Measures what sketches leave out of the rows of an output head, rounded up, for the bounds of
// model/head_bounds.h, where the names are explained.
//
// With s the decoded sketch of a row w and c the row that is subtracted from all,
//
//   Q e = Q (w - c) - Q Q^T s = (Q (w - c) - s) + (I - Q Q^T) s
//
// so |(Q e)_b| <= |(Q (w - c) - s)_b| + defect |s|. Q is square, so I - Q Q^T has the spectral norm
// of I - Q^T Q, and the Frobenius norm, which is measured, is larger. From |Q e|^2 >= (1 - defect)
// |e|^2 follows a bound of |e|.
//
// Sums are f64; what they round is covered by a factor of 1 + 2^-30 of the norms they are of.

#ifndef QSF_CONVERT_HEAD_SKETCH_ERRORS_H_
#define QSF_CONVERT_HEAD_SKETCH_ERRORS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/head_bounds.h"

namespace qsf {

// Memory   the basis, and 4 bytes for each row and block
// Threads  one; turn() any
class SketchErrors {
 public:
  // Shapes    basis [n_cols * n_cols]  Q, row-major; shared [n_cols] or none  c
  // Requires  n_rows > 0, n_cols > 0
  // Fails     kInvalidArgument if a value is not finite, or the basis is so far from orthonormal
  //           that its defect is 1 / 2 or more
  // Work      n_cols^3 multiplications
  static Result<SketchErrors> create(std::vector<float> basis, std::vector<float> shared,
                                     std::uint32_t n_rows, std::uint32_t n_cols);

  // Computes Q (w - c), which is to be sketched. Work  n_cols^2 multiplications
  // Shapes  row, turned [n_cols]
  void turn(std::span<const float> row, std::span<double> turned) const;

  // Adds a row.
  // Shapes    turned [n_cols] of turn(); sketch [n_cols] decoded
  // Requires  magnitudes are norms of |scale * code| + |min|, of the row of the head as stored and
  //           of the sketch, rounded up
  // Fails     kInvalidArgument if a value is not finite
  Status add(std::uint32_t row, std::span<const double> turned, std::span<const float> sketch,
             double head_magnitude, double sketch_magnitude);

  // Returns the errors of all rows. Rows that were not added have none: call it once, at the end.
  HeadErrors finish() &&;

  float defect() const noexcept { return errors_.defect; }

 private:
  SketchErrors(std::vector<float> basis, std::vector<float> shared, std::uint32_t n_rows,
               std::uint32_t n_cols, float defect);

  std::vector<float> basis_;
  std::vector<float> norms_;  // [blocks, n_rows]
  HeadErrors errors_;
};

// Returns numbers of bits for the blocks of a sketch, which narrow bounds most for their bytes: the
// step with the largest gain for a byte comes first, until no other fits.
// Shapes    hidden_norms [blocks]  typical |(Q h)_b|; error_norms [blocks, bits.size()]  typical
//           |(Q e)_b| at that number of bits
// Requires  bits ascend and begin with 0; row_bytes has the bytes of a block at each of them
std::vector<std::uint32_t> choose_sketch_bits(std::span<const double> hidden_norms,
                                              std::span<const double> error_norms,
                                              std::span<const std::uint32_t> bits,
                                              std::span<const double> block_bytes,
                                              double largest_row_bytes);

}  // namespace qsf

#endif  // QSF_CONVERT_HEAD_SKETCH_ERRORS_H_
