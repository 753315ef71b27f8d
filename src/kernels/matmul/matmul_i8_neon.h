// SPDX-License-Identifier: MIT
//
// Products with int8 rows in NEON vectors: the loops, for the tiers that differ in their dot
// product alone; internal linkage.
//
// A block of 16 rows is decoded once, to a strip of signed bytes that stays in L1, and is
// multiplied by up to kRowsAtOnce rows of x, two at a time so that a load of the strip serves two.
//
// Dot<kRows> is a class template of the tier. It multiplies kRows rows of x, one or two, and keeps
// the sums of 16 rows of weights with each:
//
//   void add(const Four* pair, const std::byte* q, std::size_t stride)
//       adds the products of two neighbouring fours with 8 bytes of each row, from `q`
//   int32x4_t finish(unsigned row, unsigned i) const
//       the sums of rows 4i .. 4i + 3 with that row of x
//
// Dot<1> has besides:
//
//   static void arrange(Four* pair)
//       prepares two neighbouring fours, once for all rows of x
//   static constexpr unsigned kWholeRows
//       the rows of x that a type with whole scales multiplies at once

#ifndef QSF_KERNELS_MATMUL_MATMUL_I8_NEON_H_
#define QSF_KERNELS_MATMUL_MATMUL_I8_NEON_H_

#include <cstring>

#include "kernels/matmul/coded_neon.h"
#include "kernels/matmul/matmul.h"

namespace qsf::kernels::neon {

static constexpr std::uint32_t kRowsAtOnce = 32;  // of x: 2 KiB of totals

// Adds the products of one block and one row of x to `total`: each operation rounds once, in the
// order that matmul.h gives.
template <QuantType kType>
[[gnu::always_inline]] static inline float32x4_t add_dots(float32x4_t total, int32x4_t dots,
                                                          float32x4_t scale, float32x4_t min,
                                                          float sum, float block64_scale) noexcept {
  float32x4_t term = vmulq_f32(scale, vcvtq_f32_s32(dots));
  if constexpr (!kMultipliesSigned<kType>) term = vaddq_f32(term, vmulq_n_f32(min, sum));
  return vaddq_f32(total, vmulq_n_f32(term, block64_scale));
}

// Adds the products of a decoded block with kRows rows of x to their totals. `codes` and
// `activation block` are those of the first row.
template <template <unsigned> typename Dot, QuantType kType, std::uint32_t kBlock, unsigned kRows>
[[gnu::always_inline]] static inline void add_block(const Four* strip, const BlockFields& fields,
                                                    const std::byte* codes,
                                                    const std::byte* x_block, unsigned sum_field,
                                                    std::size_t stride, Rows* totals) noexcept {
  Dot<kRows> dot = {};
  for (unsigned four = 0; four < kBlock / 4; four += 2) {
    dot.add(strip + four, codes + 4 * four, stride);
  }
#pragma GCC unroll 2
  for (unsigned i = 0; i < kRows; ++i) {
    const float* of_block64 = reinterpret_cast<const float*>(x_block + i * stride);
#pragma GCC unroll 4
    for (unsigned v = 0; v < 4; ++v) {
      totals[i].v[v] = add_dots<kType>(totals[i].v[v], dot.finish(i, v), fields.scales.v[v],
                                       fields.mins.v[v], of_block64[sum_field], of_block64[0]);
    }
  }
}

// Rows [first, first + n_x) of x times one group.
template <template <unsigned> typename Dot, QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] static inline void multiply_group(const MatMulArgs& args,
                                                         const std::byte* group,
                                                         std::uint32_t first, std::uint32_t n_x,
                                                         Rows* totals) noexcept {
  constexpr std::uint32_t kHalves = kActivationBlockColumns / kBlock;
  const std::uint32_t n_blocks = (args.n_cols + kBlock - 1) / kBlock;
  const std::byte* x = args.x + first * args.x_stride;
  Four strip[kBlock / 4];
  for (std::uint32_t block = 0; block < n_blocks; ++block) {
    const BlockFields fields = load_fields<kType, kBlock>(group, block);
    __builtin_prefetch(fields.codes + args.prefetch_bytes);
    if constexpr (is_trellis_type(kType)) {
      decode_trellis<kType, kBlock>(fields.codes, fields.half, strip);
    }
    for (unsigned four = 0; four < kBlock / 4; ++four) {
      if constexpr (!is_trellis_type(kType)) {
        strip[four] = decode_four<kType, kBlock>(fields.codes, fields.half, four);
      }
      if (four % 2 == 1) Dot<1>::arrange(strip + four - 1);
    }
    const std::byte* codes = x + std::size_t{block} * kBlock;
    const std::byte* x_block =
        x + int8_blocks_offset(args.n_cols) + block / kHalves * sizeof(Int8Block);
    const unsigned sum_field = kBlock == 64 ? 3 : 1 + block % 2;
    std::uint32_t i = 0;
    for (; i + 2 <= n_x; i += 2) {
      add_block<Dot, kType, kBlock, 2>(strip, fields, codes + i * args.x_stride,
                                       x_block + i * args.x_stride, sum_field, args.x_stride,
                                       totals + i);
    }
    if (i < n_x) {
      add_block<Dot, kType, kBlock, 1>(strip, fields, codes + i * args.x_stride,
                                       x_block + i * args.x_stride, sum_field, args.x_stride,
                                       totals + i);
    }
  }
}

