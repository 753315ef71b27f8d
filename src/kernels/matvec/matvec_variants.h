// SPDX-License-Identifier: MIT
//
// The matvec functions of every tier, for the table in matvec.cc alone; the contract is matvec.h.

#ifndef QSF_KERNELS_MATVEC_MATVEC_VARIANTS_H_
#define QSF_KERNELS_MATVEC_MATVEC_VARIANTS_H_

#include "kernels/matvec/matvec.h"

namespace qsf::kernels {

void matvec_q2sg32_scalar(const MatVecArgs& args) noexcept;
void matvec_q2sg64_scalar(const MatVecArgs& args) noexcept;
void matvec_q2ag32_scalar(const MatVecArgs& args) noexcept;
void matvec_q2ag64_scalar(const MatVecArgs& args) noexcept;
void matvec_q3g32_scalar(const MatVecArgs& args) noexcept;
void matvec_q3g64_scalar(const MatVecArgs& args) noexcept;
void matvec_q4g32_scalar(const MatVecArgs& args) noexcept;
void matvec_q4g64_scalar(const MatVecArgs& args) noexcept;
void matvec_ternaryg32_scalar(const MatVecArgs& args) noexcept;
void matvec_ternaryg64_scalar(const MatVecArgs& args) noexcept;
void matvec_q8g32_scalar(const MatVecArgs& args) noexcept;
void matvec_q8g64_scalar(const MatVecArgs& args) noexcept;
void matvec_f32_scalar(const MatVecArgs& args) noexcept;
void matvec_f16_scalar(const MatVecArgs& args) noexcept;
void matvec_bf16_scalar(const MatVecArgs& args) noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_MATVEC_MATVEC_VARIANTS_H_
