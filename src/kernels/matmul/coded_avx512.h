// SPDX-License-Identifier: MIT
//
// Coded weights of layout 1 in 512-bit vectors, for kernels of the AVX-512 tiers; internal linkage.
//
// A line is 16 rows x 4 bytes and fills one vector, row r in its 32-bit lane r. A *four* is a
// vector of unsigned bytes with four neighbouring columns of every row, the operand that dot
// instructions multiply with four bytes of x, the same for all lanes. Shifts and masks alone make
// fours out of lines, so no lane ever crosses another.

#ifndef QSF_KERNELS_MATMUL_CODED_AVX512_H_
#define QSF_KERNELS_MATMUL_CODED_AVX512_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/block_place.h"
#include "kernels/matmul/trellis_pairs.h"
#if defined(__AVX512VBMI__)
#include "kernels/matmul/trellis_triples.h"
#endif
#include "quant/block_format.h"

namespace qsf::kernels::avx512 {

static_assert(kRowGroup == 16 && kLineBytes == 64);

[[gnu::always_inline]] static inline __m512i load_line(const std::byte* line) noexcept {
  return _mm512_load_si512(line);
}
[[gnu::always_inline]] static inline __m512i bytes_of(int value) noexcept {
  return _mm512_set1_epi8(static_cast<char>(value));
}
// (a & mask) | b
[[gnu::always_inline]] static inline __m512i merge(__m512i a, __m512i mask, __m512i b) noexcept {
  return _mm512_ternarylogic_epi32(a, mask, b, 0xEA);
}
// a where the mask has a bit, b elsewhere.
[[gnu::always_inline]] static inline __m512i choose(__m512i mask, __m512i a, __m512i b) noexcept {
  return _mm512_ternarylogic_epi32(mask, a, b, 0xCA);
}
// Widens the 16 halves at `halves`.
[[gnu::always_inline]] static inline __m512 load_halves(const std::byte* halves) noexcept {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(halves)));
}

// What makes codes unsigned: 128 is added to the stored bytes of 8 bits and to levels of tables,
// other signed codes are stored with their zero.
template <QuantType kType>
static constexpr int kSignedOffset = kType == QuantType::kQ8 || is_codebook_type(kType)
                                         ? 128
                                         : code_zero(kType);

// Lines of scales that may stand in front of the code lines of a block, beside those of a pair.
template <QuantType kType>
static constexpr std::uint32_t kFieldLines = fixed_block(kType) == 16                     ? 0
                                             : is_super_type(kType)                       ? 2
                                             : scale_form(kType) == ScaleForm::kBlock     ? 1
                                             : scale_form(kType) == ScaleForm::kExponent  ? 1
                                             : scale_form(kType) == ScaleForm::kRowNibble ? 1
                                             : scale_form(kType) == ScaleForm::kBlockMin  ? 1
                                                                                          : 0;

// The code lines of one block.
template <QuantType kType, std::uint32_t kBlock>
struct Lines {
  static constexpr std::uint32_t kFours = kBlock / 4;
  static constexpr std::uint32_t kBytes = kBlock * code_bits(kType) / 8 * kRowGroup;
  // Largest value of a byte of a four.
  static constexpr int kLargest = kType == QuantType::kQ8      ? 255
                                  : is_codebook_type(kType)    ? 255
                                  : kType == QuantType::kQk256 ? 4
                                  : kType == QuantType::kMxfp4 ? 24
                                  : is_trellis_type(kType)     ? kLargestTrellisValue
                                                               : (1 << code_bits(kType)) - 1;
  // The code lines of a block and about as many lines of scales as come with it.
  static constexpr std::uint32_t kWithFields = kBytes + kFieldLines<kType> * kLineBytes;
};

// Makes the two vectors of 3-bit codes whose columns are field f and f + 1 of the lines' four.
//
// Every code stands shifted left: by kThreeBitShift[f] bits in field f of a 2-bit line, which saves
// most shifts; `low` is the line of low bits, moved so that its bit of field 0 is bit 0.
static constexpr int kThreeBitShift[4] = {0, 1, 3, 5};