// The scales and mins of the four sub-blocks of an activation block.
struct Block64Fields {
  Rows d;
  Rows dmin;
  int32x4_t scales[4][4];  // of sub-block k, rows 4v .. 4v + 3
  int32x4_t mins[4][4];
};

template <QuantType kType>
[[gnu::always_inline]] static inline Block64Fields load_block64_fields(
    const BlockPlace& place) noexcept {
  Block64Fields out;
  out.d = load_halves(place.scales);
  if constexpr (has_min(kType)) out.dmin = load_halves(place.mins);
  if constexpr (is_codebook_type(kType)) {
    for (unsigned k = 0; k < 4; ++k)
      load_codebook_scales<kType, 16>(place, place.k + k, out.scales[k]);
    return out;
  }
  const Words bytes = load_words(place.low);
  const uint32x4_t four_bits = vdupq_n_u32(15);
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
#pragma GCC unroll 4
    for (unsigned v = 0; v < 4; ++v) {
      if constexpr (has_min(kType)) {
        const uint32x4_t fields = vshlq_u32(bytes.v[v], vdupq_n_s32(-8 * k));
        out.scales[k][v] = vreinterpretq_s32_u32(vandq_u32(fields, four_bits));
        out.mins[k][v] = vreinterpretq_s32_u32(vandq_u32(vshrq_n_u32(fields, 4), four_bits));
      } else {
        const uint32x4_t top = vshlq_u32(bytes.v[v], vdupq_n_s32(24 - 8 * k));
        out.scales[k][v] = vshrq_n_s32(vreinterpretq_s32_u32(top), 24);
      }
    }
  }
  return out;
}

// Adds the products of a decoded activation block of a type with whole scales and kRows rows of x
// to their totals. `codes` and `block64_at` are those of the first row.
template <template <unsigned> typename Dot, QuantType kType, unsigned kRows>
[[gnu::always_inline]] static inline void add_block64(const Four* strip,
                                                      const Block64Fields& fields,
                                                      const std::byte* codes,
                                                      const std::byte* block64_at,
                                                      std::size_t stride, Rows* totals) noexcept {
  Int8Block x_blocks[kRows];
  for (unsigned i = 0; i < kRows; ++i) {
    std::memcpy(&x_blocks[i], block64_at + i * stride, sizeof(Int8Block));
  }
  int32x4_t scaled[kRows][4] = {};
  int32x4_t shifts[kRows][4] = {};
#pragma GCC unroll 4
  for (unsigned k = 0; k < 4; ++k) {
    Dot<kRows> dot = {};
    dot.add(strip + 4 * k, codes + 16 * k, stride);
    dot.add(strip + 4 * k + 2, codes + 16 * k + 8, stride);
#pragma GCC unroll 2
    for (unsigned i = 0; i < kRows; ++i) {
      [[maybe_unused]] const std::int32_t sum = x_blocks[i].quarter_sums[quarter_place(k)];
#pragma GCC unroll 4
      for (unsigned v = 0; v < 4; ++v) {
        scaled[i][v] = vmlaq_s32(scaled[i][v], dot.finish(i, v), fields.scales[k][v]);
        if constexpr (has_min(kType)) {
          shifts[i][v] = vmlaq_n_s32(shifts[i][v], fields.mins[k][v], sum);
        }
      }
    }
  }
#pragma GCC unroll 2
  for (unsigned i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (unsigned v = 0; v < 4; ++v) {
      float32x4_t term = vmulq_f32(fields.d.v[v], vcvtq_f32_s32(scaled[i][v]));
      if constexpr (has_min(kType)) {
        term = vaddq_f32(term, vmulq_f32(fields.dmin.v[v], vcvtq_f32_s32(shifts[i][v])));
      }
      totals[i].v[v] = vaddq_f32(totals[i].v[v], vmulq_n_f32(term, x_blocks[i].scale));
    }
  }
}

