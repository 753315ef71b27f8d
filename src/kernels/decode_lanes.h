// SPDX-License-Identifier: MIT
//
// Codes of layout 1 as vectors of four rows, for kernels of the scalar tier; internal linkage.
//
// A line is 16 rows x 4 bytes: four vectors of four 32-bit words, one word a row. Column 4f + k of
// a line is bits 8k + f * width of every word, so one shift and one mask yield a column of four
// rows and no lane ever crosses another.

#ifndef QSF_KERNELS_DECODE_LANES_H_
#define QSF_KERNELS_DECODE_LANES_H_

#include "kernels/lanes.h"
#include "quant/types.h"

namespace qsf::kernels::lanes {

struct Words16 {
  u32x4 v[4];
};

[[gnu::always_inline]] static inline Words16 load_line(const std::byte* line) noexcept {
  return {
      {load<u32x4>(line), load<u32x4>(line + 16), load<u32x4>(line + 32), load<u32x4>(line + 48)}};
}

// Calls take(column, rows) for the columns of one line of 2- or 4-bit codes, every column once, in
// an order that is fixed by the layout.
template <unsigned kBits, typename Take>
[[gnu::always_inline]] static inline void for_line_columns(const std::byte* line,
                                                           Take&& take) noexcept {
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
        rows.v[i] = to_f32(shift + kBits == 32 ? moved : moved & kMask);
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
template <typename Take>
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
        rows.v[i] = to_f32((upper & 6U) | ((low.v[i] >> (8 * k + f)) & 1U));
      }
      take(4 * f + k, rows);
    }
  }
}

// Calls take(column, rows) for every column of one block of codes, `codes` its first code line.
template <QuantType kType, std::uint32_t kBlock, typename Take>
[[gnu::always_inline]] static inline void for_block_columns(const std::byte* codes,
                                                            Take&& take) noexcept {
  if constexpr (kType == QuantType::kQ8) {
    for (std::uint32_t line = 0; line < kBlock / 4; ++line) {
      for_byte_columns(
          codes + line * 64, [&](unsigned column, const Rows16& rows)
                                 __attribute__((always_inline)) { take(4 * line + column, rows); });
    }
  } else if constexpr (kType == QuantType::kQ3) {
    constexpr std::uint32_t kHighLines = kBlock / 16;
    for (std::uint32_t line = 0; line < kHighLines; ++line) {
      for_three_bit_columns(
          codes + line * 64, codes + (kHighLines + line / 2) * 64,
          line % 2, [&](unsigned column, const Rows16& rows) __attribute__((always_inline)) {
            take(16 * line + column, rows);
          });
    }
  } else {
    constexpr unsigned kBits = kType == QuantType::kQ4 ? 4 : 2;
    constexpr std::uint32_t kColumns = 32 / kBits;
    for (std::uint32_t line = 0; line < kBlock / kColumns; ++line) {
      for_line_columns<kBits>(
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

// Bytes of one column block in layout 1, and where its scales and codes are. Types without a min
// come in pairs of blocks behind one line of scales.
template <QuantType kType, std::uint32_t kBlock>
struct BlockPlace {
  static constexpr std::size_t kCodeBytes = std::size_t{kBlock} * code_bits(kType) / 8 * kRowGroup;

  const std::byte* scales;
  const std::byte* mins;  // meaningful when the type has a min
  const std::byte* codes;

  [[gnu::always_inline]] static inline BlockPlace of(const std::byte* group,
                                                     std::size_t block) noexcept {
    if constexpr (has_min(kType)) {
      const std::byte* base = group + block * (kLineBytes + kCodeBytes);
      return {base, base + 2 * kRowGroup, base + kLineBytes};
    } else {
      const std::byte* base = group + block / 2 * (kLineBytes + 2 * kCodeBytes);
      return {base + block % 2 * (2 * kRowGroup), nullptr,
              base + kLineBytes + block % 2 * kCodeBytes};
    }
  }
};

// What scale is multiplied with to give the min of a type that stores none: w = scale * (code + z).
template <QuantType kType>
static constexpr float kZeroPoint = kType == QuantType::kQ2S       ? -1.5F
                                    : kType == QuantType::kTernary ? -1.0F
                                                                   : 0.0F;

// Widens the mins of a block, or makes them from the scales.
template <QuantType kType>
[[gnu::always_inline]] static inline Rows16 load_mins(const std::byte* mins,
                                                      const Rows16& scales) noexcept {
  if constexpr (has_min(kType)) return load_half_rows(mins);
  Rows16 result;
  for (unsigned i = 0; i < 4; ++i) result.v[i] = scales.v[i] * kZeroPoint<kType>;
  return result;
}

}  // namespace qsf::kernels::lanes

#endif  // QSF_KERNELS_DECODE_LANES_H_
