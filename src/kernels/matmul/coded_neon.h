// SPDX-License-Identifier: MIT
//
// Coded weights of layout 1 in 128-bit vectors, for kernels of the NEON tiers; internal linkage.
//
// A line of 64 bytes is four vectors of four rows x 4 bytes. A *four* is four neighbouring columns
// of 16 rows as signed bytes, again four vectors: the operands of byte dot products with four bytes
// of x, the same for all rows.

#ifndef QSF_KERNELS_MATMUL_CODED_NEON_H_
#define QSF_KERNELS_MATMUL_CODED_NEON_H_

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "quant/types.h"

namespace qsf::kernels::neon {

static_assert(kRowGroup == 16 && kLineBytes == 64);

// Sixteen rows, four a vector.
struct Rows {
  float32x4_t v[4];
};
struct Four {
  int8x16_t v[4];
};

[[gnu::always_inline]] static inline uint8x16_t load_quarter(const std::byte* line,
                                                             unsigned quarter) noexcept {
  return vld1q_u8(reinterpret_cast<const std::uint8_t*>(line) + 16 * quarter);
}

// Field `field` of a line of codes of kBits bits.
template <unsigned kBits>
[[gnu::always_inline]] static inline uint8x16_t field_of(uint8x16_t line, unsigned field) noexcept {
  const uint8x16_t moved = vshlq_u8(line, vdupq_n_s8(static_cast<std::int8_t>(-field * kBits)));
  return vandq_u8(moved, vdupq_n_u8((1U << kBits) - 1U));
}

// Decodes columns 4 * index .. 4 * index + 3 of a block, `codes` its first code line.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] static inline Four decode_four(const std::byte* codes,
                                                      unsigned index) noexcept {
  Four four;
#pragma GCC unroll 4
  for (unsigned i = 0; i < 4; ++i) {
    if constexpr (kType == QuantType::kQ8) {
      four.v[i] = vreinterpretq_s8_u8(load_quarter(codes + index * kLineBytes, i));
    } else if constexpr (code_bits(kType) == 3) {
      constexpr unsigned kHighLines = kBlock / 16;
      const uint8x16_t high = load_quarter(codes + index / 4 * kLineBytes, i);
      const uint8x16_t low = load_quarter(codes + (kHighLines + index / 8) * kLineBytes, i);
      const uint8x16_t upper = vshlq_n_u8(field_of<2>(high, index % 4), 1);
      four.v[i] = vreinterpretq_s8_u8(vorrq_u8(upper, field_of<1>(low, index % 8)));
    } else {
      constexpr unsigned kBits = code_bits(kType);
      constexpr unsigned kFields = 8 / kBits;
      const uint8x16_t line = load_quarter(codes + index / kFields * kLineBytes, i);
      uint8x16_t field = field_of<kBits>(line, index % kFields);
      if constexpr (kType == QuantType::kQk256) {  // 0, 1, 2, 3 become 0, 1, 3, 4
        field = vsraq_n_u8(field, field, 1);
      }
      four.v[i] = vreinterpretq_s8_u8(field);
    }
  }
  return four;
}

// Widens the 16 halves at `halves`.
[[gnu::always_inline]] static inline Rows load_halves(const std::byte* halves) noexcept {
  Rows rows;
#pragma GCC unroll 4
  for (unsigned i = 0; i < 4; ++i) {
    const uint16x4_t bits = vld1_u16(reinterpret_cast<const std::uint16_t*>(halves) + 4 * i);
    rows.v[i] = vcvt_f32_f16(vreinterpret_f16_u16(bits));
  }
  return rows;
}

// Sixteen words of fields of 4 bits: one column's bits stand at the same place in all.
struct Words {
  uint32x4_t v[4];
};

[[gnu::always_inline]] static inline Words load_words(const std::byte* line) noexcept {
  Words words;
#pragma GCC unroll 4
  for (unsigned i = 0; i < 4; ++i) words.v[i] = vreinterpretq_u32_u8(load_quarter(line, i));
  return words;
}

// High bits of the scales of a super-block: u32 of every row, or u16.
template <std::uint32_t kBlock>
[[gnu::always_inline]] static inline Words load_high_bits(const std::byte* from) noexcept {
  if constexpr (kBlock == 32) return load_words(from);
  Words words;
#pragma GCC unroll 4
  for (unsigned i = 0; i < 4; ++i) {
    words.v[i] = vmovl_u16(vld1_u16(reinterpret_cast<const std::uint16_t*>(from) + 4 * i));
  }
  return words;
}

// What the codes of one block go with, in f32, and where they are.
struct BlockFields {
  Rows scales;
  Rows mins;  // scale * zero point where a type has no min; without meaning for 8-bit
  const std::byte* codes;
};