// Rows [first, first + n_x) of x times one group of a type with whole scales.
template <template <unsigned> typename Dot, QuantType kType>
[[gnu::always_inline]] static inline void multiply_whole_group(const MatMulArgs& args,
                                                               const std::byte* group,
                                                               std::uint32_t first,
                                                               std::uint32_t n_x,
                                                               Rows* totals) noexcept {
  const std::byte* x = args.x + first * args.x_stride;
  Four strip[kActivationBlockColumns / 4];
  for (std::uint32_t c = 0; c < int8_blocks(args.n_cols); ++c) {
    const BlockPlace place = place_of<kType, 16>(group, std::size_t{4} * c);
    const Block64Fields fields = load_block64_fields<kType>(place);
    __builtin_prefetch(place.codes + args.prefetch_bytes);
    for (unsigned four = 0; four < kActivationBlockColumns / 4; ++four) {
      const unsigned k = four / 4;
      strip[four] = decode_four<kType, 16>(place.codes + quarter_offset<kType>(k), k % 2, four % 4);
      if (four % 2 == 1) Dot<1>::arrange(strip + four - 1);
    }
    const std::byte* codes = x + std::size_t{c} * kActivationBlockColumns;
    const std::byte* x_block = x + int8_blocks_offset(args.n_cols) + c * sizeof(Int8Block);
    constexpr unsigned kRows = Dot<1>::kWholeRows;
    std::uint32_t i = 0;
    for (; i + kRows <= n_x; i += kRows) {
      add_block64<Dot, kType, kRows>(strip, fields, codes + i * args.x_stride,
                                     x_block + i * args.x_stride, args.x_stride, totals + i);
    }
    if (i < n_x) {
      add_block64<Dot, kType, 1>(strip, fields, codes + i * args.x_stride,
                                 x_block + i * args.x_stride, args.x_stride, totals + i);
    }
  }
}

// Multiplies finished sums with the scales of their rows, where the type has such.
template <QuantType kType>
[[gnu::always_inline]] static inline void scale_totals(const std::byte* group, std::uint32_t n_x,
                                                       Rows* totals) noexcept {
  if constexpr (has_row_scale(kType)) {
    const float* scales = reinterpret_cast<const float*>(group);
    for (std::uint32_t i = 0; i < n_x; ++i) {
      for (unsigned v = 0; v < 4; ++v) {
        totals[i].v[v] = vmulq_f32(totals[i].v[v], vld1q_f32(scales + 4 * v));
      }
    }
  }
}

template <template <unsigned> typename Dot, QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] static inline void coded(const MatMulArgs& args) noexcept {
  Rows totals[kRowsAtOnce];
  for (std::uint32_t first = 0; first < args.n_x; first += kRowsAtOnce) {
    const std::uint32_t n_x = args.n_x - first < kRowsAtOnce ? args.n_x - first : kRowsAtOnce;
    const std::byte* group = args.weights;
    for (std::uint32_t row = 0; row < args.n_rows; row += kRowGroup, group += args.group_bytes) {
      for (std::uint32_t i = 0; i < n_x; ++i) {
        for (unsigned v = 0; v < 4; ++v) totals[i].v[v] = vdupq_n_f32(0.0F);
      }
      if constexpr (kWholeScales<kType>) {
        multiply_whole_group<Dot, kType>(args, group, first, n_x, totals);
      } else {
        multiply_group<Dot, kType, kBlock>(args, group, first, n_x, totals);
      }
      scale_totals<kType>(group, n_x, totals);
      for (std::uint32_t i = 0; i < n_x; ++i) {
        store_rows(args.y + (first + i) * args.y_stride + row, totals[i], args.n_rows - row);
      }
    }
  }
}

}  // namespace qsf::kernels::neon

#endif  // QSF_KERNELS_MATMUL_MATMUL_I8_NEON_H_
