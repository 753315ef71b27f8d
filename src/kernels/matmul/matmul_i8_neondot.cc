// SPDX-License-Identifier: MIT
//
// Products with int8 rows, NEON with dot product instructions: four columns of four rows each.

#include "kernels/matmul/matmul_i8_neon.h"
#include "kernels/matmul/matmul_variants.h"

namespace qsf::kernels {
namespace {

using namespace neon;

template <unsigned kRows>
struct ByteDot {
  static constexpr unsigned kWholeRows = 1;
  int32x4_t sums[kRows][4];

  [[gnu::always_inline]] static inline void arrange(Four* /*pair*/) noexcept {}

  [[gnu::always_inline]] inline void add(const Four* pair, const std::byte* q,
                                         std::size_t stride) noexcept {
    const Four first = pair[0];
    const Four second = pair[1];
#pragma GCC unroll 2
    for (unsigned row = 0; row < kRows; ++row) {
      const int8x8_t x = vld1_s8(reinterpret_cast<const std::int8_t*>(q + row * stride));
#pragma GCC unroll 4
      for (unsigned i = 0; i < 4; ++i) {
        sums[row][i] = vdotq_lane_s32(sums[row][i], first.v[i], x, 0);
        sums[row][i] = vdotq_lane_s32(sums[row][i], second.v[i], x, 1);
      }
    }
  }

  [[gnu::always_inline]] inline int32x4_t finish(unsigned row, unsigned i) const noexcept {
    return sums[row][i];
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
