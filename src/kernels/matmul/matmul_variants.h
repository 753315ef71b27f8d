// SPDX-License-Identifier: MIT
//
// The one list of matmul kernels: their functions, for the table in matmul.cc and for planted
// faults. The contract is matmul.h.

#ifndef QSF_KERNELS_MATMUL_MATMUL_VARIANTS_H_
#define QSF_KERNELS_MATMUL_MATMUL_VARIANTS_H_

#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_formats.h"

// Best instruction set first:
//   X(name, type, block, suffix, isa, input, exactness)   the function is matmul_<name>_<suffix>
#if defined(__x86_64__)
#define QSF_MATMUL_SIMD_KERNELS(X)                                       \
  QSF_QUANTISED_FORMATS(X, i8_amx, kAmx, kInt8, kBitExact)               \
  QSF_QUANTISED_FORMATS(X, bf16_amx, kAmx, kBf16, kBounded)              \
  X(bf16, kBF16, 4, bf16_amx, kAmx, kBf16, kBounded)                     \
  QSF_TRELLIS_FORMATS(X, i8_avx512vbmi, kAvx512Vbmi, kInt8, kBitExact)   \
  QSF_QUANTISED_FORMATS(X, i8_avx512vnni, kAvx512Vnni, kInt8, kBitExact) \
  QSF_QUANTISED_FORMATS(X, i8_avx512, kAvx512, kInt8, kBitExact)         \
  QSF_QUANTISED_FORMATS(X, f32_avx512, kAvx512, kF32, kBounded)          \
  QSF_FLOAT_FORMATS(X, f32_avx512, kAvx512, kF32, kBounded)              \
  QSF_QUANTISED_FORMATS(X, i8_avxvnni, kAvxVnni, kInt8, kBitExact)       \
  QSF_QUANTISED_FORMATS(X, i8_avx2, kAvx2, kInt8, kBitExact)             \
  QSF_QUANTISED_FORMATS(X, i8_sse42, kSse42, kInt8, kBitExact)           \
  QSF_QUANTISED_FORMATS(X, f32_avx2, kAvx2, kF32, kBounded)              \
  QSF_FLOAT_FORMATS(X, f32_avx2, kAvx2, kF32, kBounded)
#elif defined(__aarch64__)
#define QSF_MATMUL_SIMD_KERNELS(X)                                   \
  QSF_QUANTISED_FORMATS(X, i8_neoni8mm, kNeonI8mm, kInt8, kBitExact) \
  QSF_QUANTISED_FORMATS(X, i8_neondot, kNeonDot, kInt8, kBitExact)   \
  QSF_QUANTISED_FORMATS(X, i8_neon, kNeon, kInt8, kBitExact)         \
  QSF_FLOAT_FORMATS(X, f32_neon, kNeon, kF32, kBounded)
#elif defined(__wasm_simd128__)
#define QSF_MATMUL_SIMD_KERNELS(X) QSF_QUANTISED_FORMATS(X, i8_wasm, kWasm, kInt8, kBitExact)
#else
#define QSF_MATMUL_SIMD_KERNELS(X)
#endif
#define QSF_MATMUL_KERNELS(X)                                    \
  QSF_MATMUL_SIMD_KERNELS(X)                                     \
  QSF_QUANTISED_FORMATS(X, i8_scalar, kScalar, kInt8, kBitExact) \
  QSF_QUANTISED_FORMATS(X, f32_scalar, kScalar, kF32, kBounded)  \
  QSF_FLOAT_FORMATS(X, f32_scalar, kScalar, kF32, kBounded)

namespace qsf::kernels {

#define QSF_DECLARE(name, type, block, suffix, ...) \
  void matmul_##name##_##suffix(const MatMulArgs& args) noexcept;
QSF_MATMUL_KERNELS(QSF_DECLARE)
#undef QSF_DECLARE

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_MATMUL_MATMUL_VARIANTS_H_
