// SPDX-License-Identifier: MIT
//
// Products with int8 rows, NEON without dot product instructions: bytes are multiplied to 16 bits,
// where two products of any codes fit, and neighbouring sums are added up in 32.

#include "kernels/matmul/matmul_i8_neon.h"
#include "kernels/matmul/matmul_variants.h"

namespace qsf::kernels {
namespace {

using namespace neon;

struct WideningDot {
  // Lanes 0 and 1 are columns 0-1 and 2-3 of an even row, lanes 2 and 3 those of the next.
  struct Sums {
    int32x4_t low[4];
    int32x4_t high[4];
  };

  [[gnu::always_inline]] static inline void add(Sums* sums, const Four& first, const Four& second,
                                                const std::byte* q) noexcept {
    const auto* bytes = reinterpret_cast<const std::int32_t*>(q);
    const int8x8_t x0 = vreinterpret_s8_s32(vld1_dup_s32(bytes));
    const int8x8_t x1 = vreinterpret_s8_s32(vld1_dup_s32(bytes + 1));
#pragma GCC unroll 4
    for (unsigned i = 0; i < 4; ++i) {
      const int16x8_t low =
          vmlal_s8(vmull_s8(vget_low_s8(first.v[i]), x0), vget_low_s8(second.v[i]), x1);
      const int16x8_t high =
          vmlal_s8(vmull_s8(vget_high_s8(first.v[i]), x0), vget_high_s8(second.v[i]), x1);
      sums->low[i] = vpadalq_s16(sums->low[i], low);
      sums->high[i] = vpadalq_s16(sums->high[i], high);
    }
  }

  [[gnu::always_inline]] static inline int32x4_t finish(const Sums& sums, unsigned i) noexcept {
    return vpaddq_s32(sums.low[i], sums.high[i]);
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
