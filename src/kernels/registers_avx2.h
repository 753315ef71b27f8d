// SPDX-License-Identifier: MIT
//
// Part of vectors.h, AVX2 tier. The comments that hold for every tier stand in registers_scalar.h.

#ifndef QSF_KERNELS_REGISTERS_AVX2_H_
#define QSF_KERNELS_REGISTERS_AVX2_H_

#include <immintrin.h>

namespace qsf::kernels::tier_avx2 {

typedef I32Reg MaskReg;

[[gnu::always_inline]] static inline __m256 as_ps(F32Reg x) noexcept {
  return reinterpret_cast<__m256>(x);
}
[[gnu::always_inline]] static inline __m256i as_int(I32Reg x) noexcept {
  return reinterpret_cast<__m256i>(x);
}
[[gnu::always_inline]] static inline MaskReg first_lanes_reg(std::size_t n_values) noexcept {
  const I32Reg place = {0, 1, 2, 3, 4, 5, 6, 7};
  return place < static_cast<std::int32_t>(n_values < 8 ? n_values : 8);
}
[[gnu::always_inline]] static inline F32Reg load_part_reg(const float* from,
                                                          std::size_t n_values) noexcept {
  return cast_reg<F32Reg>(_mm256_maskload_ps(from, as_int(first_lanes_reg(n_values))));
}
[[gnu::always_inline]] static inline void store_part_reg(float* to, F32Reg x,
                                                         std::size_t n_values) noexcept {
  _mm256_maskstore_ps(to, as_int(first_lanes_reg(n_values)), as_ps(x));
}

[[gnu::always_inline]] static inline MaskReg is_less_reg(F32Reg a, F32Reg b) noexcept {
  return cast_reg<MaskReg>(_mm256_cmp_ps(as_ps(a), as_ps(b), _CMP_LT_OQ));
}
[[gnu::always_inline]] static inline MaskReg is_at_least_reg(F32Reg a, F32Reg b) noexcept {
  return cast_reg<MaskReg>(_mm256_cmp_ps(as_ps(a), as_ps(b), _CMP_GE_OQ));
}
[[gnu::always_inline]] static inline MaskReg is_greater_i32_reg(I32Reg a, I32Reg b) noexcept {
  return a > b;
}
[[gnu::always_inline]] static inline F32Reg select_reg(MaskReg mask, F32Reg yes,
                                                       F32Reg no) noexcept {
  return cast_reg<F32Reg>(_mm256_blendv_ps(as_ps(no), as_ps(yes), cast_reg<__m256>(mask)));
}
[[gnu::always_inline]] static inline std::uint32_t mask_bits_reg(MaskReg mask) noexcept {
  return static_cast<std::uint32_t>(_mm256_movemask_ps(cast_reg<__m256>(mask)));
}
[[gnu::always_inline]] static inline F32Reg min_reg(F32Reg a, F32Reg b) noexcept {
  return cast_reg<F32Reg>(_mm256_min_ps(as_ps(a), as_ps(b)));
}
[[gnu::always_inline]] static inline F32Reg max_reg(F32Reg a, F32Reg b) noexcept {
  return cast_reg<F32Reg>(_mm256_max_ps(as_ps(a), as_ps(b)));
}

[[gnu::always_inline]] static inline Quarters quarters_of(I32<k16> x) noexcept {
  return {{cast_reg<I32x4>(_mm256_castsi256_si128(as_int(x.r[0]))),
           cast_reg<I32x4>(_mm256_extracti128_si256(as_int(x.r[0]), 1)),
           cast_reg<I32x4>(_mm256_castsi256_si128(as_int(x.r[1]))),
           cast_reg<I32x4>(_mm256_extracti128_si256(as_int(x.r[1]), 1))}};
}
[[gnu::always_inline]] static inline I32Reg max_i32_reg(I32Reg a, I32Reg b) noexcept {
  return cast_reg<I32Reg>(_mm256_max_epi32(as_int(a), as_int(b)));
}
[[gnu::always_inline]] static inline U8x16 to_bytes(I32<k16> x) noexcept {
  // Lanes stay in their halves: words 0-3, 8-11 and 4-7, 12-15 come out, and go to their places.
  const __m256i words = _mm256_packs_epi32(as_int(x.r[0]), as_int(x.r[1]));
  const __m256i ordered = _mm256_permute4x64_epi64(words, 0xD8);
  return cast_reg<U8x16>(
      _mm_packs_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1)));
}
[[gnu::always_inline]] static inline I32<k16> from_bytes(U8x16 x) noexcept {
  const __m128i bytes = cast_reg<__m128i>(x);
  return {{cast_reg<I32Reg>(_mm256_cvtepi8_epi32(bytes)),
           cast_reg<I32Reg>(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))}};
}

