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

#include "kernels/block_place.h"
#include "quant/block_format.h"

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

// The bytes as they are multiplied: codes, or levels.
template <QuantType kType>
[[gnu::always_inline]] static inline int8x16_t level_of(uint8x16_t codes) noexcept {
  if constexpr (!has_levels(kType)) return vreinterpretq_s8_u8(codes);
  struct Levels {
    std::int8_t of[16];
  };
  static constexpr Levels kLevels = [] {
    Levels levels = {};
    for (unsigned i = 0; i < codebook_levels(kType).size(); ++i)
      levels.of[i] = static_cast<std::int8_t>(codebook_levels(kType)[i] + kLevelShift<kType>);
    return levels;
  }();
  return vqtbl1q_s8(vld1q_s8(kLevels.of), codes);
}

// Decodes columns 4 * index .. 4 * index + 3 of a block, `codes` its first code line and `half` its
// half of a line that it shares.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] static inline Four decode_four(const std::byte* codes,
                                                      [[maybe_unused]] unsigned half,
                                                      unsigned index) noexcept {
  Four four;
#pragma GCC unroll 4
  for (unsigned i = 0; i < 4; ++i) {
    if constexpr (kType == QuantType::kQ8) {
      four.v[i] = vreinterpretq_s8_u8(load_quarter(codes + index * kLineBytes, i));
    } else if constexpr (shares_lines(kType)) {
      const uint8x16_t high = load_quarter(codes + half * kLineBytes, i);
      const uint8x16_t low = load_quarter(codes + 2 * kLineBytes, i);
      const uint8x16_t upper = vshlq_n_u8(field_of<2>(high, index), 1);
      const uint8x16_t code = vorrq_u8(upper, field_of<1>(low, 4 * half + index));
      four.v[i] = vsubq_s8(level_of<kType>(code), vdupq_n_s8(code_zero(kType)));
    } else if constexpr (kIsWide<kType>) {
      constexpr unsigned kHighBits = code_bits(kType) - 4;
      const uint8x16_t low = load_quarter(codes + index / 2 * kLineBytes, i);
      const uint8x16_t high = load_quarter(codes + kBlock / 8 * kLineBytes, i);
      const uint8x16_t upper = vshlq_n_u8(field_of<kHighBits>(high, index), 4);
      const uint8x16_t code = vorrq_u8(upper, field_of<4>(low, index % 2));
      four.v[i] = vsubq_s8(vreinterpretq_s8_u8(code), vdupq_n_s8(code_zero(kType)));
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
      four.v[i] = level_of<kType>(field);
    }
  }
  return four;
}

// Decodes all columns of a trellis block.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] static inline void decode_trellis(const std::byte* codes,
                                                         unsigned lines_back,
                                                         Four fours[kBlock / 4]) noexcept {
  constexpr unsigned kLines = kBlock / 16;
  const uint8x16_t newest = vld1q_u8(kTables.newest);
  const uint8x16_t middle = vld1q_u8(kTables.middle);
  const uint8x16_t oldest = vld1q_u8(kTables.oldest);
  const uint8x16_t levels = vld1q_u8(kTrellisLevels<kType>.of);
  const std::byte* const back = lines_before(codes, lines_back);
  // A symbol, and below it the one before, which of field 0 is the last of the line before.
  const auto nibble_of = [](uint8x16_t line, uint8x16_t before, unsigned field) {
    if (field == 0) {
      return vandq_u8(vsliq_n_u8(vshrq_n_u8(before, 6), line, 2), vdupq_n_u8(15));
    }
    const auto down = static_cast<std::int8_t>(2 - 2 * static_cast<int>(field));
    return vandq_u8(vshlq_u8(line, vdupq_n_s8(down)), vdupq_n_u8(15));
  };
#pragma GCC unroll 4
  for (unsigned i = 0; i < 4; ++i) {
    uint8x16_t before = load_quarter(back + kLineBytes, i);
    uint8x16_t middles[2];  // of the last two fields
    uint8x16_t oldests[4];  // of the line before
#pragma GCC unroll 4
    for (unsigned f = 0; f < 4; ++f) {
      const uint8x16_t nibble = nibble_of(before, load_quarter(back, i), f);
      if (f >= 2) middles[f - 2] = vqtbl1q_u8(middle, nibble);
      oldests[f] = vqtbl1q_u8(oldest, nibble);
    }
#pragma GCC unroll 4
    for (unsigned line = 0; line < kLines; ++line) {
      const uint8x16_t symbols = load_quarter(codes + line * kLineBytes, i);
#pragma GCC unroll 4
      for (unsigned f = 0; f < 4; ++f) {
        const uint8x16_t nibble = nibble_of(symbols, before, f);
        const uint8x16_t index =
            veorq_u8(vqtbl1q_u8(newest, nibble), veorq_u8(middles[f % 2], oldests[f]));
        middles[f % 2] = vqtbl1q_u8(middle, nibble);
        oldests[f] = vqtbl1q_u8(oldest, nibble);
        uint8x16_t values = vqtbl1q_u8(levels, index);
        if constexpr (kType == QuantType::kQ3Trellis) {
          const uint8x16_t plane = load_quarter(codes + (kLines + line / 2) * kLineBytes, i);
          values = vaddq_u8(values, vshlq_n_u8(field_of<1>(plane, line % 2 * 4 + f), 3));
        }
        fours[4 * line + f].v[i] = vreinterpretq_s8_u8(values);
      }
      before = symbols;
    }
  }
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
  Rows mins;  // scale * zero point where a type has no min; without meaning for signed codes
  const std::byte* codes;
  unsigned half;  // of a line that the block shares
};

