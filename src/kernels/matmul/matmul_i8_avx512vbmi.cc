// SPDX-License-Identifier: MIT
//
// Products of trellis types with int8 rows, AVX-512 with VNNI and VBMI, by trellis_triples.h.

#include "kernels/matmul/dot_avx512vnni.h"
#include "kernels/matmul/matmul_variants.h"

namespace qsf::kernels {

#define QSF_DEFINE(name, type, block)                                   \
  void matmul_##name##_i8_avx512vbmi(const MatMulArgs& args) noexcept { \
    avx512::coded<avx512::VnniDot, QuantType::type, block>(args);       \
  }
QSF_TRELLIS_FORMATS(QSF_DEFINE)
#undef QSF_DEFINE

}  // namespace qsf::kernels
