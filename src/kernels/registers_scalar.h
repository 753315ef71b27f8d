// SPDX-License-Identifier: MIT
//
// Part of vectors.h, scalar tier: the compiler's own vectors, which are SSE2 on every x86-64 and
// NEON on every AArch64.

#ifndef QSF_KERNELS_REGISTERS_SCALAR_H_
#define QSF_KERNELS_REGISTERS_SCALAR_H_

namespace qsf::kernels::tier_scalar {

typedef I32Reg MaskReg;  // a comparison's result: all ones or zero

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
  const U32Reg m = cast_reg<U32Reg>(mask);
  return cast_reg<F32Reg>((cast_reg<U32Reg>(yes) & m) | (cast_reg<U32Reg>(no) & ~m));
}
// One bit a lane.
[[gnu::always_inline]] static inline std::uint32_t mask_bits_reg(MaskReg mask) noexcept {
  const U32Reg bits = cast_reg<U32Reg>(mask) & U32Reg{1, 2, 4, 8};
  return bits[0] | bits[1] | bits[2] | bits[3];
}
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
  const I32Reg mask = a > b;
  return (a & mask) | (b & ~mask);
}
// Takes the low bytes of sixteen lanes.
[[gnu::always_inline]] static inline U8x16 to_bytes(I32<k16> x) noexcept {
  const auto low_words = [](I32Reg low, I32Reg high) QSF_INLINE {
    return __builtin_shufflevector(cast_reg<U16x8>(low), cast_reg<U16x8>(high), 0, 2, 4, 6, 8, 10,
                                   12, 14);
  };
  return __builtin_shufflevector(cast_reg<U8x16>(low_words(x.r[0], x.r[1])),
                                 cast_reg<U8x16>(low_words(x.r[2], x.r[3])), 0, 2, 4, 6, 8, 10, 12,
                                 14, 16, 18, 20, 22, 24, 26, 28, 30);
}
// Widens sixteen signed bytes: they go to the top of their lanes and come down with their sign.
[[gnu::always_inline]] static inline I32<k16> from_bytes(U8x16 x) noexcept {
  const U8x16 none = {};
  const U16x8 zero = {};
  const U16x8 low = cast_reg<U16x8>(
      __builtin_shufflevector(none, x, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
  const U16x8 high = cast_reg<U16x8>(__builtin_shufflevector(none, x, 8, 24, 9, 25, 10, 26, 11, 27,
                                                             12, 28, 13, 29, 14, 30, 15, 31));
  const auto first = [&](U16x8 words) QSF_INLINE {
    return cast_reg<I32Reg>(__builtin_shufflevector(zero, words, 0, 8, 1, 9, 2, 10, 3, 11)) >> 24;
  };
  const auto last = [&](U16x8 words) QSF_INLINE {
    return cast_reg<I32Reg>(__builtin_shufflevector(zero, words, 4, 12, 5, 13, 6, 14, 7, 15)) >> 24;
  };
  return {{first(low), last(low), first(high), last(high)}};
}
[[gnu::always_inline]] static inline I32Reg round_reg(F32Reg x) noexcept {
  const F32Reg shifted = x + 0x1.8p23F;  // rounds to an integer in the low bits
  return cast_reg<I32Reg>(cast_reg<U32Reg>(shifted) - 0x4B400000U);
}
[[gnu::always_inline]] static inline F64Reg widen_low_reg(F32Reg x) noexcept {
  return F64Reg{static_cast<double>(x[0]), static_cast<double>(x[1])};
}
[[gnu::always_inline]] static inline F64Reg widen_high_reg(F32Reg x) noexcept {
  return F64Reg{static_cast<double>(x[2]), static_cast<double>(x[3])};
}
[[gnu::always_inline]] static inline F32Reg narrow_reg(F64Reg low, F64Reg high) noexcept {
  return F32Reg{static_cast<float>(low[0]), static_cast<float>(low[1]), static_cast<float>(high[0]),
                static_cast<float>(high[1])};
}

// Multiplies by 2^n, -150 <= n <= 128; magic_n is n + 1.5 * 2^23. The scale is applied in two
// halves, so that overflow and subnormal results come out of the multiplication itself.
[[gnu::always_inline]] static inline F32Reg scale_reg(F32Reg x, F32Reg magic_n,
                                                      F32Reg /*n*/) noexcept {
  const I32Reg exponent = cast_reg<I32Reg>(cast_reg<U32Reg>(magic_n) - 0x4B400000U);
  const I32Reg half = exponent >> 1;
  const U32Reg first = cast_reg<U32Reg>(half) + 127U;
  const U32Reg second = cast_reg<U32Reg>(exponent - half) + 127U;
  return x * cast_reg<F32Reg>(first << 23) * cast_reg<F32Reg>(second << 23);
}

// Four 16-bit values in the high halves of the lanes, zeros below them.
[[gnu::always_inline]] static inline U32Reg load_high_words_reg(const void* from) noexcept {
  const U16x8 zero = {};
  U16x8 words = {};
  std::memcpy(&words, from, 8);
  return cast_reg<U32Reg>(__builtin_shufflevector(zero, words, 0, 8, 1, 9, 2, 10, 3, 11));
}
[[gnu::always_inline]] static inline void store_low_words_reg(void* to, U32Reg x) noexcept {
  const U16x8 words = cast_reg<U16x8>(x);
  const U16x8 packed = __builtin_shufflevector(words, words, 0, 2, 4, 6, 0, 2, 4, 6);
  std::memcpy(to, &packed, 8);
}

// Widens halves, which stand in the high 16 bits, exactly: an arithmetic shift puts exponent and
// mantissa in their places and keeps the sign, the mask drops its copies, and one multiplication
// rebases the exponent and normalises subnormals; infinities and NaN get their exponent back.
[[gnu::always_inline]] static inline F32Reg widen_halves_reg(U32Reg word) noexcept {
  const U32Reg moved = cast_reg<U32Reg>(cast_reg<I32Reg>(word) >> 3);
  const F32Reg finite = cast_reg<F32Reg>(moved & 0x8FFFE000U) * 0x1p112F;
  const U32Reg exponent = word & 0x7C000000U;
  const U32Reg special = cast_reg<U32Reg>(exponent == 0x7C000000U) & 0x7F800000U;
  return cast_reg<F32Reg>(cast_reg<U32Reg>(finite) | special);
}
// Rounds to nearest even; halves stand in the low 16 bits, zeros above them.
[[gnu::always_inline]] static inline U32Reg narrow_to_halves_reg(F32Reg x) noexcept {
  const U32Reg bits = cast_reg<U32Reg>(x);
  const U32Reg sign = (bits >> 16) & 0x8000U;
  const U32Reg magnitude = bits & 0x7FFFFFFFU;
  const I32Reg ordered = cast_reg<I32Reg>(magnitude);  // no sign bit: compares as integers
  // Normal results: rebias the exponent, round on the 13 bits that go.
  const U32Reg normal = (magnitude - 0x38000000U + 0xFFFU + ((magnitude >> 13) & 1U)) >> 13;
  // Below 2^-14: adding 0.5, whose ulp is 2^-24, lets the FPU round at the subnormal's last bit.
  const U32Reg small = cast_reg<U32Reg>(cast_reg<F32Reg>(magnitude) + 0.5F) - 0x3F000000U;
  const auto choose = [](I32Reg mask, U32Reg yes, U32Reg no) QSF_INLINE {
    return (yes & cast_reg<U32Reg>(mask)) | (no & ~cast_reg<U32Reg>(mask));
  };
  U32Reg half = choose(ordered < 0x38800000, small, normal);
  half = choose(ordered >= 0x477FF000, U32Reg{} + 0x7C00U, half);  // 65520 and up
  half = choose(ordered > 0x7F800000, U32Reg{} + 0x7E00U, half);   // NaN
  return half | sign;
}
[[gnu::always_inline]] static inline F32Reg load_halves_reg(const void* from) noexcept {
  return widen_halves_reg(load_high_words_reg(from));
}
[[gnu::always_inline]] static inline void store_halves_reg(void* to, F32Reg x) noexcept {
  store_low_words_reg(to, narrow_to_halves_reg(x));
}
[[gnu::always_inline]] static inline float half_to_float(std::uint16_t half) noexcept {
  return widen_halves_reg(U32Reg{} + (std::uint32_t{half} << 16))[0];
}
[[gnu::always_inline]] static inline std::uint16_t float_to_half(float x) noexcept {
  return static_cast<std::uint16_t>(narrow_to_halves_reg(x - F32Reg{})[0]);
}

}  // namespace qsf::kernels::tier_scalar

#endif  // QSF_KERNELS_REGISTERS_SCALAR_H_
