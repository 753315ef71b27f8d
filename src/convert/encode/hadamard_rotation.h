// SPDX-License-Identifier: MIT
//
// HadamardRotation: an orthogonal matrix that spreads every element over a block of others, so that
// none is far larger than the rest.
//
// Each block of b columns is multiplied with D2 H D1 / sqrt(b): H the Hadamard matrix in
// Sylvester's order, D1 and D2 diagonals of signs that a seed draws. D1 keeps vectors that H would
// gather in one element, such as constant ones, from being so; D2 keeps a second rotation by H,
// which quantised values take at run time (kernels/kv_rows), from undoing the first.
//
// Based on: Ashkboos et al., "QuaRot: Outlier-Free 4-Bit Inference in Rotated LLMs", 2024; Tseng et
// al., "QuIP#", 2024.

#ifndef QSF_CONVERT_ENCODE_HADAMARD_ROTATION_H_
#define QSF_CONVERT_ENCODE_HADAMARD_ROTATION_H_

#include <cstdint>
#include <span>
#include <vector>

namespace qsf {

class HadamardRotation {
 public:
  // A rotation of vectors of n columns, in blocks of the largest power of two that divides n and is
  // at most `most`.
  // Requires  n and most are at least 1
  HadamardRotation(std::uint32_t n, std::uint32_t most, std::uint64_t seed);

  std::uint32_t block() const noexcept { return block_; }

  // Multiplies vectors that lie one behind the other, x := R x.
  // Requires  x is a whole number of vectors
  void rotate(std::span<float> x) const noexcept;

  // The same for vectors that stand as columns in rows of n_cols: one block of them, of the rows
  // from first_row on of a matrix whose columns are whole vectors.
  // Shapes    rows [block(), n_cols]
  // Requires  first_row is a multiple of block()
  void rotate_columns(std::uint32_t first_row, std::size_t n_cols,
                      std::span<float> rows) const noexcept;

 private:
  std::uint32_t block_ = 1;
  std::vector<float> before_;  // [n], D1
  std::vector<float> after_;   // [n], D2 / sqrt(b)
};

}  // namespace qsf

#endif  // QSF_CONVERT_ENCODE_HADAMARD_ROTATION_H_