template <unsigned kField>
[[gnu::always_inline]] static inline __m512i three_bit_field(__m512i high, __m512i low) noexcept {
  constexpr int kShift = kThreeBitShift[kField];
  if constexpr (kField == 0) high = _mm512_slli_epi32(high, 1);
  if constexpr (kField == 2) low = _mm512_slli_epi32(low, 1);
  if constexpr (kField == 3) low = _mm512_slli_epi32(low, 2);
  return merge(high, bytes_of(6 << kShift), _mm512_and_si512(low, bytes_of(1 << kShift)));
}

// Moves bits that stand `from` bits up in their byte to `to` bits up.
[[gnu::always_inline]] static inline __m512i move_bits(__m512i a, unsigned from,
                                                       unsigned to) noexcept {
  if (from == to) return a;
  return from < to ? _mm512_slli_epi32(a, to - from) : _mm512_srli_epi32(a, from - to);
}

// Calls take(four, codes) for the fours of a block of 5- or 6-bit codes.
template <unsigned kHighBits, std::uint32_t kBlock, typename Take>
[[gnu::always_inline]] static inline void for_wide_fours(const std::byte* lines,
                                                         Take&& take) noexcept {
  const __m512i high = load_line(lines + kBlock / 8 * kLineBytes);
  const __m512i high_mask = bytes_of(((1 << kHighBits) - 1) << 4);
#pragma GCC unroll 4
  for (unsigned line = 0; line < kBlock / 8; ++line) {
    const __m512i raw = load_line(lines + line * kLineBytes);
#pragma GCC unroll 2
    for (unsigned f = 0; f < 2; ++f) {
      const unsigned four = 2 * line + f;
      const __m512i low = _mm512_and_si512(move_bits(raw, 4 * f, 0), bytes_of(15));
      take(four, merge(move_bits(high, four * kHighBits, 4), high_mask, low));
    }
  }
}

// Calls take(four, codes) for 16 columns of 3-bit codes, `half` 0 or 1 of a pair of blocks.
template <typename Take>
[[gnu::always_inline]] static inline void for_half_fours(const std::byte* lines, unsigned half,
                                                         Take&& take) noexcept {
  const __m512i high = load_line(lines + half * kLineBytes);
  const __m512i low = _mm512_srli_epi32(load_line(lines + 2 * kLineBytes), 4 * half);
#pragma GCC unroll 4
  for (unsigned four = 0; four < 4; ++four) {
    const __m512i bit = _mm512_and_si512(move_bits(low, four, 0), bytes_of(1));
    take(four, merge(move_bits(high, 2 * four, 1), bytes_of(6), bit));
  }
}

// A byte shuffle's table for each 16 bytes: of 2-bit codes, which are looked up two at a time, the
// level of the lower (kSecond false) or of the upper one. Levels are those of the type plus
// kSignedOffset or kLevelShift, or qk256's 0, 1, 3, 4.
template <QuantType kType, bool kSecond = false>
struct LevelCodebook {
  static constexpr struct alignas(16) Bytes {
    std::uint8_t of[16];
  } kBytes = [] {
    Bytes bytes = {};
    for (unsigned i = 0; i < 16; ++i) {
      const unsigned code = code_bits(kType) != 2 ? i % (1U << code_bits(kType))
                            : kSecond             ? i / 4
                                                  : i % 4;
      bytes.of[i] = static_cast<std::uint8_t>(kType == QuantType::kQk256
                                                  ? code + code / 2
                                                  : codebook_levels(kType)[code] +
                                                        kSignedOffset<kType> + kLevelShift<kType>);
    }
    return bytes;
  }();

  [[gnu::always_inline]] static inline __m512i load() noexcept {
    return _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(kBytes.of)));
  }
};

#if defined(__AVX512VBMI__)
using Trellis = TrellisTriples;
#else
// The vectors of trellis_pairs.h.
struct Lanes {
  using Ints = __m512i;

