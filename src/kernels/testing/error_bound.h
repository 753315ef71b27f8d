// SPDX-License-Identifier: MIT
//
// How far a kernel may be from the exact result, derived from its number of roundings.
//
// A chain of k roundings multiplies a term by a factor within 1 +- gamma(k), gamma(k) = k u /
// (1 - k u), u = 2^-24 the unit roundoff of f32. So a sum whose terms each pass at most k roundings
// is off by at most gamma(k) times the sum of their magnitudes, whatever the order of additions.
// Based on: Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 3.1.

#ifndef QSF_KERNELS_TESTING_ERROR_BOUND_H_
#define QSF_KERNELS_TESTING_ERROR_BOUND_H_

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/matmul/matmul.h"
#include "quant/block_format.h"

namespace qsf::kernels::testing_support {

inline constexpr double kUnitRoundoff = 0x1p-24;
inline constexpr double kSmallestNormal = 0x1p-126;

double gamma_of(double n_roundings) noexcept;

// Bound of one output of a product with rows of f32 or bf16. `magnitude` is the sum over columns of
// (|scale * code| + |min|) * |x|, min standing for scale * zero point where a type has one.
//
// A term passes: its weight's min added (1), the product (1), at most `block` additions inside a
// block, scale times sum (1), the min's term added (1), and one addition per block. Where floats
// underflow, each of about four operations a column loses at most 2^-149, times the largest scale.
// With rows of bf16 the weight is rounded to bf16 as well, 2^-8 of itself, sums run over all
// columns, and matrix units take what is below 2^-126 for zero.
double product_bound(BlockFormat format, ActivationType input, std::uint64_t n_cols,
                     double magnitude) noexcept;

// Whether `got` is what `want` allows: NaN only for NaN, infinity only for the same infinity or a
// `want` past f32's range, else a difference of at most `bound`. A NaN bound allows nothing.
bool is_within(float got, double want, double bound) noexcept;

// Compares element by element; the message names the first that is out and how many are.
::testing::AssertionResult all_within(const float* got, const std::vector<double>& want,
                                      const std::vector<double>& bounds);

}  // namespace qsf::kernels::testing_support

#endif  // QSF_KERNELS_TESTING_ERROR_BOUND_H_
