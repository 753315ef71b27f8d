// SPDX-License-Identifier: MIT
//
// Part of vectors.h, NEON tier. The comments that hold for every tier stand in registers_scalar.h.

#ifndef QSF_KERNELS_REGISTERS_NEON_H_
#define QSF_KERNELS_REGISTERS_NEON_H_

#include <arm_neon.h>

namespace qsf::kernels::tier_neon {

typedef I32Reg MaskReg;

[[gnu::always_inline]] static inline float32x4_t as_f32(F32Reg x) noexcept {
  return reinterpret_cast<float32x4_t>(x);
}
[[gnu::always_inline]] static inline F32Reg load_part_reg(const float* from,
                                                          std::size_t n_values) noexcept {
  F32Reg x = {};
  for (std::size_t i = 0; i < 4; ++i) {
    if (i < n_values) x[i] = from[i];
  }
  return x;
}
[[gnu::always_inline]] static inline void store_part_reg(float* to, F32Reg x,
                                                         std::size_t n_values) noexcept {
  for (std::size_t i = 0; i < 4; ++i) {
    if (i < n_values) to[i] = x[i];
  }
}

[[gnu::always_inline]] static inline MaskReg is_less_reg(F32Reg a, F32Reg b) noexcept {
  return a < b;
}
[[gnu::always_inline]] static inline MaskReg is_at_least_reg(F32Reg a, F32Reg b) noexcept {
  return a >= b;
}
[[gnu::always_inline]] static inline MaskReg is_greater_i32_reg(I32Reg a, I32Reg b) noexcept {
  return a > b;
}
[[gnu::always_inline]] static inline MaskReg first_lanes_reg(std::size_t n_values) noexcept {
  const I32Reg place = {0, 1, 2, 3};
  return place < static_cast<std::int32_t>(n_values < 4 ? n_values : 4);
}
[[gnu::always_inline]] static inline F32Reg select_reg(MaskReg mask, F32Reg yes,
                                                       F32Reg no) noexcept {
  return cast_reg<F32Reg>(vbslq_f32(cast_reg<uint32x4_t>(mask), as_f32(yes), as_f32(no)));
}
[[gnu::always_inline]] static inline std::uint32_t mask_bits_reg(MaskReg mask) noexcept {
  const U32Reg bits = cast_reg<U32Reg>(mask) & U32Reg{1, 2, 4, 8};
  return vaddvq_u32(cast_reg<uint32x4_t>(bits));
}
// Not vminq_f32: of a NaN and a number it gives the NaN whichever is first.
[[gnu::always_inline]] static inline F32Reg min_reg(F32Reg a, F32Reg b) noexcept {
  return select_reg(a < b, a, b);
}
[[gnu::always_inline]] static inline F32Reg max_reg(F32Reg a, F32Reg b) noexcept {
  return select_reg(a > b, a, b);
}

[[gnu::always_inline]] static inline Quarters quarters_of(I32<k16> x) noexcept {
  return {{x.r[0], x.r[1], x.r[2], x.r[3]}};
}
[[gnu::always_inline]] static inline I32Reg max_i32_reg(I32Reg a, I32Reg b) noexcept {
  return cast_reg<I32Reg>(vmaxq_s32(cast_reg<int32x4_t>(a), cast_reg<int32x4_t>(b)));
}
[[gnu::always_inline]] static inline U8x16 to_bytes(I32<k16> x) noexcept {
  const auto words = [](I32Reg low, I32Reg high) QSF_INLINE {
    return vmovn_high_s32(vmovn_s32(cast_reg<int32x4_t>(low)), cast_reg<int32x4_t>(high));
  };
  return cast_reg<U8x16>(vmovn_high_s16(vmovn_s16(words(x.r[0], x.r[1])), words(x.r[2], x.r[3])));
}
[[gnu::always_inline]] static inline I32<k16> from_bytes(U8x16 x) noexcept {
  const int8x16_t bytes = cast_reg<int8x16_t>(x);
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes));
  const int16x8_t high = vmovl_high_s8(bytes);
  return {{cast_reg<I32Reg>(vmovl_s16(vget_low_s16(low))), cast_reg<I32Reg>(vmovl_high_s16(low)),
           cast_reg<I32Reg>(vmovl_s16(vget_low_s16(high))),
           cast_reg<I32Reg>(vmovl_high_s16(high))}};
}

[[gnu::always_inline]] static inline I32Reg round_reg(F32Reg x) noexcept {
  return cast_reg<I32Reg>(vcvtnq_s32_f32(as_f32(x)));
}
[[gnu::always_inline]] static inline F64Reg widen_low_reg(F32Reg x) noexcept {
  return cast_reg<F64Reg>(vcvt_f64_f32(vget_low_f32(as_f32(x))));
}
[[gnu::always_inline]] static inline F64Reg widen_high_reg(F32Reg x) noexcept {
  return cast_reg<F64Reg>(vcvt_high_f64_f32(as_f32(x)));
}
[[gnu::always_inline]] static inline F32Reg narrow_reg(F64Reg low, F64Reg high) noexcept {
  return cast_reg<F32Reg>(
      vcvt_high_f32_f64(vcvt_f32_f64(cast_reg<float64x2_t>(low)), cast_reg<float64x2_t>(high)));
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
  return cast_reg<U32Reg>(vshll_n_u16(vld1_u16(static_cast<const std::uint16_t*>(from)), 16));
}
[[gnu::always_inline]] static inline void store_low_words_reg(void* to, U32Reg x) noexcept {
  vst1_u16(static_cast<std::uint16_t*>(to), vmovn_u32(cast_reg<uint32x4_t>(x)));
}
[[gnu::always_inline]] static inline F32Reg load_halves_reg(const void* from) noexcept {
  const uint16x4_t words = vld1_u16(static_cast<const std::uint16_t*>(from));
  return cast_reg<F32Reg>(vcvt_f32_f16(vreinterpret_f16_u16(words)));
}
[[gnu::always_inline]] static inline void store_halves_reg(void* to, F32Reg x) noexcept {
  vst1_u16(static_cast<std::uint16_t*>(to), vreinterpret_u16_f16(vcvt_f16_f32(as_f32(x))));
}

[[gnu::always_inline]] static inline float half_to_float(std::uint16_t half) noexcept {
  return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half))), 0);
}
[[gnu::always_inline]] static inline std::uint16_t float_to_half(float x) noexcept {
  return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(x))), 0);
}

}  // namespace qsf::kernels::tier_neon

#endif  // QSF_KERNELS_REGISTERS_NEON_H_