  [[gnu::always_inline]] static inline Ints load(const std::byte* from) noexcept {
    return load_line(from);
  }
  [[gnu::always_inline]] static inline Ints zero() noexcept { return _mm512_setzero_si512(); }
  [[gnu::always_inline]] static inline Ints splat_bytes(char value) noexcept {
    return bytes_of(value);
  }
  [[gnu::always_inline]] static inline Ints both(Ints a, Ints b) noexcept {
    return _mm512_and_si512(a, b);
  }
  [[gnu::always_inline]] static inline Ints differing(Ints a, Ints b) noexcept {
    return _mm512_xor_si512(a, b);
  }
  [[gnu::always_inline]] static inline Ints differing(Ints a, Ints b, Ints c) noexcept {
    return _mm512_ternarylogic_epi32(a, b, c, 0x96);
  }
  [[gnu::always_inline]] static inline Ints choose(Ints mask, Ints a, Ints b) noexcept {
    return avx512::choose(mask, a, b);
  }
  template <int kBits>
  [[gnu::always_inline]] static inline Ints up(Ints a) noexcept {
    return _mm512_slli_epi16(a, kBits);
  }
  template <int kBits>
  [[gnu::always_inline]] static inline Ints down(Ints a) noexcept {
    return _mm512_srli_epi16(a, kBits);
  }
  [[gnu::always_inline]] static inline Ints add16(Ints a, Ints b) noexcept {
    return _mm512_add_epi16(a, b);
  }
  [[gnu::always_inline]] static inline Ints repeat(__m128i a) noexcept {
    return _mm512_broadcast_i32x4(a);
  }
  [[gnu::always_inline]] static inline Ints look_up(Ints table, Ints index) noexcept {
    return _mm512_shuffle_epi8(table, index);
  }
};
using Trellis = TrellisPairs<Lanes>;
#endif

