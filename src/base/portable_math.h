// SPDX-License-Identifier: MIT
//
// exp, exp2, log, pow and tanh whose bits do not depend on the C library, for results that reach a
// model's numbers, a file or a prompt. Those of C libraries differ in the last bit.
//
// Sums of two doubles (106 bits) from +, -, *, / alone, without fused multiply-add: the compiler
// must not contract them (-ffp-contract=off). Errors are below 0.5000001 units in the last place
// (tanh: 0.51), so results are correctly rounded but where the true one lies that near the middle
// of two doubles; portable_math_test.cc compares them with values of 200 bits. Special values are
// those of C (Annex F), without its exceptions and errno.
//
// Kernels have their own of float (kernels/math/math.h), which are faster.
// Based on: Dekker, "A floating-point technique for extending the available precision" (1971);
// Tang, "Table-driven implementation of the exponential function" (1989).

#ifndef QSF_BASE_PORTABLE_MATH_H_
#define QSF_BASE_PORTABLE_MATH_H_

namespace qsf::portable {

// Threads  any, all of them
double exp(double x) noexcept;
double exp2(double x) noexcept;
double log(double x) noexcept;
double pow(double x, double y) noexcept;
double tanh(double x) noexcept;

}  // namespace qsf::portable

#endif  // QSF_BASE_PORTABLE_MATH_H_
