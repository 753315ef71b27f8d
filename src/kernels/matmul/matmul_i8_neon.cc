// SPDX-License-Identifier: MIT
//
// Products with int8 rows, NEON without dot product instructions: bytes are multiplied to 16 bits,
// where two products of any codes fit, and neighbouring sums are added up in 32.

#include "kernels/matmul/matmul_i8_neon.h"
#include "kernels/matmul/matmul_variants.h"

namespace qsf::kernels {
namespace {

using namespace neon;

template <unsigned kRows>
struct WideningDot {
  static constexpr unsigned kWholeRows = 1;
  // Lanes 0 and 1 are columns 0-1 and 2-3 of an even row, lanes 2 and 3 those of the next.
  int32x4_t low[kRows][4];
  int32x4_t high[kRows][4];

  [[gnu::always_inline]] static inline void arrange(Four* /*pair*/) noexcept {}

  [[gnu::always_inline]] inline void add(const Four* pair, const std::byte* q,
                                         std::size_t stride) noexcept {
    const Four first = pair[0];
    const Four second = pair[1];
#pragma GCC unroll 2
    for (unsigned row = 0; row < kRows; ++row) {
      const auto* bytes = reinterpret_cast<const std::int32_t*>(q + row * stride);
      const int8x8_t x0 = vreinterpret_s8_s32(vld1_dup_s32(bytes));
      const int8x8_t x1 = vreinterpret_s8_s32(vld1_dup_s32(bytes + 1));
#pragma GCC unroll 4
      for (unsigned i = 0; i < 4; ++i) {
        const int16x8_t lows =
            vmlal_s8(vmull_s8(vget_low_s8(first.v[i]), x0), vget_low_s8(second.v[i]), x1);
        const int16x8_t highs =
            vmlal_s8(vmull_s8(vget_high_s8(first.v[i]), x0), vget_high_s8(second.v[i]), x1);
        low[row][i] = vpadalq_s16(low[row][i], lows);
        high[row][i] = vpadalq_s16(high[row][i], highs);
      }
    }
  }

  [[gnu::always_inline]] inline int32x4_t finish(unsigned row, unsigned i) const noexcept {
    return vpaddq_s32(low[row][i], high[row][i]);
  }
};

}  // namespace

#define QSF_DEFINE(name, type, block)                             \
  void matmul_##name##_i8_neon(const MatMulArgs& args) noexcept { \
    coded<WideningDot, QuantType::type, block>(args);             \
  }
QSF_CODED_FORMATS(QSF_DEFINE)
QSF_SUPER_FORMATS(QSF_DEFINE)
QSF_ROW_FORMATS(QSF_DEFINE)
#undef QSF_DEFINE

}  // namespace qsf::kernels
