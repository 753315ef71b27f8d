// SPDX-License-Identifier: MIT
//
// Products with int8 rows in NEON vectors: the loops, for the tiers that differ in their dot
// product alone; internal linkage.
//
// A block of 16 rows is decoded once, to a strip of signed bytes that stays in L1, and is
// multiplied by up to kRowsAtOnce rows of x, two at a time so that a load of the strip serves two.
//
// Dot is a class of the tier:
//
//   struct Sums     sums of 16 rows in the making
//   static void add(Sums*, Four first, Four second, const std::byte* q)  adds the products of two
//       fours with 8 bytes of x
//   static int32x4_t finish(const Sums&, unsigned i)  the sums of rows 4i .. 4i + 3

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
template <typename Dot, QuantType kType, std::uint32_t kBlock, unsigned kRows>
[[gnu::always_inline]] static inline void add_block(const Four* strip, const BlockFields& fields,
                                                    const std::byte* codes,
                                                    const std::byte* x_block, unsigned sum_field,
                                                    std::size_t stride, Rows* totals) noexcept {
  typename Dot::Sums sums[kRows] = {};
  for (unsigned four = 0; four < kBlock / 4; four += 2) {
    const Four first = strip[four];
    const Four second = strip[four + 1];
#pragma GCC unroll 2
    for (unsigned i = 0; i < kRows; ++i) {
      Dot::add(&sums[i], first, second, codes + i * stride + 4 * four);
    }
  }
#pragma GCC unroll 2
  for (unsigned i = 0; i < kRows; ++i) {
    const float* of_block64 = reinterpret_cast<const float*>(x_block + i * stride);
#pragma GCC unroll 4
    for (unsigned v = 0; v < 4; ++v) {
      totals[i].v[v] = add_dots<kType>(totals[i].v[v], Dot::finish(sums[i], v), fields.scales.v[v],
                                       fields.mins.v[v], of_block64[sum_field], of_block64[0]);
    }
  }
}

// Rows [first, first + n_x) of x times one group.
template <typename Dot, QuantType kType, std::uint32_t kBlock>
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
    for (unsigned four = 0; four < kBlock / 4; ++four) {
      strip[four] = decode_four<kType, kBlock>(fields.codes, fields.half, four);
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

// Adds the products of a decoded activation block of a type with whole scales and one row of x to
// its totals.
template <typename Dot, QuantType kType>
[[gnu::always_inline]] static inline void add_block64(const Four* strip,
                                                      const Block64Fields& fields,
                                                      const std::byte* codes,
                                                      const std::byte* block64_at,
                                                      Rows* totals) noexcept {
  Int8Block x_block;
  std::memcpy(&x_block, block64_at, sizeof(x_block));
  int32x4_t scaled[4] = {};
  int32x4_t shifts[4] = {};
#pragma GCC unroll 4
  for (unsigned k = 0; k < 4; ++k) {
    typename Dot::Sums sums = {};
    Dot::add(&sums, strip[4 * k], strip[4 * k + 1], codes + 16 * k);
    Dot::add(&sums, strip[4 * k + 2], strip[4 * k + 3], codes + 16 * k + 8);
#pragma GCC unroll 4
    for (unsigned v = 0; v < 4; ++v) {
      scaled[v] = vmlaq_s32(scaled[v], Dot::finish(sums, v), fields.scales[k][v]);
      if constexpr (has_min(kType)) {
        shifts[v] =
            vmlaq_n_s32(shifts[v], fields.mins[k][v], x_block.quarter_sums[quarter_place(k)]);
      }
    }
  }
#pragma GCC unroll 4
  for (unsigned v = 0; v < 4; ++v) {
    float32x4_t term = vmulq_f32(fields.d.v[v], vcvtq_f32_s32(scaled[v]));
    if constexpr (has_min(kType)) {
      term = vaddq_f32(term, vmulq_f32(fields.dmin.v[v], vcvtq_f32_s32(shifts[v])));
    }
    totals->v[v] = vaddq_f32(totals->v[v], vmulq_n_f32(term, x_block.scale));
  }
}

// Rows [first, first + n_x) of x times one group of a type with whole scales.
template <typename Dot, QuantType kType>
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
    }
    const std::byte* codes = x + std::size_t{c} * kActivationBlockColumns;
    const std::byte* x_block = x + int8_blocks_offset(args.n_cols) + c * sizeof(Int8Block);
    for (std::uint32_t i = 0; i < n_x; ++i) {
      add_block64<Dot, kType>(strip, fields, codes + i * args.x_stride, x_block + i * args.x_stride,
                              totals + i);
    }
  }
}

// Multiplies finished sums with the scales of their rows, where the type has such.
template <QuantType kType>
[[gnu::always_inline]] static inline void scale_totals(const std::byte* group, std::uint32_t n_x,
                                                       Rows* totals) noexcept {
  if constexpr (scale_form(kType) == ScaleForm::kRow) {
    const float* scales = reinterpret_cast<const float*>(group);
    for (std::uint32_t i = 0; i < n_x; ++i) {
      for (unsigned v = 0; v < 4; ++v) {
        totals[i].v[v] = vmulq_f32(totals[i].v[v], vld1q_f32(scales + 4 * v));
      }
    }
  }
}

template <typename Dot, QuantType kType, std::uint32_t kBlock>
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
