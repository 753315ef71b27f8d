// SPDX-License-Identifier: MIT
//
// Codes of layout 1 as vectors of four rows, for kernels of the scalar tier; internal linkage.
//
// A line is 16 rows x 4 bytes: four vectors of four 32-bit words, one word a row. Column 4f + k of
// a line is bits 8k + f * width of every word, so one shift and one mask yield a column of four
// rows and no lane ever crosses another.

#ifndef QSF_KERNELS_DECODE_LANES_H_
#define QSF_KERNELS_DECODE_LANES_H_

#include "kernels/block_place.h"
#include "kernels/vectors_scalar.h"
#include "quant/block_format.h"

namespace qsf::kernels::lanes {

struct Words16 {
  u32x4 v[4];
};

[[gnu::always_inline]] static inline Words16 load_line(const std::byte* line) noexcept {
  return {
      {load<u32x4>(line), load<u32x4>(line + 16), load<u32x4>(line + 32), load<u32x4>(line + 48)}};
}

// Turns codes of a table type, in lanes of integers, into their levels: two that differ in their
// lowest bit alone, of which that bit takes one, and so on up the bits.
template <QuantType kType, unsigned kBits = code_bits(kType), unsigned kFirst = 0, typename V>
[[gnu::always_inline]] static inline V look_up_levels(V codes) noexcept {
  if constexpr (kBits == 0) {
    // A constant by itself, so that an object of this tier needs neither table nor span.
    constexpr auto kLevel =
        static_cast<std::int8_t>(codebook_levels(kType)[kFirst] + kLevelShift<kType>);
    return V{} + kLevel;
  } else {
    constexpr unsigned kHalf = 1U << (kBits - 1);
    const V lower = look_up_levels<kType, kBits - 1, kFirst>(codes);
    const V upper = look_up_levels<kType, kBits - 1, kFirst + kHalf>(codes);
    const V is_upper = -((codes >> (kBits - 1)) & 1);
    return lower ^ ((lower ^ upper) & is_upper);
  }
}

// The values of four rows' codes: codes themselves, 0, 1, 3, 4 of qk256, levels of tables.
template <QuantType kType>
[[gnu::always_inline]] static inline f32x4 value_of(u32x4 codes) noexcept {
  if constexpr (has_levels(kType)) {
    return to_f32(look_up_levels<kType>(reinterpret_cast<i32x4>(codes)));
  }
  return to_f32(kType == QuantType::kQk256 ? codes + (codes >> 1) : codes);
}

// Calls take(column, rows) for the columns of one line of 2- or 4-bit codes, every column once, in
// an order that is fixed by the layout.
template <QuantType kType, typename Take>
[[gnu::always_inline]] static inline void for_line_columns(const std::byte* line,
                                                           Take&& take) noexcept {
  constexpr unsigned kBits = code_bits(kType);
  constexpr unsigned kFields = 8 / kBits;
  constexpr std::uint32_t kMask = (1U << kBits) - 1U;
  const Words16 words = load_line(line);
#pragma GCC unroll 4
  for (unsigned f = 0; f < kFields; ++f) {
#pragma GCC unroll 4
    for (unsigned k = 0; k < 4; ++k) {
      const unsigned shift = 8 * k + f * kBits;
      Rows16 rows;
#pragma GCC unroll 4
      for (unsigned i = 0; i < 4; ++i) {
        const u32x4 moved = words.v[i] >> shift;
        const u32x4 code = shift + kBits == 32 ? moved : moved & kMask;
        rows.v[i] = value_of<kType>(code);
      }
      take(4 * f + k, rows);
    }
  }
}

// The same for signed bytes: the byte goes to the top, then comes down with its sign.
template <typename Take>
[[gnu::always_inline]] static inline void for_byte_columns(const std::byte* line,
                                                           Take&& take) noexcept {
  const Words16 words = load_line(line);
#pragma GCC unroll 4
  for (unsigned k = 0; k < 4; ++k) {
    Rows16 rows;
#pragma GCC unroll 4
    for (unsigned i = 0; i < 4; ++i) {
      rows.v[i] = to_f32(reinterpret_cast<i32x4>(words.v[i] << (24 - 8 * k)) >> 24);
    }
    take(k, rows);
  }
}

// Calls take(column, rows) for 16 columns of 3-bit codes: a line of code >> 1, and the half
// (0 or 1: columns 0-15 or 16-31) of a line of code & 1.
template <QuantType kType, typename Take>
[[gnu::always_inline]] static inline void for_three_bit_columns(const std::byte* high_line,
                                                                const std::byte* low_line,
                                                                unsigned low_half,
                                                                Take&& take) noexcept {
  const Words16 high = load_line(high_line);
  Words16 low = load_line(low_line);
  for (unsigned i = 0; i < 4; ++i) low.v[i] >>= 4 * low_half;
#pragma GCC unroll 4
  for (unsigned f = 0; f < 4; ++f) {
#pragma GCC unroll 4
    for (unsigned k = 0; k < 4; ++k) {
      const unsigned shift = 8 * k + 2 * f;
      Rows16 rows;
#pragma GCC unroll 4
      for (unsigned i = 0; i < 4; ++i) {
        const u32x4 upper = shift == 0 ? high.v[i] << 1 : high.v[i] >> (shift - 1);
        rows.v[i] = value_of<kType>((upper & 6U) | ((low.v[i] >> (8 * k + f)) & 1U));
      }
      take(4 * f + k, rows);
    }
  }
}

// Calls take(column, rows) for the 8 columns of a line of 4-bit codes that have kHighBits bits
// more, which are fields 2 * pair and 2 * pair + 1 of `high_line`.
template <unsigned kHighBits, typename Take>
[[gnu::always_inline]] static inline void for_wide_columns(const std::byte* line,
                                                           const std::byte* high_line,
                                                           unsigned pair, Take&& take) noexcept {
  constexpr std::uint32_t kHighMask = (1U << kHighBits) - 1U;
  const Words16 low = load_line(line);
  Words16 high = load_line(high_line);
  for (unsigned i = 0; i < 4; ++i) high.v[i] >>= 2 * pair * kHighBits;
#pragma GCC unroll 2
  for (unsigned f = 0; f < 2; ++f) {
#pragma GCC unroll 4
    for (unsigned k = 0; k < 4; ++k) {
      Rows16 rows;
#pragma GCC unroll 4
      for (unsigned i = 0; i < 4; ++i) {
        const u32x4 upper = (high.v[i] >> (8 * k + f * kHighBits)) & kHighMask;
        rows.v[i] = to_f32(((low.v[i] >> (8 * k + 4 * f)) & 15U) | upper << 4);
      }
      take(4 * f + k, rows);
    }
  }
}

// Values of the windows of trellis types.
template <QuantType kType>
static constexpr auto kTrellisValues = trellis_values<kType>();

// Calls take(column, rows) for the columns of a trellis block, rows its values.
template <QuantType kType, std::uint32_t kBlock, typename Take>
[[gnu::always_inline]] static inline void for_trellis_columns(const std::byte* codes,
                                                              unsigned lines_back,
                                                              Take&& take) noexcept {
  constexpr std::uint32_t kLines = kBlock / 16;
  const std::byte* before = lines_before(codes, lines_back);
  Words16 words[3] = {load_line(before), load_line(before + kLineBytes), {}};
  for (std::uint32_t line = 0; line < kLines; ++line) {
    words[2] = load_line(codes + line * kLineBytes);
    Words16 planes = {};
    if constexpr (kType == QuantType::kQ3Trellis) {
      planes = load_line(codes + (kLines + line / 2) * kLineBytes);
    }
    for (unsigned f = 0; f < 4; ++f) {
      for (unsigned k = 0; k < 4; ++k) {
        Rows16 rows;
        for (unsigned r = 0; r < 16; ++r) {
          const auto byte = [&](unsigned i) { return words[i].v[r / 4][r % 4] >> (8 * k) & 255U; };
          const std::uint32_t symbols = byte(0) | byte(1) << 8 | byte(2) << 16;
          std::uint32_t value = kTrellisValues<kType>.of[symbols >> (2 * f + 6) & 4095U];
          const std::uint32_t plane = planes.v[r / 4][r % 4] >> (8 * k + line % 2 * 4 + f);
          value += (plane & 1U) * kTrellisRefinement;
          rows.v[r / 4][r % 4] = static_cast<float>(value);
        }
        take(16 * line + 4 * f + k, rows);
      }
    }
    words[0] = words[1];
    words[1] = words[2];
  }
}

// Calls take(column, rows) for every column of one block of codes, `codes` its first code line and
// `half` its half of a line that it shares, or half_of() a trellis type.
template <QuantType kType, std::uint32_t kBlock, typename Take>
[[gnu::always_inline]] static inline void for_block_columns(const std::byte* codes,
                                                            [[maybe_unused]] unsigned half,
                                                            Take&& take) noexcept {
  if constexpr (is_trellis_type(kType)) {
    for_trellis_columns<kType, kBlock>(codes, half, take);
  } else if constexpr (shares_lines(kType)) {
    for_three_bit_columns<kType>(codes + half * 64, codes + 128, half, take);
  } else if constexpr (kIsWide<kType>) {
    constexpr std::uint32_t kLines = kBlock / 8;
    for (std::uint32_t line = 0; line < kLines; ++line) {
      for_wide_columns<code_bits(kType) - 4>(
          codes + line * 64, codes + kLines * 64,
          line, [&](unsigned column, const Rows16& rows) __attribute__((always_inline)) {
            take(8 * line + column, rows);
          });
    }
  } else if constexpr (kType == QuantType::kQ8) {
    for (std::uint32_t line = 0; line < kBlock / 4; ++line) {
      for_byte_columns(
          codes + line * 64, [&](unsigned column, const Rows16& rows)
                                 __attribute__((always_inline)) { take(4 * line + column, rows); });
    }
  } else if constexpr (code_bits(kType) == 3) {
    constexpr std::uint32_t kHighLines = kBlock / 16;
    for (std::uint32_t line = 0; line < kHighLines; ++line) {
      for_three_bit_columns<kType>(
          codes + line * 64, codes + (kHighLines + line / 2) * 64,
          line % 2, [&](unsigned column, const Rows16& rows) __attribute__((always_inline)) {
            take(16 * line + column, rows);
          });
    }
  } else {
    constexpr unsigned kBits = code_bits(kType);
    constexpr std::uint32_t kColumns = 32 / kBits;
    for (std::uint32_t line = 0; line < kBlock / kColumns; ++line) {
      for_line_columns<kType>(
          codes + line * 64, [&](unsigned column, const Rows16& rows) __attribute__((
                                 always_inline)) { take(kColumns * line + column, rows); });
    }
  }
}

// Calls take(column, rows) for four columns of a float type, `lines` their lines.
template <QuantType kType, typename Take>
[[gnu::always_inline]] static inline void for_float_columns(const std::byte* lines,
                                                            Take&& take) noexcept {
  if constexpr (kType == QuantType::kF32) {
    for (unsigned column = 0; column < 4; ++column) {
      Rows16 rows;
      for (unsigned i = 0; i < 4; ++i) rows.v[i] = load<f32x4>(lines + 64 * column + 16 * i);
      take(column, rows);
    }
  } else {
    for (unsigned line = 0; line < 2; ++line) {
      const Words16 words = load_line(lines + 64 * line);
      Rows16 even;
      Rows16 odd;
      for (unsigned i = 0; i < 4; ++i) {
        if constexpr (kType == QuantType::kBF16) {
          even.v[i] = from_bits(words.v[i] << 16);
          odd.v[i] = from_bits(words.v[i] & 0xFFFF0000U);
        } else {
          even.v[i] = finite_high_half_to_f32(words.v[i] << 16);
          odd.v[i] = finite_high_half_to_f32(words.v[i]);
        }
      }
      take(2 * line, even);
      take(2 * line + 1, odd);
    }
  }
}

// What the codes of one block go with, in f32, and where they are.
struct BlockFields {
  Rows16 scales;
  Rows16 mins;  // scale * zero point where a type has no min; zeros for 8-bit
  const std::byte* codes;
  unsigned half;  // of a line that the block shares
};

// Sixteen words of high bits: u32 of every row, or u16.
template <std::uint32_t kBlock>
[[gnu::always_inline]] static inline Words16 load_high_bits(const std::byte* from) noexcept {
  if constexpr (kBlock == 32) return load_line(from);
  const u16x8 low = load<u16x8>(from);
  const u16x8 high = load<u16x8>(from + 16);
  return {{first_to_high(low) >> 16, last_to_high(low) >> 16, first_to_high(high) >> 16,
           last_to_high(high) >> 16}};
}

// The signed scales of a sub-block of a table type, words of 32 bits.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] static inline Words16 load_codebook_scales(
    const BlockPlace& place) noexcept {
  Words16 out;
  const Words16 low = load_line(place.low);
  if constexpr (fixed_block(kType) == 16) {
    const unsigned up = 28 - place.k % 4 * 8 - place.k / 4 % 2 * 4;
    for (unsigned i = 0; i < 4; ++i) {
      out.v[i] = reinterpret_cast<u32x4>(reinterpret_cast<i32x4>(low.v[i] << up) >> 28);
    }
  } else {
    const Words16 high = load_high_bits<64>(place.high);
    const unsigned index = place.k * kBlock / 32;
    for (unsigned i = 0; i < 4; ++i) {
      const u32x4 lower = (low.v[i] >> (index / 2 * 4 + index % 2 * 16)) & 15U;
      const u32x4 upper = high.v[i] >> (index / 2 * 2 + index % 2 * 8) << 30;
      out.v[i] = reinterpret_cast<u32x4>(reinterpret_cast<i32x4>(upper | lower << 26) >> 26);
    }
  }
  return out;
}

