// SPDX-License-Identifier: MIT
//
// GPTQ: codes that make up for each other's errors. The rows W of a layer's weights are encoded so
// that its outputs change little, not its weights: Q is chosen for a small
//
//   sum over inputs x of |(W - Q) x|^2 = sum over rows e of W - Q of e H e^T,   H = sum of x x^T
//
// Columns are rounded one after the other, and what one leaves behind is given to those that
// follow. Frantar et al. (2023) update all later weights through the upper Cholesky factor of H^-1.
// The same numbers come without an inverse: with H = R R^T, R upper triangular,
//
//   e H e^T = sum over j of (sum over i <= j of e[i] R[i][j])^2
//
// and term j is smallest when column j is rounded from w[j] + sum over i < j of e[i] F[i][j], where
// F[i][j] = R[i][j] / R[j][j]. R^-1 is their factor, so it is the same choice, at a third of the
// work and with fewer roundings.
//
// Scales and mins of a block (a super-block where there are such) are found by encode_row() from
// its weights after the errors of all columns in front of it, those of a whole row from the row as
// it is; then come the codes, the nearest to each column's weight after all errors so far.
//
// Memory   the factor is the Hessian's own n_cols^2 floats and two columns more: 127 MB for 5,632
//          columns, 485 MB for 11,008. Encoding takes (n_cols + 323) * 192 floats a thread,
//          and what Eigen copies of them for a product.
// Work     n_cols^3 / 3 multiplications to factor, n_cols^2 / 2 a row to encode.
//
// Based on: docs/decisions/034-gptq.md, which has the measurements behind what is not an option.

#ifndef QSF_CONVERT_GPTQ_GPTQ_H_
#define QSF_CONVERT_GPTQ_GPTQ_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "quant/quant_options.h"
#include "quant/types.h"

namespace qsf {

// Rows that share what is read of a factor; encode in multiples of so many where speed counts.
inline constexpr std::size_t kGptqRows = 192;

// What is added to the diagonal of H, as a share of its mean: what inputs other than those seen
// would add, and what makes H definite where those seen do not.
inline constexpr float kGptqDamping = 0.01F;

// Threads  any number may encode with one factor
class GptqFactor {
 public:
  // Factors H, which was summed over the inputs of a product. Columns that were 0 in all of them
  // neither give nor take errors. The damping is raised tenfold until the factor is sound.
  // Shapes    hessian [n_cols * n_cols], row-major; of it the lower triangle
  // Requires  n_cols > 0; damping > 0 and finite
  // Fails     kInvalidArgument when a number of H is not finite, one of its diagonal is negative,
  //           or no damping helps: then H is no sum of products
  static Result<GptqFactor> create(std::vector<float> hessian, std::size_t n_cols,
                                   float damping = kGptqDamping);

  std::size_t n_cols() const noexcept { return importance_.size(); }
  // The share that it took.
  float damping() const noexcept { return damping_; }
  // What a squared error of each column costs by itself: the diagonal of H, damping included.
  // Shapes  [n_cols]
  std::span<const float> importance() const noexcept { return importance_; }
  // F[0 .. j - 1][j], one after the other; columns are n_cols() apart.
  const float* feedback(std::size_t j) const noexcept {
    return compensation_.data() + j * n_cols();
  }

 private:
  GptqFactor(std::vector<float> feedback, std::vector<float> importance, float damping)
      : compensation_(std::move(feedback)), importance_(std::move(importance)), damping_(damping) {}

  std::vector<float> compensation_;
  std::vector<float> importance_;
  float damping_;
};

// Encodes rows as encode_row() does, with errors fed back.
// Shapes      rows [n_rows * n_cols], out [n_rows * row_major_bytes(format, n_cols)]
// Requires    is_valid(format), not a float type; of the weights what encode_row() requires
// Guarantees  rows do not depend on each other, nor on how they are cut into calls; weights that
//             encode_row() keeps exactly are kept; where H is diagonal, the fields of encode_row()
//             with factor.importance(), and the nearest codes: those of encode_row() too, but where
//             a weight lies halfway between two, and where kNearest makes small ternary weights 0
// Threads     any
void encode_rows_gptq(const GptqFactor& factor, BlockFormat format, Rounding rounding,
                      std::span<const float> rows, MutableByteSpan out);

}  // namespace qsf

#endif  // QSF_CONVERT_GPTQ_GPTQ_H_
