// SPDX-License-Identifier: MIT
//
// Products with int8 rows, AVX-512 without VNNI: bytes are multiplied and added in pairs to 16
// bits, as many pairs are summed there as cannot overflow, and these sums are widened to 32 bits.
//
// A pair of 8-bit codes would overflow at once: they are cut into halves of four bits, which are
// summed apart.

#include <cstring>

#include "kernels/matmul/matmul_variants.h"
#include "kernels/matmul/whole_scales_avx512.h"

namespace qsf::kernels {
namespace {

using namespace avx512;

constexpr int kLargestInt8 = 127;  // magnitude of a code of x

// Adds the products of a four with four bytes of x, two and two, to sums of 16 bits. The empty
// statement holds gcc to that order: it would keep all products, and add them up in pairs, for
// which registers do not suffice.
[[gnu::always_inline]] inline __m512i add_pairs(__m512i sums, __m512i four, __m512i q) noexcept {
  sums = _mm512_add_epi16(sums, _mm512_maddubs_epi16(four, q));
  asm("" : "+v"(sums));
  return sums;
}

[[gnu::always_inline]] inline __m512i columns_of(const std::byte* q) noexcept {
  std::int32_t columns;
  std::memcpy(&columns, q, sizeof(columns));
  return _mm512_set1_epi32(columns);
}

// Adds the two 16-bit sums of every row, times `factor`, to its 32-bit sum.
[[gnu::always_inline]] inline __m512i widen(__m512i dots, __m512i sums, int factor) noexcept {
  const __m512i factors = _mm512_set1_epi16(static_cast<short>(factor));
  return _mm512_add_epi32(dots, _mm512_madd_epi16(sums, factors));
}

struct PairDot {
  static constexpr bool kAddsLines = false;

  template <QuantType kType, std::uint32_t kBlock, typename Beside>
  [[gnu::always_inline]] static inline __m512i lines(const std::byte* lines, Beside&& beside,
                                                     const std::byte* q) noexcept {
    __m512i fours[kBlock / 4];
    decode_fours<kType, kBlock>(lines, beside, fours);
    __m512i dots;
    rows<Lines<kType, kBlock>::kLargest, kBlock / 4, 1>(fours, q, 0, &dots);
    return dots;
  }

  template <int kLargest, unsigned kFours, unsigned kRows>
  [[gnu::always_inline]] static inline void rows(const __m512i* fours, const std::byte* q,
                                                 std::size_t stride, __m512i* dots) noexcept {
    constexpr bool kHalves = kLargest > 63;
    // Fours whose pairs fit 16 bits, as a part of all.
    constexpr unsigned kFit = 32767 / (2 * kLargestInt8 * (kHalves ? 15 : kLargest));
    constexpr unsigned kPart = kFours <= kFit ? kFours : kFit >= 8 ? 8 : kFit >= 4 ? 4 : 2;
    static_assert(kPart <= kFit && kFours % kPart == 0);
    const __m512i low_half = bytes_of(15);
#pragma GCC unroll 4
    for (unsigned i = 0; i < kRows; ++i) dots[i] = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (unsigned first = 0; first < kFours; first += kPart) {
      __m512i low[kRows] = {};
      __m512i high[kRows] = {};
#pragma GCC unroll 16
      for (unsigned four = first; four < first + kPart; ++four) {
#pragma GCC unroll 4
        for (unsigned i = 0; i < kRows; ++i) {
          const __m512i columns = columns_of(q + i * stride + 4 * four);
          if constexpr (kHalves) {
            const __m512i upper = _mm512_srli_epi16(fours[four], 4);
            low[i] = add_pairs(low[i], _mm512_and_si512(fours[four], low_half), columns);
            high[i] = add_pairs(high[i], _mm512_and_si512(upper, low_half), columns);
          } else {
            low[i] = add_pairs(low[i], fours[four], columns);
          }
        }
      }
#pragma GCC unroll 4
      for (unsigned i = 0; i < kRows; ++i) {
        dots[i] = widen(dots[i], low[i], 1);
        if constexpr (kHalves) dots[i] = widen(dots[i], high[i], 16);
      }
    }
  }

  [[gnu::always_inline]] static inline __m512i words(__m512i sums, __m512i a, __m512i b) noexcept {
    return _mm512_add_epi32(sums, _mm512_madd_epi16(a, b));
  }

  template <QuantType kType>
  [[gnu::always_inline]] static inline __m512i block64(const std::byte* lines, const std::byte* q,
                                                       const QuarterPairs& scales,
                                                       __m512i sums) noexcept {
    __m512i fours[kActivationBlockColumns / 4];
    decode_block64<kType>(lines, fours);
    block64_rows<Lines<kType, 16>::kLargest, 1>(fours, q, 0, scales, &sums);
    return sums;
  }

  template <int kLargest, unsigned kRows>
  [[gnu::always_inline]] static inline void block64_rows(const __m512i* fours, const std::byte* q,
                                                         std::size_t stride,
                                                         const QuarterPairs& scales,
                                                         __m512i* sums) noexcept {
    // Pairs of bytes above 63 would overflow: their halves are summed apart.
    constexpr bool kHalves = kLargest > 63;
    // Fours of a sub-block whose pairs fit 16 bits.
    constexpr unsigned kPart = kHalves ? 4 : kLargest <= 32767 / (2 * kLargestInt8 * 4) ? 4 : 2;
#pragma GCC unroll 4
    for (unsigned k = 0; k < 4; ++k) {
      // Both halves of a row's word are sums of sub-block k: both take its scale.
      const __m512i factors =
          shuffle(scales.pair[k % 2], k < 2 ? kLowerHalfTwice : kUpperHalfTwice);
#pragma GCC unroll 2
      for (unsigned first = 4 * k; first < 4 * k + 4; first += kPart) {
        __m512i pairs[kRows] = {};
        __m512i high[kRows] = {};
#pragma GCC unroll 4
        for (unsigned four = first; four < first + kPart; ++four) {
#pragma GCC unroll 4
          for (unsigned i = 0; i < kRows; ++i) {
            const __m512i columns = columns_of(q + i * stride + 4 * four);
            if constexpr (kHalves) {
              const __m512i upper = _mm512_srli_epi16(fours[four], 4);
              pairs[i] = add_pairs(pairs[i], _mm512_and_si512(fours[four], bytes_of(15)), columns);
              high[i] = add_pairs(high[i], _mm512_and_si512(upper, bytes_of(15)), columns);
            } else {
              pairs[i] = add_pairs(pairs[i], fours[four], columns);
            }
          }
        }
#pragma GCC unroll 4
        for (unsigned i = 0; i < kRows; ++i) {
          sums[i] = words(sums[i], pairs[i], factors);
          if constexpr (kHalves) sums[i] = words(sums[i], high[i], _mm512_slli_epi16(factors, 4));
        }
      }
    }
  }
};

}  // namespace

#define QSF_DEFINE(name, type, block)                               \
  void matmul_##name##_i8_avx512(const MatMulArgs& args) noexcept { \
    coded<PairDot, QuantType::type, block>(args);                   \
  }
QSF_CODED_FORMATS(QSF_DEFINE)
QSF_ROW_FORMATS(QSF_DEFINE)
#undef QSF_DEFINE

#define QSF_DEFINE(name, type, block)                               \
  void matmul_##name##_i8_avx512(const MatMulArgs& args) noexcept { \
    super<PairDot, QuantType::type, block>(args);                   \
  }
QSF_SUPER_FORMATS(QSF_DEFINE)
#undef QSF_DEFINE

}  // namespace qsf::kernels
