// SPDX-License-Identifier: MIT
//
// Dot products of AVX-512 with VNNI, for the loops of matmul_i8_avx512.h and whole_scales_avx512.h:
// one instruction multiplies four columns of 16 rows with four bytes of x and adds the products up
// in 32 bits, where nothing can overflow. Internal linkage.

#ifndef QSF_KERNELS_MATMUL_DOT_AVX512VNNI_H_
#define QSF_KERNELS_MATMUL_DOT_AVX512VNNI_H_

#include <cstring>

#include "kernels/matmul/whole_scales_avx512.h"

namespace qsf::kernels::avx512 {

[[gnu::always_inline]] static inline __m512i dot_four(__m512i sums, __m512i four,
                                                      const std::byte* q) noexcept {
  std::int32_t columns;
  std::memcpy(&columns, q, sizeof(columns));
  return _mm512_dpbusd_epi32(sums, four, _mm512_set1_epi32(columns));
}

// Sums over the columns of a sub-block of q2_k. Of the four fields of its line only two are shifted
// down: the others are summed four times too large, first, and the sum goes on from there.
[[gnu::always_inline]] static inline __m512i dot_two_bits(const std::byte* line,
                                                          const std::byte* q) noexcept {
  const __m512i even = bytes_of(0x03);
  const __m512i odd = bytes_of(0x0C);
  const __m512i raw = load_line(line);
  const __m512i raw4 = _mm512_srli_epi32(raw, 4);
  __m512i sum = dot_four(_mm512_setzero_si512(), _mm512_and_si512(raw, odd), q + 4);
  sum = _mm512_srai_epi32(dot_four(sum, _mm512_and_si512(raw4, odd), q + 12), 2);
  sum = dot_four(sum, _mm512_and_si512(raw, even), q);
  return dot_four(sum, _mm512_and_si512(raw4, even), q + 8);
}

// Calls take(four, codes) for the fours of a pair of sub-blocks that shares its line of low bits.
// Bits 0-2 of every byte are a code of the first and bits 4-6 one of the second, so that one step
// joins the bits of both; the others are left as they come.
template <typename Take>
[[gnu::always_inline]] static inline void for_pair_fours(const std::byte* lines,
                                                         Take&& take) noexcept {
  const __m512i lower_half = bytes_of(0x0F);
  const __m512i upper_bits = bytes_of(0x66);
  const __m512i first = load_line(lines);
  const __m512i second = load_line(lines + kLineBytes);
  const __m512i low = load_line(lines + 2 * kLineBytes);
  const __m512i high[2] = {choose(lower_half, first, _mm512_slli_epi32(second, 4)),
                           choose(lower_half, _mm512_srli_epi32(first, 4), second)};
#pragma GCC unroll 4
  for (unsigned four = 0; four < 4; ++four) {
    take(four,
         choose(upper_bits, move_bits(high[four / 2], four % 2 * 2, 1), move_bits(low, four, 0)));
  }
}

// The same as dot_two_bits() for a pair of sub-blocks of q3_k.
[[gnu::always_inline]] static inline void dot_three_bits(const std::byte* lines, const std::byte* q,
                                                         __m512i dots[2]) noexcept {
  __m512i sums[2] = {};
  for_pair_fours(
      lines, [&](unsigned four, __m512i codes) __attribute__((always_inline)) {
        sums[0] = dot_four(sums[0], _mm512_and_si512(codes, bytes_of(0x07)), q + 4 * four);
        sums[1] = dot_four(sums[1], _mm512_and_si512(codes, bytes_of(0x70)), q + 16 + 4 * four);
      });
  dots[0] = sums[0];
  dots[1] = _mm512_srai_epi32(sums[1], 4);
}

// The same for a pair of sub-blocks of 3-bit table.
[[gnu::always_inline]] static inline void dot_three_bit_levels(const std::byte* lines,
                                                               const std::byte* q,
                                                               __m512i dots[2]) noexcept {
  const __m512i levels = LevelCodebook<QuantType::kQ3Codebook>::load();
  const __m512i code = bytes_of(0x07);
  dots[0] = dots[1] = _mm512_setzero_si512();
  for_pair_fours(
      lines, [&](unsigned four, __m512i codes) __attribute__((always_inline)) {
        const __m512i first = _mm512_shuffle_epi8(levels, _mm512_and_si512(codes, code));
        const __m512i upper = _mm512_and_si512(_mm512_srli_epi32(codes, 4), code);
        dots[0] = dot_four(dots[0], first, q + 4 * four);
        dots[1] = dot_four(dots[1], _mm512_shuffle_epi8(levels, upper), q + 16 + 4 * four);
      });
}

// Adds two dots that fit 16 bits, each times its half of `scales`.
[[gnu::always_inline]] static inline __m512i add_scaled(__m512i sums, __m512i low, __m512i high,
                                                        __m512i scales) noexcept {
  const __m512i to_upper = indices_of(kToUpperHalf);
  const __m512i both = _mm512_mask_shuffle_epi8(low, 0xCCCCCCCCCCCCCCCC, high, to_upper);
  return _mm512_dpwssd_epi32(sums, both, scales);
}

struct VnniDot {
  static constexpr bool kAddsLines = true;