// The fields of sub-block `block` of a row of super-blocks.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] static inline BlockFields load_super_fields(const std::byte* group,
                                                                   std::size_t block) noexcept {
  constexpr std::uint32_t kSubBlocks = kSuperColumns / kBlock;
  constexpr std::size_t kCodeBytes = std::size_t{kBlock} * code_bits(kType) / 8 * kRowGroup;
  constexpr std::size_t kFieldBytes = (kBlock == 32 ? 4 : 2) * kLineBytes;
  constexpr std::size_t kSuperBytes = kFieldBytes + kSubBlocks * kCodeBytes;
  const std::size_t index = block / kSubBlocks;
  const auto k = static_cast<int>(block % kSubBlocks);
  const std::byte* fields;
  const std::byte* high_at;
  if constexpr (kBlock == 32) {
    fields = group + index * kSuperBytes;
    high_at = fields + 3 * kLineBytes;
  } else {
    const std::byte* pair = group + index / 2 * (kLineBytes + 2 * kSuperBytes);
    fields = pair + kLineBytes + index % 2 * kSuperBytes;
    high_at = pair + index % 2 * (2 * kRowGroup);
  }
  const Rows d = load_halves(fields);
  const Rows dmin = load_halves(fields + 2 * kRowGroup);
  const Words low = load_words(fields + (1 + k / 4) * kLineBytes);
  const Words high = load_high_bits<kBlock>(high_at);
  const uint32x4_t four_bits = vdupq_n_u32(15);
  const uint32x4_t upper_bits = vdupq_n_u32(0x30);
  BlockFields out;
#pragma GCC unroll 4
  for (unsigned i = 0; i < 4; ++i) {
    const uint32x4_t lows = vshlq_u32(low.v[i], vdupq_n_s32(-8 * (k % 4)));
    const uint32x4_t highs = vshlq_u32(high.v[i], vdupq_n_s32(4 - 4 * k));
    const uint32x4_t scale = vorrq_u32(vandq_u32(lows, four_bits), vandq_u32(highs, upper_bits));
    const uint32x4_t min = vorrq_u32(vandq_u32(vshrq_n_u32(lows, 4), four_bits),
                                     vandq_u32(vshrq_n_u32(highs, 2), upper_bits));
    out.scales.v[i] = vmulq_f32(d.v[i], vcvtq_f32_u32(scale));
    out.mins.v[i] = vmulq_f32(dmin.v[i], vcvtq_f32_u32(min));
  }
  out.codes = fields + kFieldBytes + k * kCodeBytes;
  return out;
}

template <QuantType kType>
static constexpr float kZeroPoint = kType == QuantType::kQ2S     ? -1.5F
                                    : kType == QuantType::kQk256 ? -2.0F
                                                                 : -1.0F;

// Finds one column block of a group and widens its fields.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] static inline BlockFields load_fields(const std::byte* group,
                                                             std::size_t block) noexcept {
  constexpr std::size_t kCodeBytes = std::size_t{kBlock} * code_bits(kType) / 8 * kRowGroup;
  constexpr ScaleForm kForm = scale_form(kType);
  if constexpr (kForm == ScaleForm::kSuperBlock) {
    return load_super_fields<kType, kBlock>(group, block);
  } else if constexpr (kForm == ScaleForm::kBlockMin) {
    const std::byte* base = group + block * (kLineBytes + kCodeBytes);
    return {load_halves(base), load_halves(base + 2 * kRowGroup), base + kLineBytes};
  } else {
    BlockFields out;
    if constexpr (kForm == ScaleForm::kBlock) {
      const std::byte* base = group + block / 2 * (kLineBytes + 2 * kCodeBytes);
      out.scales = load_halves(base + block % 2 * (2 * kRowGroup));
      out.codes = base + kLineBytes + block % 2 * kCodeBytes;
    } else {
      for (unsigned i = 0; i < 4; ++i) out.scales.v[i] = vdupq_n_f32(1.0F);
      out.codes = group + (kForm == ScaleForm::kRow ? kLineBytes : 0) + block * kCodeBytes;
    }
#pragma GCC unroll 4
    for (unsigned i = 0; i < 4; ++i) {
      out.mins.v[i] = vmulq_n_f32(out.scales.v[i], kZeroPoint<kType>);
    }
    return out;
  }
}

// Stores sums of 16 rows, or of those that exist.
[[gnu::always_inline]] static inline void store_rows(float* y, const Rows& sums,
                                                     std::uint32_t n_rows) noexcept {
  if (n_rows >= kRowGroup) {
#pragma GCC unroll 4
    for (unsigned i = 0; i < 4; ++i) vst1q_f32(y + 4 * i, sums.v[i]);
    return;
  }
  float part[kRowGroup];
  for (unsigned i = 0; i < 4; ++i) vst1q_f32(part + 4 * i, sums.v[i]);
  for (std::uint32_t r = 0; r < n_rows; ++r) y[r] = part[r];
}

}  // namespace qsf::kernels::neon

#endif  // QSF_KERNELS_MATMUL_CODED_NEON_H_
