// SPDX-License-Identifier: MIT
//
// Products with rows of f32, scalar tier.
//
// A block of 16 rows is decoded once, scale and min folded in, to a strip [block][16] of f32 (4 KiB
// at 64 columns) that stays in L1 and serves up to kRowsAtOnce rows of x. Every output is summed
// column by column inside a block and block by block after that, alone in its own lane, so neither
// the number of rows nor their grouping can show in its bits.

#include <cstdint>
#include <cstring>

#include "kernels/decode_lanes.h"
#include "kernels/matmul/matmul_variants.h"

namespace qsf::kernels {
namespace {

using namespace lanes;

static_assert(kRowGroup == 16 && kLineBytes == 64);

// Rows of x that share a decoded strip: their totals are 2 KiB and 64 of their columns 8 KiB, which
// leaves room in a 32 KiB L1; decoding costs a few per cent of the products then.
constexpr std::uint32_t kRowsAtOnce = 32;

// Columns of a strip for types without blocks of their own.
constexpr std::uint32_t kFloatColumns = 64;

// Adds the strip's products with kRows rows of x to their totals.
template <std::uint32_t kRows>
[[gnu::always_inline]] inline void multiply_strip(const float* strip, std::uint32_t n_columns,
                                                  const float* x, std::size_t x_stride,
                                                  Rows16* totals) noexcept {
  Rows16 sum[kRows];
  for (std::uint32_t i = 0; i < kRows; ++i) sum[i] = zero_rows();
  for (std::uint32_t c = 0; c < n_columns; ++c) {
    const float* column = strip + std::size_t{c} * kRowGroup;
    for (std::uint32_t i = 0; i < kRows; ++i) {
      const f32x4 value = splat(x[i * x_stride + c]);
      for (unsigned v = 0; v < 4; ++v) sum[i].v[v] += load<f32x4>(column + 4 * v) * value;
    }
  }
  for (std::uint32_t i = 0; i < kRows; ++i) {
    for (unsigned v = 0; v < 4; ++v) totals[i].v[v] += sum[i].v[v];
  }
}

void multiply_rows(const float* strip, std::uint32_t n_columns, const float* x,
                   std::size_t x_stride, std::uint32_t n_x, Rows16* totals) noexcept {
  std::uint32_t i = 0;
  for (; i + 2 <= n_x; i += 2) {
    multiply_strip<2>(strip, n_columns, x + i * x_stride, x_stride, totals + i);
  }
  if (i < n_x) multiply_strip<1>(strip, n_columns, x + i * x_stride, x_stride, totals + i);
}

[[gnu::always_inline]] inline const float* input_row(const MatMulArgs& args,
                                                     std::uint32_t i) noexcept {
  return reinterpret_cast<const float*>(args.x + i * args.x_stride);
}

// Decodes one block of 16 rows to strip [kBlock][16].
template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] inline void decode_strip(const std::byte* group, std::uint32_t block,
                                                float* strip) noexcept {
  const BlockFields fields = load_fields<kType, kBlock>(group, block);
  for_block_columns<kType, kBlock>(
      fields.codes,
      fields.half, [&](unsigned column, const Rows16& codes) __attribute__((always_inline)) {
        for (unsigned v = 0; v < 4; ++v) {
          f32x4 weight = codes.v[v] * fields.scales.v[v];
          if constexpr (kType != QuantType::kQ8) weight += fields.mins.v[v];
          store(strip + std::size_t{column} * kRowGroup + 4 * v, weight);
        }
      });
}

// Decodes n_columns (a multiple of 4) of a float type; f32 lines are a strip as they stand.
template <QuantType kType>
[[gnu::always_inline]] inline void widen_strip(const std::byte* lines, std::uint32_t n_columns,
                                               float* strip) noexcept {
  constexpr std::size_t kFourColumns = std::size_t{4} * code_bits(kType) / 8 * kRowGroup;
  for (std::uint32_t c = 0; c < n_columns; c += 4) {
    for_float_columns<kType>(
        lines + c / 4 * kFourColumns, [&](unsigned column,
                                          const Rows16& weights) __attribute__((always_inline)) {
          for (unsigned v = 0; v < 4; ++v) {
            store(strip + std::size_t{c + column} * kRowGroup + 4 * v, weights.v[v]);
          }
        });
  }
}

// Stores the rows of weights that exist, for every row of x.
void store_totals(const Rows16* totals, std::uint32_t n_x, float* y, std::size_t y_stride,
                  std::uint32_t n_rows) noexcept {
  const std::size_t n_stored = n_rows < kRowGroup ? n_rows : kRowGroup;
  for (std::uint32_t i = 0; i < n_x; ++i) {
    std::memcpy(y + i * y_stride, &totals[i], n_stored * sizeof(float));
  }
}

template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] inline void coded(const MatMulArgs& args) noexcept {
  alignas(64) float strip[kBlock * kRowGroup];
  Rows16 totals[kRowsAtOnce];
  const std::size_t x_stride = args.x_stride / sizeof(float);
  const std::uint32_t n_blocks = (args.n_cols + kBlock - 1) / kBlock;
  for (std::uint32_t first = 0; first < args.n_x; first += kRowsAtOnce) {
    const std::uint32_t n_x = args.n_x - first < kRowsAtOnce ? args.n_x - first : kRowsAtOnce;
    const float* x = input_row(args, first);
    const std::byte* group = args.weights;
    for (std::uint32_t row = 0; row < args.n_rows; row += kRowGroup, group += args.group_bytes) {
      for (std::uint32_t i = 0; i < n_x; ++i) totals[i] = zero_rows();
      for (std::uint32_t block = 0; block < n_blocks; ++block) {
        decode_strip<kType, kBlock>(group, block, strip);
        multiply_rows(strip, kBlock, x + std::size_t{block} * kBlock, x_stride, n_x, totals);
      }
      scale_totals<kType>(group, totals, n_x);
      store_totals(totals, n_x, args.y + first * args.y_stride + row, args.y_stride,
                   args.n_rows - row);
    }
  }
}