  [[gnu::always_inline]] static inline void add_lines(const std::byte* lines, const std::byte* q,
                                                      __m512i sums[4]) noexcept {
    for_shifted_fours<QuantType::kTernaryRow, kActivationBlockColumns>(
        lines, 0, [&](unsigned four, int, __m512i codes) __attribute__((always_inline)) {
          sums[four % 4] = dot_four(sums[four % 4], codes, q + 4 * four);
        });
  }

  // Codes stay shifted where they stand in their line: sums of one shift are kept together and
  // shifted back, exactly, when the block is done.
  template <QuantType kType, std::uint32_t kBlock, typename Beside>
  [[gnu::always_inline]] static inline __m512i lines(const std::byte* lines, Beside&& beside,
                                                     const std::byte* q) noexcept {
    __m512i sums[4] = {};
    int shifts[4] = {};
    for_shifted_fours<kType, kBlock>(
        lines, beside, [&](unsigned four, int shift, __m512i codes) __attribute__((always_inline)) {
          // Fours of one index have one shift; 4-bit ones have two sums for each of their shifts.
          sums[four % 4] = dot_four(sums[four % 4], codes, q + 4 * four);
          shifts[four % 4] = shift;
        });
#pragma GCC unroll 4
    for (unsigned i = 1; i < 4; ++i) {
      if (shifts[i] != 0) sums[i] = _mm512_srai_epi32(sums[i], static_cast<unsigned>(shifts[i]));
    }
    return _mm512_add_epi32(_mm512_add_epi32(sums[0], sums[1]), _mm512_add_epi32(sums[2], sums[3]));
  }

  template <int kLargest, unsigned kFours, unsigned kRows>
  [[gnu::always_inline]] static inline void rows(const __m512i* fours, const std::byte* q,
                                                 std::size_t stride, __m512i* dots) noexcept {
    // Fewer than four rows have more sums each, so that none waits for the one before.
    constexpr unsigned kSums = 4 / kRows;
    __m512i sums[kRows][kSums] = {};
#pragma GCC unroll 16
    for (unsigned four = 0; four < kFours; ++four) {
#pragma GCC unroll 4
      for (unsigned i = 0; i < kRows; ++i) {
        __m512i& sum = sums[i][four % kSums];
        sum = dot_four(sum, fours[four], q + i * stride + 4 * four);
      }
    }
#pragma GCC unroll 4
    for (unsigned i = 0; i < kRows; ++i) {
      dots[i] = sums[i][0];
#pragma GCC unroll 4
      for (unsigned k = 1; k < kSums; ++k) dots[i] = _mm512_add_epi32(dots[i], sums[i][k]);
    }
  }

  [[gnu::always_inline]] static inline __m512i words(__m512i sums, __m512i a, __m512i b) noexcept {
    return _mm512_dpwssd_epi32(sums, a, b);
  }

