// SPDX-License-Identifier: MIT
//
// The vectors of AVX-512 for attend_page.h; all functions are inlined wherever they are used.

#ifndef QSF_KERNELS_ATTEND_ATTEND_LANES_AVX512_H_
#define QSF_KERNELS_ATTEND_ATTEND_LANES_AVX512_H_

#include <immintrin.h>

#include <cstdint>

namespace qsf::kernels::attend_page_internal {

struct Avx512Lanes {
  using Vec = __m512;
  using Half = std::uint16_t;
  static constexpr unsigned kWidth = 16;
  static constexpr unsigned kRows = 6;
  static constexpr unsigned kVectors = 4;
  static constexpr std::uint32_t kQueriesWorthAPanel = 24;

  [[gnu::always_inline]] static Vec splat(float value) noexcept { return _mm512_set1_ps(value); }
  [[gnu::always_inline]] static Vec load(const float* from) noexcept {
    return _mm512_loadu_ps(from);
  }
  [[gnu::always_inline]] static Vec load(const Half* from) noexcept {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  [[gnu::always_inline]] static void store(float* to, Vec x) noexcept { _mm512_storeu_ps(to, x); }
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
  [[gnu::always_inline]] static float first_lane(Vec x) noexcept { return _mm512_cvtss_f32(x); }
  [[gnu::always_inline]] static float largest_lane(Vec x) noexcept {
    return _mm512_reduce_max_ps(x);
  }
  // Halves first: lanes 0 + 8, then 0 + 4 and so on.
  [[gnu::always_inline]] static float sum_lanes(Vec x) noexcept { return _mm512_reduce_add_ps(x); }
};

}  // namespace qsf::kernels::attend_page_internal

#endif  // QSF_KERNELS_ATTEND_ATTEND_LANES_AVX512_H_