// Calls take(four, shift, codes) for every four of a block, `lines` its first code line and
// `beside` what BlockReader has beside its lines; the bytes of `codes` are the codes times 2^shift.
template <QuantType kType, std::uint32_t kBlock, typename Beside, typename Take>
[[gnu::always_inline]] static inline void for_shifted_fours(const std::byte* lines,
                                                            [[maybe_unused]] Beside&& beside,
                                                            Take&& take) noexcept {
  if constexpr (is_trellis_type(kType)) {
    beside.template next<kType, kBlock>(
        lines, [&](unsigned four, __m512i values)
                   __attribute__((always_inline)) { take(four, 0, values); });
  } else if constexpr (kType == QuantType::kQ3Codebook) {
    const __m512i levels = LevelCodebook<kType>::load();
    for_half_fours(
        lines, beside, [&](unsigned four, __m512i codes) __attribute__((always_inline)) {
          take(four, 0, _mm512_shuffle_epi8(levels, codes));
        });
  } else if constexpr (kType == QuantType::kQ4Codebook || kType == QuantType::kMxfp4) {
    const __m512i levels = LevelCodebook<kType>::load();
#pragma GCC unroll 4
    for (unsigned line = 0; line < kBlock / 8; ++line) {
      const __m512i codes = load_line(lines + line * kLineBytes);
      const __m512i high = _mm512_and_si512(_mm512_srli_epi32(codes, 4), bytes_of(15));
      take(2 * line, 0, _mm512_shuffle_epi8(levels, _mm512_and_si512(codes, bytes_of(15))));
      take(2 * line + 1, 0, _mm512_shuffle_epi8(levels, high));
    }
  } else if constexpr (kType == QuantType::kQ3K) {
    for_half_fours(
        lines, beside, [&](unsigned four, __m512i codes) __attribute__((always_inline)) {
          take(four, 0, codes);
        });
  } else if constexpr (kIsWide<kType>) {
    for_wide_fours<code_bits(kType) - 4, kBlock>(
        lines, [&](unsigned four, __m512i codes)
                   __attribute__((always_inline)) { take(four, 0, codes); });
  } else if constexpr (kType == QuantType::kQ8) {
#pragma GCC unroll 16
    for (unsigned four = 0; four < kBlock / 4; ++four) {
      take(four, 0,
           _mm512_xor_si512(load_line(lines + four * kLineBytes), bytes_of(kSignedOffset<kType>)));
    }
  } else if constexpr (code_bits(kType) == 3) {
    constexpr unsigned kHighLines = kBlock / 16;
    const __m512i* low_lines = reinterpret_cast<const __m512i*>(lines) + kHighLines;
#pragma GCC unroll 4
    for (unsigned line = 0; line < kHighLines; ++line) {
      const __m512i high = load_line(lines + line * kLineBytes);
      __m512i low = _mm512_load_si512(low_lines + line / 2);
      // Fields 4 to 7 of the plane lie four bits up.
      if (line % 2 == 1) low = _mm512_srli_epi32(low, 4);
      take(4 * line, kThreeBitShift[0], three_bit_field<0>(high, low));
      take(4 * line + 1, kThreeBitShift[1], three_bit_field<1>(high, low));
      take(4 * line + 2, kThreeBitShift[2], three_bit_field<2>(high, low));
      take(4 * line + 3, kThreeBitShift[3], three_bit_field<3>(high, low));
    }
  } else if constexpr (kType == QuantType::kQk256 || kType == QuantType::kQ2Codebook) {
    // Half a byte is two codes, and a table of 16 bytes has the level of either.
    const __m512i first = LevelCodebook<kType>::load();
    const __m512i second = LevelCodebook<kType, true>::load();
#pragma GCC unroll 4
    for (unsigned line = 0; line < kBlock / 16; ++line) {
      const __m512i codes = load_line(lines + line * kLineBytes);
      const __m512i low = _mm512_and_si512(codes, bytes_of(15));
      const __m512i high = _mm512_and_si512(_mm512_srli_epi32(codes, 4), bytes_of(15));
      take(4 * line, 0, _mm512_shuffle_epi8(first, low));
      take(4 * line + 1, 0, _mm512_shuffle_epi8(second, low));
      take(4 * line + 2, 0, _mm512_shuffle_epi8(first, high));
      take(4 * line + 3, 0, _mm512_shuffle_epi8(second, high));
    }
  } else {
    constexpr unsigned kBits = code_bits(kType);
    constexpr unsigned kFields = 8 / kBits;
#pragma GCC unroll 8
    for (unsigned line = 0; line < kBlock / 4 / kFields; ++line) {
      const __m512i codes = load_line(lines + line * kLineBytes);
#pragma GCC unroll 4
      for (unsigned field = 0; field < kFields; ++field) {
        const int shift = static_cast<int>(field * kBits);
        const __m512i mask = bytes_of(((1 << kBits) - 1) << shift);
        take(kFields * line + field, shift, _mm512_and_si512(codes, mask));
      }
    }
  }
}

// Calls take(four, codes) for every four of a block: bytes are codes, signed ones plus
// kSignedOffset, those of qk256 as 0, 1, 3 and 4 and those of tables as levels.
template <QuantType kType, std::uint32_t kBlock, typename Beside, typename Take>
[[gnu::always_inline]] static inline void for_fours(const std::byte* lines, Beside&& beside,
                                                    Take&& take) noexcept {
  // Codes alone are left of the line, so what a shift brings over from the next byte is zero.
  for_shifted_fours<kType, kBlock>(
      lines, beside, [&](unsigned four, int shift, __m512i codes) __attribute__((always_inline)) {
        take(four, shift == 0 ? codes : _mm512_srli_epi32(codes, static_cast<unsigned>(shift)));
      });
}

// Decodes the fours of a block.
template <QuantType kType, std::uint32_t kBlock, typename Beside>
[[gnu::always_inline]] static inline void decode_fours(const std::byte* lines, Beside&& beside,
                                                       __m512i* fours) noexcept {
  for_fours<kType, kBlock>(
      lines, beside, [&](unsigned four, __m512i codes) __attribute__((always_inline)) {
        fours[four] = codes;
      });
}

// What one block of 16 rows has: w = scale * code + min.
struct BlockScales {
  __m512 scale;
  __m512 min;  // without meaning for 8-bit
};

