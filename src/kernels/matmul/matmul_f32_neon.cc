// SPDX-License-Identifier: MIT
//
// Products of float weights with rows of f32, NEON with fused multiply-add. Coded weights with rows
// of f32 are the reference's business and take the scalar tier, which is compiled to NEON as well.
//
// 64 columns of 16 rows are widened once to a strip in L1 and meet four rows of x at a time; sums
// are cut every 64 columns, for their accuracy.

#include <cstring>

#include "kernels/matmul/coded_neon.h"
#include "kernels/matmul/matmul_variants.h"

namespace qsf::kernels {
namespace {

using namespace neon;

constexpr std::uint32_t kStripColumns = 64;
constexpr std::uint32_t kRowsAtOnce = 32;

// Widens n_columns columns, a multiple of 4, to strip [column][16].
template <QuantType kType>
[[gnu::always_inline]] inline void widen(const std::byte* lines, std::uint32_t n_columns,
                                         float* strip) noexcept {
  if constexpr (kType == QuantType::kF32) {
    std::memcpy(strip, lines, std::size_t{n_columns} * kLineBytes);
  } else {
    for (std::uint32_t c = 0; c < n_columns; c += 2, lines += kLineBytes, strip += 2 * kRowGroup) {
      for (unsigned i = 0; i < 4; ++i) {
        const auto* halves = reinterpret_cast<const std::uint16_t*>(lines + 16 * i);
        const uint16x4x2_t pair = vld2_u16(halves);
        for (unsigned k = 0; k < 2; ++k) {
          const float32x4_t value = kType == QuantType::kBF16
                                        ? vreinterpretq_f32_u32(vshll_n_u16(pair.val[k], 16))
                                        : vcvt_f32_f16(vreinterpret_f16_u16(pair.val[k]));
          vst1q_f32(strip + k * kRowGroup + 4 * i, value);
        }
      }
    }
  }
}

// Adds the strip's products with kRows rows of x to their totals.
template <unsigned kRows>
[[gnu::always_inline]] inline void multiply_strip(const float* strip, std::uint32_t n_columns,
                                                  const float* x, std::size_t stride,
                                                  Rows* totals) noexcept {
  Rows sums[kRows] = {};
  for (std::uint32_t c = 0; c < n_columns; ++c, strip += kRowGroup) {
    const float32x4_t w[4] = {vld1q_f32(strip), vld1q_f32(strip + 4), vld1q_f32(strip + 8),
                              vld1q_f32(strip + 12)};
#pragma GCC unroll 4
    for (unsigned i = 0; i < kRows; ++i) {
      const float value = x[i * stride + c];
#pragma GCC unroll 4
      for (unsigned v = 0; v < 4; ++v) sums[i].v[v] = vfmaq_n_f32(sums[i].v[v], w[v], value);
    }
  }
#pragma GCC unroll 4
  for (unsigned i = 0; i < kRows; ++i) {
    for (unsigned v = 0; v < 4; ++v) totals[i].v[v] = vaddq_f32(totals[i].v[v], sums[i].v[v]);
  }
}

template <QuantType kType>
[[gnu::always_inline]] inline void floats(const MatMulArgs& args) noexcept {
  constexpr std::size_t kColumnBytes = code_bits(kType) / 8 * kRowGroup;
  alignas(64) float strip[kStripColumns * kRowGroup];
  Rows totals[kRowsAtOnce];
  const std::size_t stride = args.x_stride / sizeof(float);
  const std::uint32_t n_padded = (args.n_cols + 3) / 4 * 4;
  for (std::uint32_t first = 0; first < args.n_x; first += kRowsAtOnce) {
    const std::uint32_t n_x = args.n_x - first < kRowsAtOnce ? args.n_x - first : kRowsAtOnce;
    const auto* rows = reinterpret_cast<const float*>(args.x + first * args.x_stride);
    const std::byte* group = args.weights;
    for (std::uint32_t row = 0; row < args.n_rows; row += kRowGroup, group += args.group_bytes) {
      for (std::uint32_t i = 0; i < n_x; ++i) totals[i] = {};
      for (std::uint32_t c = 0; c < n_padded; c += kStripColumns) {
        const std::uint32_t n_columns = n_padded - c < kStripColumns ? n_padded - c : kStripColumns;
        widen<kType>(group + c * kColumnBytes, n_columns, strip);
        std::uint32_t i = 0;
        for (; i + 4 <= n_x; i += 4) {
          multiply_strip<4>(strip, n_columns, rows + i * stride + c, stride, totals + i);
        }
        for (; i < n_x; ++i) {
          multiply_strip<1>(strip, n_columns, rows + i * stride + c, stride, totals + i);
        }
      }
      for (std::uint32_t i = 0; i < n_x; ++i) {
        store_rows(args.y + (first + i) * args.y_stride + row, totals[i], args.n_rows - row);
      }
    }
  }
}

}  // namespace

#define QSF_DEFINE(name, type, block)                              \
  void matmul_##name##_f32_neon(const MatMulArgs& args) noexcept { \
    floats<QuantType::type>(args);                                 \
  }
QSF_FLOAT_FORMATS(QSF_DEFINE)
#undef QSF_DEFINE

}  // namespace qsf::kernels