template <QuantType kType>
[[gnu::always_inline]] inline void floats(const MatMulArgs& args) noexcept {
  constexpr std::size_t kFourColumns = std::size_t{4} * code_bits(kType) / 8 * kRowGroup;
  alignas(64) float strip[kFloatColumns * kRowGroup];
  Rows16 totals[kRowsAtOnce];
  const std::size_t x_stride = args.x_stride / sizeof(float);
  const std::uint32_t n_padded = (args.n_cols + 3) / 4 * 4;
  for (std::uint32_t first = 0; first < args.n_x; first += kRowsAtOnce) {
    const std::uint32_t n_x = args.n_x - first < kRowsAtOnce ? args.n_x - first : kRowsAtOnce;
    const float* x = input_row(args, first);
    const std::byte* group = args.weights;
    for (std::uint32_t row = 0; row < args.n_rows; row += kRowGroup, group += args.group_bytes) {
      for (std::uint32_t i = 0; i < n_x; ++i) totals[i] = zero_rows();
      for (std::uint32_t c = 0; c < n_padded; c += kFloatColumns) {
        const std::uint32_t n_columns = n_padded - c < kFloatColumns ? n_padded - c : kFloatColumns;
        widen_strip<kType>(group + c / 4 * kFourColumns, n_columns, strip);
        multiply_rows(strip, n_columns, x + c, x_stride, n_x, totals);
      }
      store_totals(totals, n_x, args.y + first * args.y_stride + row, args.y_stride,
                   args.n_rows - row);
    }
  }
}

}  // namespace

#define QSF_DEFINE(name, type, block)                                \
  void matmul_##name##_f32_scalar(const MatMulArgs& args) noexcept { \
    coded<QuantType::type, block>(args);                             \
  }
QSF_CODED_FORMATS(QSF_DEFINE)
QSF_SUPER_FORMATS(QSF_DEFINE)
QSF_ROW_FORMATS(QSF_DEFINE)
#undef QSF_DEFINE

#define QSF_DEFINE(name, type, block)                                \
  void matmul_##name##_f32_scalar(const MatMulArgs& args) noexcept { \
    floats<QuantType::type>(args);                                   \
  }
QSF_FLOAT_FORMATS(QSF_DEFINE)
#undef QSF_DEFINE

}  // namespace qsf::kernels