// The scales and mins of a super-block's sub-block.
template <std::uint32_t kBlock>
[[gnu::always_inline]] static inline void load_super_fields(const BlockPlace& place,
                                                            BlockFields* out) noexcept {
  const Rows d = load_halves(place.scales);
  const Rows dmin = load_halves(place.mins);
  const Words low = load_words(place.low);
  const Words high = load_high_bits<kBlock>(place.high);
  const auto k = static_cast<std::int32_t>(place.k);
  const uint32x4_t four_bits = vdupq_n_u32(15);
  const uint32x4_t upper_bits = vdupq_n_u32(0x30);
#pragma GCC unroll 4
  for (unsigned i = 0; i < 4; ++i) {
    const uint32x4_t lows = vshlq_u32(low.v[i], vdupq_n_s32(-8 * (k % 4)));
    const uint32x4_t highs = vshlq_u32(high.v[i], vdupq_n_s32(4 - 4 * k));
    const uint32x4_t scale = vorrq_u32(vandq_u32(lows, four_bits), vandq_u32(highs, upper_bits));
    const uint32x4_t min = vorrq_u32(vandq_u32(vshrq_n_u32(lows, 4), four_bits),
                                     vandq_u32(vshrq_n_u32(highs, 2), upper_bits));
    out->scales.v[i] = vmulq_f32(d.v[i], vcvtq_f32_u32(scale));
    out->mins.v[i] = vmulq_f32(dmin.v[i], vcvtq_f32_u32(min));
  }
}

// The signed scales of sub-block `k`, counted in kBlock columns, of a table type.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] static inline void load_codebook_scales(const BlockPlace& place, unsigned k,
                                                               int32x4_t scales[4]) noexcept {
  const Words low = load_words(place.low);
  if constexpr (fixed_block(kType) == 16) {
    const auto up = static_cast<std::int32_t>(28 - k % 4 * 8 - k / 4 % 2 * 4);
    for (unsigned i = 0; i < 4; ++i) {
      const uint32x4_t top = vshlq_u32(low.v[i], vdupq_n_s32(up));
      scales[i] = vshrq_n_s32(vreinterpretq_s32_u32(top), 28);
    }
  } else {
    const Words high = load_high_bits<64>(place.high);
    const auto index = static_cast<std::int32_t>(k * kBlock / 32);
    for (unsigned i = 0; i < 4; ++i) {
      const int32x4_t to_top = vdupq_n_s32(28 - index / 2 * 4 - index % 2 * 16);
      const int32x4_t high_to_top = vdupq_n_s32(30 - index / 2 * 2 - index % 2 * 8);
      const uint32x4_t lower = vshrq_n_u32(vshlq_u32(low.v[i], to_top), 28);
      const uint32x4_t upper = vshrq_n_u32(vshlq_u32(high.v[i], high_to_top), 30);
      const uint32x4_t six = vorrq_u32(vshlq_n_u32(upper, 30), vshlq_n_u32(lower, 26));
      scales[i] = vshrq_n_s32(vreinterpretq_s32_u32(six), 26);
    }
  }
}

