// SPDX-License-Identifier: MIT
//
// exp, log, sin, cos, tanh and erf of our own: the same bits on every CPU and C library.
//
// Polynomials in +, *, / and bit operations alone, without fused multiply-add. The bounds are in
// units in the last place of the true result, proven by sweeps in math_test.cc against the double
// functions of the C library:
//
//   exp_f32      1 ulp; overflow gives inf, results below 2^-149 give 0, subnormals within 1 ulp
//   log_f64      2 ulp of f64 over all normal and subnormal inputs; 0 gives -inf, below 0 NaN
//   sin_f32      1 ulp for |x| <= 2^26; larger or infinite angles give NaN
//   cos_f32      1 ulp for |x| <= 2^26; larger or infinite angles give NaN
//   tanh_f32     2 ulp
//   erf_f32      2 ulp
//
// NaN gives NaN everywhere.

#ifndef QSF_KERNELS_MATH_MATH_H_
#define QSF_KERNELS_MATH_MATH_H_

namespace qsf::kernels {

inline constexpr float kMaxAngle = 0x1p26F;

// Threads  any, all of them
float exp_f32(float x) noexcept;
double log_f64(double x) noexcept;
float sin_f32(float x) noexcept;
float cos_f32(float x) noexcept;
float tanh_f32(float x) noexcept;
float erf_f32(float x) noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_MATH_MATH_H_
