// SPDX-License-Identifier: MIT
//
// Part of vectors.h, AVX-512 tier. The comments that hold for every tier stand in
// registers_scalar.h.

#ifndef QSF_KERNELS_REGISTERS_AVX512_H_
#define QSF_KERNELS_REGISTERS_AVX512_H_

#include <immintrin.h>

namespace qsf::kernels::tier_avx512 {

typedef __mmask16 MaskReg;

[[gnu::always_inline]] static inline __m512 as_ps(F32Reg x) noexcept {
  return reinterpret_cast<__m512>(x);
}
[[gnu::always_inline]] static inline MaskReg first_lanes_reg(std::size_t n_values) noexcept {
  return static_cast<MaskReg>((1U << (n_values < 16 ? n_values : 16)) - 1U);
}
[[gnu::always_inline]] static inline F32Reg load_part_reg(const float* from,
                                                          std::size_t n_values) noexcept {
  return cast_reg<F32Reg>(_mm512_maskz_loadu_ps(first_lanes_reg(n_values), from));
}
[[gnu::always_inline]] static inline void store_part_reg(float* to, F32Reg x,
                                                         std::size_t n_values) noexcept {
  _mm512_mask_storeu_ps(to, first_lanes_reg(n_values), as_ps(x));
}

[[gnu::always_inline]] static inline MaskReg is_less_reg(F32Reg a, F32Reg b) noexcept {
  return _mm512_cmp_ps_mask(as_ps(a), as_ps(b), _CMP_LT_OQ);
}
[[gnu::always_inline]] static inline MaskReg is_at_least_reg(F32Reg a, F32Reg b) noexcept {
  return _mm512_cmp_ps_mask(as_ps(a), as_ps(b), _CMP_GE_OQ);
}
[[gnu::always_inline]] static inline MaskReg is_greater_i32_reg(I32Reg a, I32Reg b) noexcept {
  return _mm512_cmpgt_epi32_mask(cast_reg<__m512i>(a), cast_reg<__m512i>(b));
}
[[gnu::always_inline]] static inline F32Reg select_reg(MaskReg mask, F32Reg yes,
                                                       F32Reg no) noexcept {
  return cast_reg<F32Reg>(_mm512_mask_blend_ps(mask, as_ps(no), as_ps(yes)));
}
[[gnu::always_inline]] static inline std::uint32_t mask_bits_reg(MaskReg mask) noexcept {
  return mask;
}
[[gnu::always_inline]] static inline F32Reg min_reg(F32Reg a, F32Reg b) noexcept {
  return cast_reg<F32Reg>(_mm512_min_ps(as_ps(a), as_ps(b)));
}
[[gnu::always_inline]] static inline F32Reg max_reg(F32Reg a, F32Reg b) noexcept {
  return cast_reg<F32Reg>(_mm512_max_ps(as_ps(a), as_ps(b)));
}

[[gnu::always_inline]] static inline Quarters quarters_of(I32<k16> x) noexcept {
  const __m512i all = cast_reg<__m512i>(x.r[0]);
  return {{cast_reg<I32x4>(_mm512_castsi512_si128(all)),
           cast_reg<I32x4>(_mm512_extracti32x4_epi32(all, 1)),
           cast_reg<I32x4>(_mm512_extracti32x4_epi32(all, 2)),
           cast_reg<I32x4>(_mm512_extracti32x4_epi32(all, 3))}};
}
[[gnu::always_inline]] static inline I32Reg max_i32_reg(I32Reg a, I32Reg b) noexcept {
  return cast_reg<I32Reg>(_mm512_max_epi32(cast_reg<__m512i>(a), cast_reg<__m512i>(b)));
}
[[gnu::always_inline]] static inline U8x16 to_bytes(I32<k16> x) noexcept {
  return cast_reg<U8x16>(_mm512_cvtepi32_epi8(cast_reg<__m512i>(x.r[0])));
}
[[gnu::always_inline]] static inline I32<k16> from_bytes(U8x16 x) noexcept {
  return {{cast_reg<I32Reg>(_mm512_cvtepi8_epi32(cast_reg<__m128i>(x)))}};
}

[[gnu::always_inline]] static inline I32Reg round_reg(F32Reg x) noexcept {
  return cast_reg<I32Reg>(_mm512_cvtps_epi32(as_ps(x)));
}
[[gnu::always_inline]] static inline F64Reg widen_low_reg(F32Reg x) noexcept {
  return cast_reg<F64Reg>(_mm512_cvtps_pd(_mm512_castps512_ps256(as_ps(x))));
}
[[gnu::always_inline]] static inline F64Reg widen_high_reg(F32Reg x) noexcept {
  return cast_reg<F64Reg>(_mm512_cvtps_pd(_mm512_extractf32x8_ps(as_ps(x), 1)));
}
[[gnu::always_inline]] static inline F32Reg narrow_reg(F64Reg low, F64Reg high) noexcept {
  const __m512 first = _mm512_castps256_ps512(_mm512_cvtpd_ps(cast_reg<__m512d>(low)));
  return cast_reg<F32Reg>(_mm512_insertf32x8(first, _mm512_cvtpd_ps(cast_reg<__m512d>(high)), 1));
}

// One instruction, which rounds once at the end as the two products of the other tiers do.
[[gnu::always_inline]] static inline F32Reg scale_reg(F32Reg x, F32Reg /*magic_n*/,
                                                      F32Reg n) noexcept {
  return cast_reg<F32Reg>(_mm512_scalef_ps(as_ps(x), as_ps(n)));
}

[[gnu::always_inline]] static inline U32Reg load_high_words_reg(const void* from) noexcept {
  const __m256i words = _mm256_loadu_si256(static_cast<const __m256i*>(from));
  return cast_reg<U32Reg>(_mm512_cvtepu16_epi32(words)) << 16;
}
[[gnu::always_inline]] static inline void store_low_words_reg(void* to, U32Reg x) noexcept {
  _mm256_storeu_si256(static_cast<__m256i*>(to), _mm512_cvtepi32_epi16(cast_reg<__m512i>(x)));
}
[[gnu::always_inline]] static inline F32Reg load_halves_reg(const void* from) noexcept {
  return cast_reg<F32Reg>(_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(from))));
}
[[gnu::always_inline]] static inline void store_halves_reg(void* to, F32Reg x) noexcept {
  _mm256_storeu_si256(static_cast<__m256i*>(to),
                      _mm512_cvtps_ph(as_ps(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

[[gnu::always_inline]] static inline float half_to_float(std::uint16_t half) noexcept {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}
[[gnu::always_inline]] static inline std::uint16_t float_to_half(float x) noexcept {
  const __m128i half = _mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return static_cast<std::uint16_t>(_mm_cvtsi128_si32(half));
}

}  // namespace qsf::kernels::tier_avx512

#endif  // QSF_KERNELS_REGISTERS_AVX512_H_