[[gnu::always_inline]] static inline I32Reg round_reg(F32Reg x) noexcept {
  return cast_reg<I32Reg>(_mm256_cvtps_epi32(as_ps(x)));
}
[[gnu::always_inline]] static inline F64Reg widen_low_reg(F32Reg x) noexcept {
  return cast_reg<F64Reg>(_mm256_cvtps_pd(_mm256_castps256_ps128(as_ps(x))));
}
[[gnu::always_inline]] static inline F64Reg widen_high_reg(F32Reg x) noexcept {
  return cast_reg<F64Reg>(_mm256_cvtps_pd(_mm256_extractf128_ps(as_ps(x), 1)));
}
[[gnu::always_inline]] static inline F32Reg narrow_reg(F64Reg low, F64Reg high) noexcept {
  return cast_reg<F32Reg>(_mm256_set_m128(_mm256_cvtpd_ps(cast_reg<__m256d>(high)),
                                          _mm256_cvtpd_ps(cast_reg<__m256d>(low))));
}

[[gnu::always_inline]] static inline F32Reg scale_reg(F32Reg x, F32Reg magic_n,
                                                      F32Reg /*n*/) noexcept {
  const I32Reg exponent = cast_reg<I32Reg>(cast_reg<U32Reg>(magic_n) - 0x4B400000U);
  const I32Reg half = exponent >> 1;
  const U32Reg first = cast_reg<U32Reg>(half) + 127U;
  const U32Reg second = cast_reg<U32Reg>(exponent - half) + 127U;
  return x * cast_reg<F32Reg>(first << 23) * cast_reg<F32Reg>(second << 23);
}

[[gnu::always_inline]] static inline U32Reg load_high_words_reg(const void* from) noexcept {
  const __m128i words = _mm_loadu_si128(static_cast<const __m128i*>(from));
  return cast_reg<U32Reg>(_mm256_cvtepu16_epi32(words)) << 16;
}
[[gnu::always_inline]] static inline void store_low_words_reg(void* to, U32Reg x) noexcept {
  const __m256i words = cast_reg<__m256i>(x & 0xFFFFU);
  const __m128i packed =
      _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(static_cast<__m128i*>(to), packed);
}
[[gnu::always_inline]] static inline F32Reg load_halves_reg(const void* from) noexcept {
  return cast_reg<F32Reg>(_mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(from))));
}
[[gnu::always_inline]] static inline void store_halves_reg(void* to, F32Reg x) noexcept {
  _mm_storeu_si128(static_cast<__m128i*>(to),
                   _mm256_cvtps_ph(as_ps(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

[[gnu::always_inline]] static inline float half_to_float(std::uint16_t half) noexcept {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}
[[gnu::always_inline]] static inline std::uint16_t float_to_half(float x) noexcept {
  const __m128i half = _mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return static_cast<std::uint16_t>(_mm_cvtsi128_si32(half));
}

}  // namespace qsf::kernels::tier_avx2

#endif  // QSF_KERNELS_REGISTERS_AVX2_H_