// Indices of shuffles: kToTop[k] brings byte k of every word to its top, kToBottom[k] to its
// bottom, and makes zeros of the other bytes.
alignas(16) static constexpr std::uint32_t kToTop[4][4] = {
    {0x00808080, 0x04808080, 0x08808080, 0x0C808080},
    {0x01808080, 0x05808080, 0x09808080, 0x0D808080},
    {0x02808080, 0x06808080, 0x0A808080, 0x0E808080},
    {0x03808080, 0x07808080, 0x0B808080, 0x0F808080}};
alignas(16) static constexpr std::uint32_t kToBottom[4][4] = {
    {0x80808000, 0x80808004, 0x80808008, 0x8080800C},
    {0x80808001, 0x80808005, 0x80808009, 0x8080800D},
    {0x80808002, 0x80808006, 0x8080800A, 0x8080800E},
    {0x80808003, 0x80808007, 0x8080800B, 0x8080800F}};

// The lower half of every word at its top, the lower half twice and the upper half twice.
alignas(16) static constexpr std::uint32_t kToUpperHalf[4] = {0x01008080, 0x05048080, 0x09088080,
                                                              0x0D0C8080};
alignas(16) static constexpr std::uint32_t kLowerHalfTwice[4] = {0x01000100, 0x05040504, 0x09080908,
                                                                 0x0D0C0D0C};
alignas(16) static constexpr std::uint32_t kUpperHalfTwice[4] = {0x03020302, 0x07060706, 0x0B0A0B0A,
                                                                 0x0F0E0F0E};

[[gnu::always_inline]] static inline __m512i indices_of(const std::uint32_t of_four[4]) noexcept {
  return _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(of_four)));
}
[[gnu::always_inline]] static inline __m512i shuffle(__m512i words,
                                                     const std::uint32_t of_four[4]) noexcept {
  return _mm512_shuffle_epi8(words, indices_of(of_four));
}

// Walks the blocks of one group in order. Panels start at columns that are a multiple of
// kPanelAlign, two super-blocks.
static constexpr std::uint32_t kPanelAlign = 2 * kSuperColumns;

template <QuantType kType, std::uint32_t kBlock>
class BlockReader {
 public:
  [[gnu::always_inline]] BlockReader(const std::byte* group, std::uint32_t column) noexcept
      : group_(group), at_(group + kHeadBytes + column / kPanelAlign * kPanelBytes) {
    if constexpr (is_trellis_type(kType)) {
      if (column == 0) {
        beside_.begin();
      } else {
        beside_.begin_after(lines_before(at_, lines_back_of<kType>(1)));
      }
    }
  }

  // Reads the scales of the next block; returns its code lines and moves past them.
  [[gnu::always_inline]] const std::byte* next(BlockScales* scales) noexcept {
    if constexpr (kForm == ScaleForm::kSuperBlock) {
      read_super(scales);
    } else if constexpr (is_codebook_type(kType)) {
      read_table(scales);
    } else if constexpr (is_super_type(kType)) {
      read_bytes(scales);
    } else if constexpr (kForm == ScaleForm::kBlockMin) {
      *scales = {load_halves(at_), load_halves(at_ + 2 * kRowGroup)};
      at_ += kLineBytes;
    } else if constexpr (kForm == ScaleForm::kBlock) {
      if (index_ == 0) {
        pair_line_ = at_;
        at_ += kLineBytes;
      }
      scales->scale = load_halves(pair_line_ + index_ * (2 * kRowGroup));
      index_ ^= 1;
      scales->min = _mm512_mul_ps(scales->scale, _mm512_set1_ps(kZeroPoint<kType>));
    } else if constexpr (kForm == ScaleForm::kExponent) {
      read_power(scales);
    } else if constexpr (kForm == ScaleForm::kRowNibble) {
      read_nibble(scales);
    } else if constexpr (kForm == ScaleForm::kRow) {
      scales->scale = row_scales();
      scales->min = _mm512_sub_ps(_mm512_setzero_ps(), scales->scale);
    } else {
      *scales = {_mm512_set1_ps(1.0F), _mm512_set1_ps(-2.0F)};
    }
    const std::byte* lines = at_;
    if constexpr (shares_lines(kType)) {  // a pair of blocks has its lines together
      if (beside_ == 1) at_ += 2 * Lines<kType, kBlock>::kBytes;
    } else {
      at_ += Lines<kType, kBlock>::kBytes;
    }
    return lines;
  }