// The scales and mins of a sub-block that has one byte of them.
template <QuantType kType>
[[gnu::always_inline]] static inline void load_byte_fields(const BlockPlace& place,
                                                           BlockFields* out) noexcept {
  const Rows d = load_halves(place.scales);
  const Words bytes = load_words(place.low);
  const auto k = static_cast<std::int32_t>(place.k % 4);
  if constexpr (scale_form(kType) == ScaleForm::kSuperSigned) {
#pragma GCC unroll 4
    for (unsigned i = 0; i < 4; ++i) {
      const uint32x4_t top = vshlq_u32(bytes.v[i], vdupq_n_s32(24 - 8 * k));
      const int32x4_t scale = vshrq_n_s32(vreinterpretq_s32_u32(top), 24);
      out->scales.v[i] = vmulq_f32(d.v[i], vcvtq_f32_s32(scale));
      out->mins.v[i] = vdupq_n_f32(0.0F);
    }
  } else {
    const Rows dmin = load_halves(place.mins);
    const uint32x4_t four_bits = vdupq_n_u32(15);
#pragma GCC unroll 4
    for (unsigned i = 0; i < 4; ++i) {
      const uint32x4_t fields = vshlq_u32(bytes.v[i], vdupq_n_s32(-8 * k));
      const uint32x4_t min = vandq_u32(vshrq_n_u32(fields, 4), four_bits);
      out->scales.v[i] = vmulq_f32(d.v[i], vcvtq_f32_u32(vandq_u32(fields, four_bits)));
      out->mins.v[i] = vmulq_f32(dmin.v[i], vcvtq_f32_u32(min));
    }
  }
}

// The powers of two of a block of mxfp4.
[[gnu::always_inline]] static inline Rows load_powers(const BlockPlace& place) noexcept {
  const Words exponents = load_words(place.low);
  const auto up = vdupq_n_s32(24 - 8 * static_cast<std::int32_t>(place.k));
  Rows rows;
#pragma GCC unroll 4
  for (unsigned i = 0; i < 4; ++i) {
    const uint32x4_t top = vshlq_u32(exponents.v[i], up);
    const uint32x4_t bits = vandq_u32(vshrq_n_u32(top, 1), vdupq_n_u32(0x7F800000));
    const uint32x4_t at_least = vmaxq_u32(bits, vdupq_n_u32(kTwiceLeastScale));
    rows.v[i] = vmulq_n_f32(vreinterpretq_f32_u32(at_least), 0.5F);
  }
  return rows;
}

// The 4-bit scales of a trellis block.
[[gnu::always_inline]] static inline Rows load_nibbles(const BlockPlace& place) noexcept {
  const Words words = load_words(place.low);
  const auto down = vdupq_n_s32(-4 * static_cast<std::int32_t>(place.k));
  Rows rows;
#pragma GCC unroll 4
  for (unsigned i = 0; i < 4; ++i) {
    rows.v[i] = vcvtq_f32_u32(vandq_u32(vshlq_u32(words.v[i], down), vdupq_n_u32(15)));
  }
  return rows;
}

// Finds one column block of a group and widens its fields.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] static inline BlockFields load_fields(const std::byte* group,
                                                             std::size_t block) noexcept {
  const BlockPlace place = place_of<kType, kBlock>(group, block);
  BlockFields out;
  out.codes = place.codes;
  out.half = half_of<kType>(place);
  if constexpr (scale_form(kType) == ScaleForm::kSuperBlock) {
    load_super_fields<kBlock>(place, &out);
  } else if constexpr (is_codebook_type(kType)) {
    int32x4_t scales[4];
    load_codebook_scales<kType, kBlock>(place, place.k, scales);
    const Rows d = load_halves(place.scales);
    for (unsigned i = 0; i < 4; ++i) {
      out.scales.v[i] = vmulq_f32(d.v[i], vcvtq_f32_s32(scales[i]));
      out.mins.v[i] = vdupq_n_f32(0.0F);
    }
  } else if constexpr (is_super_type(kType)) {
    load_byte_fields<kType>(place, &out);
  } else if constexpr (has_min(kType)) {
    out.scales = load_halves(place.scales);
    out.mins = load_halves(place.mins);
  } else {
    for (unsigned i = 0; i < 4; ++i) out.scales.v[i] = vdupq_n_f32(1.0F);
    if constexpr (scale_form(kType) == ScaleForm::kBlock) out.scales = load_halves(place.scales);
    if constexpr (scale_form(kType) == ScaleForm::kExponent) out.scales = load_powers(place);
    if constexpr (scale_form(kType) == ScaleForm::kRowNibble) out.scales = load_nibbles(place);
#pragma GCC unroll 4
    for (unsigned i = 0; i < 4; ++i) {
      out.mins.v[i] = vmulq_n_f32(out.scales.v[i], kZeroPoint<kType>);
    }
  }
  return out;
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
