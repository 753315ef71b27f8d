// SPDX-License-Identifier: MIT
//
// The matmul functions of every tier, for the table in matmul.cc alone; the contract is matmul.h.

#ifndef QSF_KERNELS_MATMUL_MATMUL_VARIANTS_H_
#define QSF_KERNELS_MATMUL_MATMUL_VARIANTS_H_

#include "kernels/matmul/matmul.h"

namespace qsf::kernels {

void matmul_q2sg32_scalar(const MatMulArgs& args) noexcept;
void matmul_q2sg64_scalar(const MatMulArgs& args) noexcept;
void matmul_q2ag32_scalar(const MatMulArgs& args) noexcept;
void matmul_q2ag64_scalar(const MatMulArgs& args) noexcept;
void matmul_q3g32_scalar(const MatMulArgs& args) noexcept;
void matmul_q3g64_scalar(const MatMulArgs& args) noexcept;
void matmul_q4g32_scalar(const MatMulArgs& args) noexcept;
void matmul_q4g64_scalar(const MatMulArgs& args) noexcept;
void matmul_ternaryg32_scalar(const MatMulArgs& args) noexcept;
void matmul_ternaryg64_scalar(const MatMulArgs& args) noexcept;
void matmul_q8g32_scalar(const MatMulArgs& args) noexcept;
void matmul_q8g64_scalar(const MatMulArgs& args) noexcept;
void matmul_f32_scalar(const MatMulArgs& args) noexcept;
void matmul_f16_scalar(const MatMulArgs& args) noexcept;
void matmul_bf16_scalar(const MatMulArgs& args) noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_MATMUL_MATMUL_VARIANTS_H_