  // What for_fours() needs beside the lines of that block: its half of a line that it shares, or of
  // a trellis type the symbols before it, which move on with it.
  using Beside = std::conditional_t<is_trellis_type(kType), Trellis, unsigned>;
  [[gnu::always_inline]] Beside& beside() noexcept { return beside_; }

  // Requires  has_row_scale(kType)
  [[gnu::always_inline]] __m512 row_scales() const noexcept {
    return _mm512_load_ps(reinterpret_cast<const float*>(group_));
  }

 private:
  static constexpr ScaleForm kForm = scale_form(kType);
  static constexpr std::uint32_t kHeadBytes = has_row_scale(kType) ? kLineBytes : 0;
  static constexpr std::uint32_t kBlocks = kPanelAlign / kBlock;
  static constexpr std::uint32_t kSubBlocks = kSuperColumns / kBlock;
  // Lines of scales of kPanelAlign columns.
  static constexpr std::uint32_t kPanelFieldLines = kForm == ScaleForm::kBlockMin      ? kBlocks
                                                    : kForm == ScaleForm::kBlock       ? kBlocks / 2
                                                    : kForm == ScaleForm::kExponent    ? kBlocks / 4
                                                    : kForm == ScaleForm::kRowNibble   ? 1
                                                    : kForm == ScaleForm::kSuperNibble ? 10
                                                    : kForm == ScaleForm::kSuperSigned ? 9
                                                    : kForm == ScaleForm::kSuperCodebook
                                                        ? (kBlock == 16 ? 5 : 4)
                                                    : kForm != ScaleForm::kSuperBlock ? 0
                                                    : kBlock == 64                    ? 5
                                                                                      : 8;
  static constexpr std::uint32_t kPanelBytes =
      kBlocks * Lines<kType, kBlock>::kBytes + kPanelFieldLines * kLineBytes;

