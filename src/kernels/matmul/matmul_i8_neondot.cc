// SPDX-License-Identifier: MIT
//
// Products with int8 rows, NEON with dot product instructions: four columns of four rows each.

#include "kernels/matmul/matmul_i8_neon.h"
#include "kernels/matmul/matmul_variants.h"

namespace qsf::kernels {
namespace {

using namespace neon;

struct ByteDot {
  struct Sums {
    int32x4_t v[4];
  };

  [[gnu::always_inline]] static inline void add(Sums* sums, const Four& first, const Four& second,
                                                const std::byte* q) noexcept {
    const int8x8_t x = vld1_s8(reinterpret_cast<const std::int8_t*>(q));
#pragma GCC unroll 4
    for (unsigned i = 0; i < 4; ++i) {
      sums->v[i] = vdotq_lane_s32(sums->v[i], first.v[i], x, 0);
      sums->v[i] = vdotq_lane_s32(sums->v[i], second.v[i], x, 1);
    }
  }

  [[gnu::always_inline]] static inline int32x4_t finish(const Sums& sums, unsigned i) noexcept {
    return sums.v[i];
  }
};

}  // namespace

#define QSF_DEFINE(name, type, block)                                \
  void matmul_##name##_i8_neondot(const MatMulArgs& args) noexcept { \
    coded<ByteDot, QuantType::type, block>(args);                    \
  }
QSF_CODED_FORMATS(QSF_DEFINE)
QSF_SUPER_FORMATS(QSF_DEFINE)
QSF_ROW_FORMATS(QSF_DEFINE)
#undef QSF_DEFINE

}  // namespace qsf::kernels
