// SPDX-License-Identifier: MIT
//
// Products with int8 rows, AVX-512 with VNNI.

#include "kernels/matmul/dot_avx512vnni.h"
#include "kernels/matmul/matmul_variants.h"

namespace qsf::kernels {

#define QSF_DEFINE(name, type, block)                                   \
  void matmul_##name##_i8_avx512vnni(const MatMulArgs& args) noexcept { \
    avx512::coded<avx512::VnniDot, QuantType::type, block>(args);       \
  }
QSF_CODED_FORMATS(QSF_DEFINE)
QSF_ROW_FORMATS(QSF_DEFINE)
#undef QSF_DEFINE

#define QSF_DEFINE(name, type, block)                                   \
  void matmul_##name##_i8_avx512vnni(const MatMulArgs& args) noexcept { \
    avx512::super<avx512::VnniDot, QuantType::type, block>(args);       \
  }
QSF_SUPER_FORMATS(QSF_DEFINE)
#undef QSF_DEFINE

}  // namespace qsf::kernels