  // The fields of a super-block are loaded with its first sub-block, and moved down by one
  // sub-block's bits after each.
  [[gnu::always_inline]] void read_super(BlockScales* scales) noexcept {
    if (index_ == 0) {
      if constexpr (kBlock == 64) {
        if (!second_) {
          pair_line_ = at_;
          at_ += kLineBytes;
        }
        const std::byte* high = pair_line_ + (second_ ? 2 * kRowGroup : 0);
        high_ = _mm512_cvtepu16_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(high)));
        second_ = !second_;
      }
      d_ = load_halves(at_);
      dmin_ = load_halves(at_ + 2 * kRowGroup);
      low_ = load_line(at_ + kLineBytes);
      at_ += 2 * kLineBytes;
      if constexpr (kBlock == 32) {
        second_low_ = load_line(at_);
        high_ = load_line(at_ + kLineBytes);
        at_ += 2 * kLineBytes;
      }
    }
    if constexpr (kBlock == 32) {
      if (index_ == 4) low_ = second_low_;
    }
    const __m512i nibble = _mm512_set1_epi32(15);
    const __m512i upper = _mm512_set1_epi32(48);
    const __m512i scale = merge(_mm512_slli_epi32(high_, 4), upper, _mm512_and_si512(low_, nibble));
    const __m512i min = merge(_mm512_slli_epi32(high_, 2), upper,
                              _mm512_and_si512(_mm512_srli_epi32(low_, 4), nibble));
    scales->scale = _mm512_mul_ps(d_, _mm512_cvtepi32_ps(scale));
    scales->min = _mm512_mul_ps(dmin_, _mm512_cvtepi32_ps(min));
    low_ = _mm512_srli_epi32(low_, 8);
    high_ = _mm512_srli_epi32(high_, 4);
    index_ = (index_ + 1) % kSubBlocks;
  }

  // Four blocks of mxfp4 have a line of exponents, moved down by a byte after each.
  [[gnu::always_inline]] void read_power(BlockScales* scales) noexcept {
    if (index_ == 0) {
      low_ = load_line(at_);
      at_ += kLineBytes;
    }
    const __m512i bits =
        _mm512_and_si512(_mm512_slli_epi32(low_, 23), _mm512_set1_epi32(0x7F800000));
    const __m512i at_least =
        _mm512_max_epi32(bits, _mm512_set1_epi32(static_cast<int>(kTwiceLeastScale)));
    scales->scale = _mm512_mul_ps(_mm512_castsi512_ps(at_least), _mm512_set1_ps(0.5F));
    scales->min = _mm512_mul_ps(scales->scale, _mm512_set1_ps(kZeroPoint<kType>));
    low_ = _mm512_srli_epi32(low_, 8);
    index_ = (index_ + 1) % 4;
  }

  // Eight trellis blocks have a line of 4-bit scales, moved down by one after each.
  [[gnu::always_inline]] void read_nibble(BlockScales* scales) noexcept {
    if (index_ == 0) {
      low_ = load_line(at_);
      at_ += kLineBytes;
    }
    scales->scale = _mm512_cvtepi32_ps(_mm512_and_si512(low_, _mm512_set1_epi32(15)));
    scales->min = _mm512_mul_ps(scales->scale, _mm512_set1_ps(kZeroPoint<kType>));
    low_ = _mm512_srli_epi32(low_, 4);
    index_ = (index_ + 1) % kNibbleBlocks;
  }

  // The same for sub-blocks with one byte of fields.
  [[gnu::always_inline]] void read_bytes(BlockScales* scales) noexcept {
    if (index_ == 0) {
      if constexpr (kForm == ScaleForm::kSuperSigned) {
        if (!second_) {
          pair_line_ = at_;
          at_ += kLineBytes;
        }
        // Scales are taken at the top of their words, 2^24 times as large; d is that much smaller.
        d_ = _mm512_mul_ps(load_halves(pair_line_ + (second_ ? 2 * kRowGroup : 0)),
                           _mm512_set1_ps(0x1p-24F));
        second_ = !second_;
      } else {
        d_ = load_halves(at_);
        dmin_ = load_halves(at_ + 2 * kRowGroup);
        at_ += kLineBytes;
      }
      // All at once: what reads a memory in order is read ahead.
#pragma GCC unroll 4
      for (unsigned line = 0; line < 4; ++line)
        byte_lines_[line] = load_line(at_ + line * kLineBytes);
      at_ += 4 * kLineBytes;
    }
    if constexpr (kForm == ScaleForm::kSuperSigned) {
      if (index_ % 4 == 0) low_ = byte_lines_[index_ / 4];
      scales->scale = _mm512_mul_ps(d_, _mm512_cvtepi32_ps(shuffle(low_, kToTop[index_ % 4])));
    } else {
      if (index_ % 4 == 0) {
        const __m512i bytes = byte_lines_[index_ / 4];
        low_ = _mm512_and_si512(bytes, bytes_of(15));
        high_ = _mm512_and_si512(_mm512_srli_epi32(bytes, 4), bytes_of(15));
      }
      scales->scale = _mm512_mul_ps(d_, _mm512_cvtepi32_ps(shuffle(low_, kToBottom[index_ % 4])));
      scales->min = _mm512_mul_ps(dmin_, _mm512_cvtepi32_ps(shuffle(high_, kToBottom[index_ % 4])));
    }
    if constexpr (kType == QuantType::kQ3K) beside_ = index_ % 2;
    index_ = (index_ + 1) % kSubBlocks;
  }

  // The same for tables, whose scales are brought to the top of their words.
  [[gnu::always_inline]] void read_table(BlockScales* scales) noexcept {
    if (index_ == 0) {
      if constexpr (kBlock == 16) {
        if (!second_) {
          pair_line_ = at_;
          at_ += kLineBytes;
        }
        d_ = load_halves(pair_line_ + (second_ ? 2 * kRowGroup : 0));
        second_ = !second_;
        low_ = load_line(at_);
        second_low_ = load_line(at_ + kLineBytes);
        at_ += 2 * kLineBytes;
      } else {
        d_ = load_halves(at_);
        high_ = _mm512_cvtepu16_epi32(
            _mm256_load_si256(reinterpret_cast<const __m256i*>(at_ + 2 * kRowGroup)));
        low_ = load_line(at_ + kLineBytes);
        at_ += 2 * kLineBytes;
      }
      d_ = _mm512_mul_ps(d_, _mm512_set1_ps(kBlock == 16 ? 0x1p-28F : 0x1p-26F));
    }
    __m512i top;
    if constexpr (kBlock == 16) {
      if (index_ == 8) low_ = second_low_;
      const std::uint32_t up = 28 - index_ % 4 * 8 - index_ / 4 % 2 * 4;
      top = _mm512_and_si512(up_by(low_, up), _mm512_set1_epi32(static_cast<int>(0xF0000000U)));
      beside_ = index_ % 2;
    } else {
      const std::uint32_t x_block = index_ / 2;
      const std::uint32_t half = index_ % 2;
      const __m512i lower = up_by(down_by(low_, 4 * x_block + 16 * half), 28);
      const __m512i upper = up_by(down_by(high_, 2 * x_block + 8 * half), 30);
      top = _mm512_or_si512(upper, _mm512_srli_epi32(lower, 2));
    }
    scales->scale = _mm512_mul_ps(d_, _mm512_cvtepi32_ps(top));
    index_ = (index_ + 1) % kSubBlocks;
  }

  // Shifts of words by a number that loops know.
  [[gnu::always_inline]] static __m512i up_by(__m512i a, std::uint32_t bits) noexcept {
    return _mm512_sllv_epi32(a, _mm512_set1_epi32(static_cast<int>(bits)));
  }
  [[gnu::always_inline]] static __m512i down_by(__m512i a, std::uint32_t bits) noexcept {
    return _mm512_srlv_epi32(a, _mm512_set1_epi32(static_cast<int>(bits)));
  }

  const std::byte* group_;
  const std::byte* at_;
  const std::byte* pair_line_ = nullptr;  // scales of a pair of blocks, H of a pair of super-blocks
  std::uint32_t index_ = 0;               // of the next block in its pair or super-block
  bool second_ = false;                   // the next super-block is the second of its pair
  __m512 d_ = {};
  __m512 dmin_ = {};
  __m512i low_ = {};
  __m512i second_low_ = {};
  __m512i high_ = {};
  __m512i byte_lines_[4] = {};  // of a super-block with one byte a sub-block
  Beside beside_ = {};
};

// Stores sums of 16 rows, or of those that exist.
[[gnu::always_inline]] static inline void store_rows(float* y, __m512 sums,
                                                     std::uint32_t n_rows) noexcept {
  if (n_rows >= kRowGroup) {
    _mm512_storeu_ps(y, sums);
  } else {
    _mm512_mask_storeu_ps(y, static_cast<__mmask16>((1U << n_rows) - 1U), sums);
  }
}

// Loads what store_rows stored.
[[gnu::always_inline]] static inline __m512 load_rows(const float* y,
                                                      std::uint32_t n_rows) noexcept {
  if (n_rows >= kRowGroup) return _mm512_loadu_ps(y);
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << n_rows) - 1U), y);
}

// Asks for kBytes from `at` on, a line at a time, into L1.
template <std::uint32_t kBytes>
[[gnu::always_inline]] static inline void prefetch_lines(const std::byte* at) noexcept {
#pragma GCC unroll 32
  for (std::uint32_t i = 0; i < kBytes; i += kLineBytes) {
    _mm_prefetch(reinterpret_cast<const char*>(at + i), _MM_HINT_T0);
  }
}

}  // namespace qsf::kernels::avx512

#endif  // QSF_KERNELS_MATMUL_CODED_AVX512_H_
