// SPDX-License-Identifier: MIT
//
// The vectors of AVX-512 for attend_page.h; all functions are inlined wherever they are used.

#ifndef QSF_KERNELS_ATTEND_ATTEND_LANES_AVX512_H_
#define QSF_KERNELS_ATTEND_ATTEND_LANES_AVX512_H_

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace qsf::kernels::attend_page_internal {

struct Avx512Lanes {
  using Vec = __m512;
  using Ints = __m512i;
  using Half = std::uint16_t;
  static constexpr unsigned kWidth = 16;
  static constexpr unsigned kRows = 6;
  static constexpr unsigned kVectors = 4;
  static constexpr std::uint32_t kQueriesWorthAPanel = 24;
  static constexpr std::uint32_t kQueriesWorthABytePanel = 13;
  static constexpr std::uint32_t kQueriesWorthACodePanel = 13;

  [[gnu::always_inline]] static Vec splat(float value) noexcept { return _mm512_set1_ps(value); }
  [[gnu::always_inline]] static Vec load(const float* from) noexcept {
    return _mm512_loadu_ps(from);
  }
  [[gnu::always_inline]] static Vec load(const Half* from) noexcept {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  [[gnu::always_inline]] static Vec load(const std::int8_t* from) noexcept {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
  }
  // What each code stands for: 16 levels in 4 bits, four times the 4 levels in 2 bits.
  template <unsigned kBits>
  [[gnu::always_inline]] static Vec levels() noexcept {
    if constexpr (kBits == 4) {
      return _mm512_setr_ps(-15.0F, -13.0F, -11.0F, -9.0F, -7.0F, -5.0F, -3.0F, -1.0F, 1.0F, 3.0F,
                            5.0F, 7.0F, 9.0F, 11.0F, 13.0F, 15.0F);
    } else {
      return _mm512_broadcast_f32x4(_mm_setr_ps(-3.0F, -1.0F, 1.0F, 3.0F));
    }
  }
  // levels[code] of codes in the low kBits of each lane; higher bits are ignored.
  template <unsigned kBits>
  [[gnu::always_inline]] static Vec take(Vec levels, __m512i codes) noexcept {
    if constexpr (kBits == 4) {
      return _mm512_permutexvar_ps(codes, levels);
    } else {
      return _mm512_permutevar_ps(levels, codes);
    }
  }
  // All 64 slots of a row of 32 or 16 bytes.
  template <unsigned kBits>
  [[gnu::always_inline]] static void load_key_codes(const std::uint8_t* row, std::uint32_t,
                                                    Vec (&slots)[4]) noexcept {
    constexpr unsigned kLoads = kBits / 2;
#pragma GCC unroll 2
    for (unsigned i = 0; i < kLoads; ++i) {
      __m512i codes =
          _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row) + i));
#pragma GCC unroll 4
      for (unsigned v = i; v < 4; v += kLoads) {
        slots[v] = take<kBits>(levels<kBits>(), codes);
        codes = _mm512_srli_epi32(codes, kBits);
      }
    }
  }
  // The codes of a unit of 8 or 4 bytes, which holds 16 columns of values, for `take`.
  template <unsigned kBits>
  [[gnu::always_inline]] static __m512i codes_of_unit(const std::uint8_t* unit) noexcept {
    if constexpr (kBits == 4) {
      const __m128i twice = _mm_castpd_si128(_mm_loaddup_pd(reinterpret_cast<const double*>(unit)));
      const __m512i shifts = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4);
      return _mm512_srlv_epi32(_mm512_cvtepu8_epi32(twice), shifts);
    } else {
      const __m512i shifts =
          _mm512_setr_epi32(0, 8, 16, 24, 2, 10, 18, 26, 4, 12, 20, 28, 6, 14, 22, 30);
      std::int32_t all;
      std::memcpy(&all, unit, sizeof all);
      return _mm512_srlv_epi32(_mm512_set1_epi32(all), shifts);
    }
  }
  template <unsigned kBits, unsigned kGroup, unsigned kV>
  [[gnu::always_inline]] static void load_value_codes(const std::uint8_t* row, const float* scales,
                                                      std::uint32_t column,
                                                      Vec (&columns)[kV]) noexcept {
    scales += column / kGroup;
    row += column * kBits / 8;
#pragma GCC unroll 8
    for (unsigned v = 0; v < kV; ++v) {
      const Vec scaled = _mm512_mul_ps(levels<kBits>(), splat(scales[v * kWidth / kGroup]));
      columns[v] = take<kBits>(scaled, codes_of_unit<kBits>(row + v * 2 * kBits));
    }
  }
  [[gnu::always_inline]] static void store(float* to, Vec x) noexcept {
    _mm512_storeu_ps(to, x);
  }
  [[gnu::always_inline]] static Vec multiply_add(Vec a, Vec b, Vec c) noexcept {
    return _mm512_fmadd_ps(a, b, c);
  }
  // The larger, or `old` where `x` is NaN.
  [[gnu::always_inline]] static Vec larger(Vec x, Vec old) noexcept {
    return _mm512_max_ps(x, old);
  }
  [[gnu::always_inline]] static Vec select_less(Vec a, Vec b, Vec yes, Vec no) noexcept {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
  }
  // mantissa * 2^n, n = shifted - magic, or 0 where x < least.
  [[gnu::always_inline]] static Vec scale_unless_less(Vec mantissa, Vec shifted, Vec magic, Vec x,
                                                      Vec least) noexcept {
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, least, _CMP_NLT_UQ), mantissa,
                                  _mm512_sub_ps(shifted, magic));
  }
  [[gnu::always_inline]] static Vec distance(const std::int32_t* positions,
                                             std::int32_t from) noexcept {
    return _mm512_cvtepi32_ps(
        _mm512_sub_epi32(_mm512_loadu_si512(positions), _mm512_set1_epi32(from)));
  }
  [[gnu::always_inline]] static float first_lane(Vec x) noexcept {
    return _mm512_cvtss_f32(x);
  }
  [[gnu::always_inline]] static float largest_lane(Vec x) noexcept {
    return _mm512_reduce_max_ps(x);
  }
  // Halves first: lanes 0 + 8, then 0 + 4 and so on.
  [[gnu::always_inline]] static float sum_lanes(Vec x) noexcept {
    return _mm512_reduce_add_ps(x);
  }

  [[gnu::always_inline]] static Ints no_ints() noexcept {
    return _mm512_setzero_si512();
  }
  [[gnu::always_inline]] static Ints load_ints(const std::int32_t* from) noexcept {
    return _mm512_loadu_si512(from);
  }
  [[gnu::always_inline]] static Ints load_ints(const std::int8_t* from) noexcept {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  [[gnu::always_inline]] static void store_ints(std::int32_t* to, Ints x) noexcept {
    _mm512_storeu_si512(to, x);
  }
  // Two numbers in every lane.
  [[gnu::always_inline]] static Ints splat_words(const std::int16_t* from) noexcept {
    std::int32_t both;
    std::memcpy(&both, from, sizeof both);
    return _mm512_set1_epi32(both);
  }
  [[gnu::always_inline]] static Ints round(Vec x) noexcept {
    return _mm512_cvtps_epi32(x);
  }
  [[gnu::always_inline]] static Vec to_floats(Ints x) noexcept {
    return _mm512_cvtepi32_ps(x);
  }
  // The lower halves of all lanes, `high` above `low`.
  [[gnu::always_inline]] static Ints join_words(Ints low, Ints high) noexcept {
    return _mm512_mask_blend_epi16(0xAAAAAAAA, low, _mm512_slli_epi32(high, 16));
  }
  // Rounds sixteen weights to whole numbers.
  [[gnu::always_inline]] static void store_words(std::int16_t* to, const Vec (&x)[1]) noexcept {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtsepi32_epi16(round(x[0])));
  }
  // sum + a[0] * b[0] + a[1] * b[1] in each lane.
  [[gnu::always_inline]] static Ints dot_words(Ints sum, Ints a, Ints b) noexcept {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
  }
};

}  // namespace qsf::kernels::attend_page_internal

#endif  // QSF_KERNELS_ATTEND_ATTEND_LANES_AVX512_H_
