// SPDX-License-Identifier: MIT
//
// Products with int8 rows, SSE4.2 tier.

#include "kernels/matmul/matmul_variants.h"
#include "kernels/matmul/vectors_sse42.h"
#include "kernels/matmul/whole_scales_maddubs.h"

namespace qsf::kernels {

#define QSF_DEFINE(name, type, block)                              \
  void matmul_##name##_i8_sse42(const MatMulArgs& args) noexcept { \
    maddubs::product<Sse42, QuantType::type, block>(args);         \
  }
QSF_CODED_FORMATS(QSF_DEFINE)
QSF_ROW_FORMATS(QSF_DEFINE)
#undef QSF_DEFINE

#define QSF_DEFINE(name, type, block)                              \
  void matmul_##name##_i8_sse42(const MatMulArgs& args) noexcept { \
    maddubs::super_product<Sse42, QuantType::type, block>(args);   \
  }
QSF_SUPER_FORMATS(QSF_DEFINE)
#undef QSF_DEFINE

}  // namespace qsf::kernels
