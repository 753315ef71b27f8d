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

#include "quant/types.h"

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
// Widens the 16 halves at `halves`.
[[gnu::always_inline]] static inline __m512 load_halves(const std::byte* halves) noexcept {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(halves)));
}

// What is added to the stored bytes of 8-bit codes to make them unsigned.
static constexpr int kQ8Offset = 128;

// The code lines of one block.
template <QuantType kType, std::uint32_t kBlock>
struct Lines {
  static constexpr std::uint32_t kFours = kBlock / 4;
  static constexpr std::uint32_t kBytes = kBlock * code_bits(kType) / 8 * kRowGroup;
  // Largest value of a byte of a four.
  static constexpr int kLargest = kType == QuantType::kQ8 ? 255 : (1 << code_bits(kType)) - 1;
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

// Calls take(four, shift, codes) for every four of a block, `lines` its first code line; the bytes
// of `codes` are the codes times 2^shift.
template <QuantType kType, std::uint32_t kBlock, typename Take>
[[gnu::always_inline]] static inline void for_shifted_fours(const std::byte* lines,
                                                            Take&& take) noexcept {
  if constexpr (kType == QuantType::kQ8) {
#pragma GCC unroll 16
    for (unsigned four = 0; four < kBlock / 4; ++four) {
      take(four, 0, _mm512_xor_si512(load_line(lines + four * kLineBytes), bytes_of(kQ8Offset)));
    }
  } else if constexpr (kType == QuantType::kQ3) {
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

// Decodes the fours of a block: bytes are the codes, 8-bit ones plus kQ8Offset.
template <QuantType kType, std::uint32_t kBlock>
[[gnu::always_inline]] static inline void decode_fours(const std::byte* lines,
                                                       __m512i* fours) noexcept {
  // Bits that a shift of 32-bit lanes brings over from the next byte are masked off before.
  for_shifted_fours<kType, kBlock>(
      lines, [&](unsigned four, int shift, __m512i codes) __attribute__((always_inline)) {
        fours[four] = shift == 0 ? codes : _mm512_srli_epi32(codes, static_cast<unsigned>(shift));
      });
}

// Scale and min of one block for 16 rows.
struct BlockScales {
  __m512 scale;
  __m512 min;  // without meaning for 8-bit
};

// Walks the blocks of one group in order, from the block of a column on that is a multiple of
// kPanelAlign.
static constexpr std::uint32_t kPanelAlign = 128;

template <QuantType kType, std::uint32_t kBlock>
class BlockReader {
 public:
  [[gnu::always_inline]] BlockReader(const std::byte* group, std::uint32_t column) noexcept
      : at_(group + std::size_t{column} / kPanelAlign * kPanelBytes) {}

  // Reads the scales of the next block; returns its code lines and moves past them.
  [[gnu::always_inline]] const std::byte* next(BlockScales* scales) noexcept {
    if constexpr (has_min(kType)) {
      scales->scale = load_halves(at_);
      scales->min = load_halves(at_ + 2 * kRowGroup);
      at_ += kLineBytes;
    } else {
      if (!second_) {
        scale_line_ = at_;
        at_ += kLineBytes;
      }
      scales->scale = load_halves(scale_line_ + (second_ ? 2 * kRowGroup : 0));
      second_ = !second_;
      if constexpr (kType != QuantType::kQ8) {
        constexpr float kZeroPoint = kType == QuantType::kQ2S ? -1.5F : -1.0F;
        scales->min = _mm512_mul_ps(scales->scale, _mm512_set1_ps(kZeroPoint));
      }
    }
    const std::byte* lines = at_;
    at_ += Lines<kType, kBlock>::kBytes;
    return lines;
  }

 private:
  static constexpr std::uint32_t kPanelBytes =
      kPanelAlign / kBlock * (Lines<kType, kBlock>::kBytes + kLineBytes / (has_min(kType) ? 1 : 2));

  const std::byte* at_;
  const std::byte* scale_line_ = nullptr;
  bool second_ = false;  // the next block is the second of its pair
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