// The powers of two of a block of mxfp4.
[[gnu::always_inline]] static inline Rows16 load_powers(const BlockPlace& place) noexcept {
  const Words16 exponents = load_line(place.low);
  Rows16 out;
  for (unsigned i = 0; i < 4; ++i) {
    const u32x4 bits = (exponents.v[i] >> (8 * place.k) & 255U) << 23;
    const u32x4 is_zero = reinterpret_cast<u32x4>(bits == 0U);
    out.v[i] = from_bits(bits | (is_zero & kTwiceLeastScale)) * 0.5F;
  }
  return out;
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
    const Rows16 d = load_half_rows(place.scales);
    const Rows16 dmin = load_half_rows(place.mins);
    const Words16 low = load_line(place.low);
    const Words16 high = load_high_bits<kBlock>(place.high);
    for (unsigned i = 0; i < 4; ++i) {
      const u32x4 lows = low.v[i] >> (8 * (place.k % 4));
      const u32x4 highs = high.v[i] >> (4 * place.k);
      out.scales.v[i] = d.v[i] * to_f32((lows & 15U) | ((highs & 3U) << 4));
      out.mins.v[i] = dmin.v[i] * to_f32(((lows >> 4) & 15U) | ((highs & 12U) << 2));
    }
  } else if constexpr (scale_form(kType) == ScaleForm::kSuperNibble) {
    const Rows16 d = load_half_rows(place.scales);
    const Rows16 dmin = load_half_rows(place.mins);
    const Words16 bytes = load_line(place.low);
    for (unsigned i = 0; i < 4; ++i) {
      const u32x4 fields = bytes.v[i] >> (8 * (place.k % 4));
      out.scales.v[i] = d.v[i] * to_f32(fields & 15U);
      out.mins.v[i] = dmin.v[i] * to_f32((fields >> 4) & 15U);
    }
  } else if constexpr (scale_form(kType) == ScaleForm::kSuperSigned) {
    const Rows16 d = load_half_rows(place.scales);
    const Words16 bytes = load_line(place.low);
    for (unsigned i = 0; i < 4; ++i) {
      const u32x4 top = bytes.v[i] << (24 - 8 * (place.k % 4));
      out.scales.v[i] = d.v[i] * to_f32(reinterpret_cast<i32x4>(top) >> 24);
      out.mins.v[i] = out.scales.v[i] * kZeroPoint<kType>;
    }
  } else if constexpr (is_codebook_type(kType)) {
    const Rows16 d = load_half_rows(place.scales);
    const Words16 scales = load_codebook_scales<kType, kBlock>(place);
    for (unsigned i = 0; i < 4; ++i) {
      out.scales.v[i] = d.v[i] * to_f32(reinterpret_cast<i32x4>(scales.v[i]));
      out.mins.v[i] = splat(0.0F);
    }
  } else if constexpr (has_min(kType)) {
    out.scales = load_half_rows(place.scales);
    out.mins = load_half_rows(place.mins);
  } else {
    for (unsigned i = 0; i < 4; ++i) out.scales.v[i] = splat(1.0F);
    if constexpr (scale_form(kType) == ScaleForm::kRowNibble) {
      const Words16 words = load_line(place.low);
      for (unsigned i = 0; i < 4; ++i) out.scales.v[i] = to_f32(words.v[i] >> (4 * place.k) & 15U);
    }
    if constexpr (scale_form(kType) == ScaleForm::kBlock) out.scales = load_half_rows(place.scales);
    if constexpr (scale_form(kType) == ScaleForm::kExponent) out.scales = load_powers(place);
    for (unsigned i = 0; i < 4; ++i) out.mins.v[i] = out.scales.v[i] * kZeroPoint<kType>;
  }
  return out;
}

// Multiplies finished sums with the scales of their rows, where the type has such.
template <QuantType kType>
[[gnu::always_inline]] static inline void scale_totals(const std::byte* group, Rows16* totals,
                                                       std::uint32_t n_x) noexcept {
  if constexpr (has_row_scale(kType)) {
    for (std::uint32_t i = 0; i < n_x; ++i) {
      for (unsigned v = 0; v < 4; ++v) totals[i].v[v] *= load<f32x4>(group + 16 * v);
    }
  }
}

}  // namespace qsf::kernels::lanes

#endif  // QSF_KERNELS_DECODE_LANES_H_
