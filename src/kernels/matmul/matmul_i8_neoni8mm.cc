// SPDX-License-Identifier: MIT
//
// Products with int8 rows, NEON with products of matrices: eight columns of two rows of weights
// with two rows of x in one instruction, twice the work of a dot product. A single row of x has
// nothing to pair with and takes dot products.
//
// Based on: Arm Architecture Reference Manual for A-profile, SMMLA (vector).

#include "kernels/matmul/matmul_i8_neon.h"
#include "kernels/matmul/matmul_variants.h"

namespace qsf::kernels {
namespace {

using namespace neon;

// Columns 0-3 and 4-7 of four rows become columns 0-7 of rows 0 and 1, and of rows 2 and 3.
[[gnu::always_inline]] inline void pair_rows(Four* pair) noexcept {
#pragma GCC unroll 4
  for (unsigned i = 0; i < 4; ++i) {
    const int32x4_t first = vreinterpretq_s32_s8(pair[0].v[i]);
    const int32x4_t second = vreinterpretq_s32_s8(pair[1].v[i]);
    pair[0].v[i] = vreinterpretq_s8_s32(vzip1q_s32(first, second));
    pair[1].v[i] = vreinterpretq_s8_s32(vzip2q_s32(first, second));
  }
}

[[gnu::always_inline]] inline int8x8_t load_eight(const std::byte* q) noexcept {
  return vld1_s8(reinterpret_cast<const std::int8_t*>(q));
}

template <unsigned kRows>
struct MatrixDot;

// Lanes are weight row 0 with x rows 0 and 1, then weight row 1.
template <>
struct MatrixDot<2> {
  int32x4_t low[4];   // rows 4i and 4i + 1
  int32x4_t high[4];  // rows 4i + 2 and 4i + 3

  [[gnu::always_inline]] inline void add(const Four* pair, const std::byte* q,
                                         std::size_t stride) noexcept {
    const int8x16_t x = vcombine_s8(load_eight(q), load_eight(q + stride));
#pragma GCC unroll 4
    for (unsigned i = 0; i < 4; ++i) {
      low[i] = vmmlaq_s32(low[i], pair[0].v[i], x);
      high[i] = vmmlaq_s32(high[i], pair[1].v[i], x);
    }
  }

  [[gnu::always_inline]] inline int32x4_t finish(unsigned row, unsigned i) const noexcept {
    return row == 0 ? vuzp1q_s32(low[i], high[i]) : vuzp2q_s32(low[i], high[i]);
  }
};

// Lanes are columns 0-3 and 4-7 of an even row, then of the next.
template <>
struct MatrixDot<1> {
  static constexpr unsigned kWholeRows = 2;
  int32x4_t low[4];
  int32x4_t high[4];

  [[gnu::always_inline]] static inline void arrange(Four* pair) noexcept { pair_rows(pair); }

  [[gnu::always_inline]] inline void add(const Four* pair, const std::byte* q,
                                         std::size_t /*stride*/) noexcept {
    const int8x16_t x = vcombine_s8(load_eight(q), load_eight(q));
#pragma GCC unroll 4
    for (unsigned i = 0; i < 4; ++i) {
      low[i] = vdotq_s32(low[i], pair[0].v[i], x);
      high[i] = vdotq_s32(high[i], pair[1].v[i], x);
    }
  }

  [[gnu::always_inline]] inline int32x4_t finish(unsigned /*row*/, unsigned i) const noexcept {
    return vpaddq_s32(low[i], high[i]);
  }
};

}  // namespace

#define QSF_DEFINE(name, type, block)                                 \
  void matmul_##name##_i8_neoni8mm(const MatMulArgs& args) noexcept { \
    coded<MatrixDot, QuantType::type, block>(args);                   \
  }
QSF_CODED_FORMATS(QSF_DEFINE)
QSF_SUPER_FORMATS(QSF_DEFINE)
QSF_ROW_FORMATS(QSF_DEFINE)
#undef QSF_DEFINE

}  // namespace qsf::kernels