  template <QuantType kType>
  [[gnu::always_inline]] static inline __m512i block64(const std::byte* lines, const std::byte* q,
                                                       const QuarterPairs& scales,
                                                       __m512i sums) noexcept {
    __m512i dots[4];
    if constexpr (kType == QuantType::kQ2K) {
#pragma GCC unroll 4
      for (unsigned k = 0; k < 4; ++k) dots[k] = dot_two_bits(lines + k * kLineBytes, q + 16 * k);
    } else if constexpr (kType == QuantType::kQ3K) {
      dot_three_bits(lines, q, dots);
      dot_three_bits(lines + 3 * kLineBytes, q + 32, dots + 2);
    } else if constexpr (kType == QuantType::kQ3Codebook) {
      dot_three_bit_levels(lines, q, dots);
      dot_three_bit_levels(lines + 3 * kLineBytes, q + 32, dots + 2);
    } else {
#pragma GCC unroll 4
      for (unsigned k = 0; k < 4; ++k) {
        dots[k] = _mm512_setzero_si512();
        for_fours<kType, 16>(
            lines + quarter_offset<kType>(k),
            0, [&](unsigned four, __m512i codes) __attribute__((always_inline)) {
              dots[k] = dot_four(dots[k], codes, q + 16 * k + 4 * four);
            });
      }
    }
    return add_quarters<Lines<kType, 16>::kLargest>(dots, scales, sums);
  }

  template <int kLargest, unsigned kRows>
  [[gnu::always_inline]] static inline void block64_rows(const __m512i* fours, const std::byte* q,
                                                         std::size_t stride,
                                                         const QuarterPairs& scales,
                                                         __m512i* sums) noexcept {
    // Sub-blocks are finished one or two at a time, so that few sums are in registers at once.
    constexpr unsigned kApart = kFitsWords<kLargest> ? 2 : 4;
#pragma GCC unroll 4
    for (unsigned first = 0; first < kApart; ++first) {
      __m512i dots[kRows][2] = {};
#pragma GCC unroll 2
      for (unsigned k = first; k < 4; k += kApart) {
#pragma GCC unroll 4
        for (unsigned four = 4 * k; four < 4 * k + 4; ++four) {
#pragma GCC unroll 4
          for (unsigned i = 0; i < kRows; ++i) {
            __m512i& dot = dots[i][k / kApart];
            dot = dot_four(dot, fours[four], q + i * stride + 4 * four);
          }
        }
      }
#pragma GCC unroll 4
      for (unsigned i = 0; i < kRows; ++i) {
        if constexpr (kFitsWords<kLargest>) {
          sums[i] = add_scaled(sums[i], dots[i][0], dots[i][1], scales.pair[first]);
        } else {
          sums[i] = add_product(sums[i], dots[i][0], scale_of(scales, first));
        }
      }
    }
  }

 private:
  // Whether the sum of a sub-block fits 16 bits.
  template <int kLargest>
  static constexpr bool kFitsWords = kLargest * 127 * 16 <= 32767;

  [[gnu::always_inline]] static inline __m512i add_product(__m512i sums, __m512i a,
                                                           __m512i b) noexcept {
    return _mm512_add_epi32(sums, _mm512_mullo_epi32(a, b));
  }

  // Adds the dots of the four sub-blocks of an activation block, times their scales.
  template <int kLargest>
  [[gnu::always_inline]] static inline __m512i add_quarters(const __m512i dots[4],
                                                            const QuarterPairs& scales,
                                                            __m512i sums) noexcept {
    if constexpr (kFitsWords<kLargest>) {
      sums = add_scaled(sums, dots[0], dots[2], scales.pair[0]);
      return add_scaled(sums, dots[1], dots[3], scales.pair[1]);
    }
#pragma GCC unroll 4
    for (unsigned k = 0; k < 4; ++k) {
      sums = add_product(sums, dots[k], scale_of(scales, k));
    }
    return sums;
  }
};

}  // namespace qsf::kernels::avx512

#endif  // QSF_KERNELS_MATMUL_DOT_AVX512VNNI_H_
