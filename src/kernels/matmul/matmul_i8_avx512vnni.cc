// SPDX-License-Identifier: MIT
//
// Products with int8 rows, AVX-512 with VNNI: one instruction multiplies four columns of 16 rows
// with four bytes of x and adds the products up in 32 bits, where nothing can overflow.

#include <cstring>

#include "kernels/matmul/matmul_i8_avx512.h"
#include "kernels/matmul/matmul_variants.h"

namespace qsf::kernels {
namespace {

using namespace avx512;

[[gnu::always_inline]] inline __m512i dot_four(__m512i sums, __m512i four,
                                               const std::byte* q) noexcept {
  std::int32_t columns;
  std::memcpy(&columns, q, sizeof(columns));
  return _mm512_dpbusd_epi32(sums, four, _mm512_set1_epi32(columns));
}

struct VnniDot {
  // Codes stay shifted where they stand in their line: sums of one shift are kept together and
  // shifted back, exactly, when the block is done.
  template <QuantType kType, std::uint32_t kBlock>
  [[gnu::always_inline]] static inline __m512i lines(const std::byte* lines, unsigned half,
                                                     const std::byte* q) noexcept {
    if constexpr (kBlock == 16) {
      // So few that shifting codes costs less than shifting sums; blocks overlap each other.
      __m512i sum = _mm512_setzero_si512();
      for_fours<kType, kBlock>(
          lines, half, [&](unsigned four, __m512i codes) __attribute__((always_inline)) {
            sum = dot_four(sum, codes, q + 4 * four);
          });
      return sum;
    }
    __m512i sums[4] = {};
    int shifts[4] = {};
    for_shifted_fours<kType, kBlock>(
        lines, half, [&](unsigned four, int shift, __m512i codes) __attribute__((always_inline)) {
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
};

}  // namespace

#define QSF_DEFINE(name, type, block)                                   \
  void matmul_##name##_i8_avx512vnni(const MatMulArgs& args) noexcept { \
    coded<VnniDot, QuantType::type, block>(args);                       \
  }
QSF_CODED_FORMATS(QSF_DEFINE)
QSF_SUPER_FORMATS(QSF_DEFINE)
QSF_ROW_FORMATS(QSF_DEFINE)
#undef QSF_DEFINE

}  // namespace qsf::kernels
