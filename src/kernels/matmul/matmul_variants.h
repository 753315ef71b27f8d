// SPDX-License-Identifier: MIT
//
// The matmul functions of every tier, for the table in matmul.cc and planted faults alone; the
// contract is matmul.h.

#ifndef QSF_KERNELS_MATMUL_MATMUL_VARIANTS_H_
#define QSF_KERNELS_MATMUL_MATMUL_VARIANTS_H_

#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_formats.h"

namespace qsf::kernels {

#define QSF_DECLARE(name, type, block) \
  void matmul_##name##_f32_scalar(const MatMulArgs& args) noexcept;
QSF_CODED_FORMATS(QSF_DECLARE)
QSF_SUPER_FORMATS(QSF_DECLARE)
QSF_ROW_FORMATS(QSF_DECLARE)
QSF_FLOAT_FORMATS(QSF_DECLARE)
#undef QSF_DECLARE

#define QSF_DECLARE(name, type, block) \
  void matmul_##name##_i8_scalar(const MatMulArgs& args) noexcept;
QSF_CODED_FORMATS(QSF_DECLARE)
QSF_SUPER_FORMATS(QSF_DECLARE)
QSF_ROW_FORMATS(QSF_DECLARE)
#undef QSF_DECLARE

#if defined(__x86_64__)
#define QSF_DECLARE(name, type, block)                                 \
  void matmul_##name##_i8_sse42(const MatMulArgs& args) noexcept;      \
  void matmul_##name##_i8_avx2(const MatMulArgs& args) noexcept;       \
  void matmul_##name##_f32_avx2(const MatMulArgs& args) noexcept;      \
  void matmul_##name##_i8_avx512(const MatMulArgs& args) noexcept;     \
  void matmul_##name##_f32_avx512(const MatMulArgs& args) noexcept;    \
  void matmul_##name##_i8_avx512vnni(const MatMulArgs& args) noexcept; \
  void matmul_##name##_i8_amx(const MatMulArgs& args) noexcept;        \
  void matmul_##name##_bf16_amx(const MatMulArgs& args) noexcept;
QSF_CODED_FORMATS(QSF_DECLARE)
QSF_SUPER_FORMATS(QSF_DECLARE)
QSF_ROW_FORMATS(QSF_DECLARE)
#undef QSF_DECLARE

#define QSF_DECLARE(name, type, block)                            \
  void matmul_##name##_f32_avx2(const MatMulArgs& args) noexcept; \
  void matmul_##name##_f32_avx512(const MatMulArgs& args) noexcept;
QSF_FLOAT_FORMATS(QSF_DECLARE)
#undef QSF_DECLARE

void matmul_bf16_bf16_amx(const MatMulArgs& args) noexcept;
#elif defined(__aarch64__)
#define QSF_DECLARE(name, type, block)                           \
  void matmul_##name##_i8_neon(const MatMulArgs& args) noexcept; \
  void matmul_##name##_i8_neondot(const MatMulArgs& args) noexcept;
QSF_CODED_FORMATS(QSF_DECLARE)
QSF_SUPER_FORMATS(QSF_DECLARE)
QSF_ROW_FORMATS(QSF_DECLARE)
#undef QSF_DECLARE

#define QSF_DECLARE(name, type, block) \
  void matmul_##name##_f32_neon(const MatMulArgs& args) noexcept;
QSF_FLOAT_FORMATS(QSF_DECLARE)
#undef QSF_DECLARE
#endif

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_MATMUL_MATMUL_VARIANTS_H_
