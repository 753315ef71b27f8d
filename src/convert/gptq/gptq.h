// SPDX-License-Identifier: MIT
//
// GPTQ (error compensation, Frantar et al. 2023): encodes the rows W of a matrix so that its
// outputs change little rather than its weights. The encoded rows Q minimise approximately
//
//   sum over inputs x of |(W - Q) x|^2 = sum over rows e of W - Q of e H e^T,   H = sum of x x^T
//
// Columns are rounded one after the other, and later columns compensate the error of earlier ones.
// Frantar et al. update all later weights through the upper Cholesky factor of H^-1. The same
// numbers follow without an inverse: with H = R R^T, R upper triangular,
//
//   e H e^T = sum over j of (sum over i <= j of e[i] R[i][j])^2
//
// and term j is smallest when column j is rounded from w[j] + sum over i < j of e[i] F[i][j], where
// F[i][j] = R[i][j] / R[j][j]. R^-1 is their factor, so the choice is the same, at a third of the
// work and with fewer roundings.
//
// encode_row() finds the scale and min of a block (or super-block) from its weights, compensated
// for all earlier columns; the scale of a whole row from the original row. Then each code is the
// nearest to its compensated weight.
//
// Memory   the factor takes the n_cols^2 floats of the Hessian and two more columns: 127 MB for
//          5,632 columns, 485 MB for 11,008. Encoding takes (n_cols + 323) * 192 floats per thread,
//          and Eigen's copies of them for a product.
// Work     n_cols^3 / 3 multiplications to factor, n_cols^2 / 2 per row to encode.
//
// Based on: docs/decisions/034-gptq.md, with measurements of the choices that are not options.

#ifndef QSF_CONVERT_GPTQ_GPTQ_H_
#define QSF_CONVERT_GPTQ_GPTQ_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "quant/block_format.h"
#include "quant/quant_options.h"

namespace qsf {

// Rows that share one read of the factor; encode multiples of it for speed.
inline constexpr std::size_t kGptqRows = 192;

// Damping: added to the diagonal of H, as a share of its mean. It stands for inputs outside the
// calibration set and makes H positive definite.
inline constexpr float kGptqDamping = 0.01F;

// Threads  any number may encode with one factor
class GptqFactor {
 public:
  // Factors H, the sum over the inputs of a product. Columns that were 0 in all inputs neither pass
  // on nor receive errors. The damping is raised tenfold until the factor is sound.
  // Shapes    hessian [n_cols * n_cols], row-major; only the lower triangle is read
  // Requires  n_cols > 0; damping > 0 and finite
  // Fails     kInvalidArgument if an element of H is not finite, one of its diagonal is negative,
  // or
  //           no damping helps: then H is no sum of products
  static Result<GptqFactor> create(std::vector<float> hessian, std::size_t n_cols,
                                   float damping = kGptqDamping);

  std::size_t n_cols() const noexcept { return importance_.size(); }
  // The damping that was used.
  float damping() const noexcept { return damping_; }
  // Column importance: the diagonal of H with the damping.
  // Shapes  [n_cols]
  std::span<const float> importance() const noexcept { return importance_; }
  // F[0 .. j - 1][j], one after the other; columns are n_cols() apart.
  const float* compensation(std::size_t j) const noexcept {
    return compensation_.data() + j * n_cols();
  }

 private:
  GptqFactor(std::vector<float> compensation, std::vector<float> importance, float damping)
      : compensation_(std::move(compensation)),
        importance_(std::move(importance)),
        damping_(damping) {}

  std::vector<float> compensation_;
  std::vector<float> importance_;
  float damping_;
};

// Encodes rows like encode_row(), with error compensation.
// Shapes      rows [n_rows * n_cols], out [n_rows * row_major_bytes(format, n_cols)]
// Requires    is_valid(format), not a float type; weights as encode_row() requires
// Guarantees  rows do not depend on each other or on their split into calls; weights that
//             encode_row() keeps exactly stay exact; for a diagonal H the fields are those of
//             encode_row() with factor.importance(), and the codes are the nearest ones. They
//             differ from encode_row() only for weights halfway between two codes, and for small
//             ternary weights, which kNearest makes 0
// Threads     any
void encode_rows_gptq(const GptqFactor& factor, BlockFormat format, Rounding rounding,
                      std::span<const float> rows, MutableByteSpan out);

}  // namespace qsf

#endif  // QSF_CONVERT_GPTQ_GPTQ_H_
