// SPDX-License-Identifier: MIT
//
// Vectors of four for the scalar tier: the compiler's own vector types, no intrinsics.
//
// Four floats are one register on every baseline that matters (SSE2, NEON). Written out this way
// the loops vectorise with any optimiser and an element's arithmetic is the same in a vector body
// and in a tail, so a result never depends on where in an array it stands.
//
// Everything here has internal linkage: a weak definition in a per-ISA object could be chosen by
// the linker for code that runs on lesser CPUs.

#ifndef QSF_KERNELS_VECTORS_SCALAR_H_
#define QSF_KERNELS_VECTORS_SCALAR_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace qsf::kernels::lanes {

typedef float f32x4 __attribute__((vector_size(16)));
typedef std::int32_t i32x4 __attribute__((vector_size(16)));
typedef std::uint32_t u32x4 __attribute__((vector_size(16)));
typedef std::uint16_t u16x8 __attribute__((vector_size(16)));

[[gnu::always_inline]] static inline f32x4 splat(float value) noexcept {
  return f32x4{value, value, value, value};
}
[[gnu::always_inline]] static inline u32x4 splat_u32(std::uint32_t value) noexcept {
  return u32x4{value, value, value, value};
}

// Loads and stores without any alignment.
template <typename V>
[[gnu::always_inline]] static inline V load(const void* from) noexcept {
  V value;
  std::memcpy(&value, from, sizeof(V));
  return value;
}
template <typename V>
[[gnu::always_inline]] static inline void store(void* to, V value) noexcept {
  std::memcpy(to, &value, sizeof(V));
}

// Loads the first n_values (0 to 4) elements, zeros behind; reads nothing past them.
[[gnu::always_inline]] static inline f32x4 load_part(const float* from,
                                                     std::size_t n_values) noexcept {
  float part[4] = {0.0F, 0.0F, 0.0F, 0.0F};
  for (std::size_t i = 0; i < n_values; ++i) part[i] = from[i];
  return load<f32x4>(part);
}
[[gnu::always_inline]] static inline void store_part(float* to, f32x4 value,
                                                     std::size_t n_values) noexcept {
  float part[4];
  store(part, value);
  for (std::size_t i = 0; i < n_values; ++i) to[i] = part[i];
}

[[gnu::always_inline]] static inline u32x4 bits_of(f32x4 value) noexcept {
  return reinterpret_cast<u32x4>(value);
}
[[gnu::always_inline]] static inline f32x4 from_bits(u32x4 bits) noexcept {
  return reinterpret_cast<f32x4>(bits);
}

// Takes `yes` where the mask, a comparison's result, is all ones and `no` where it is zero.
[[gnu::always_inline]] static inline f32x4 select(i32x4 mask, f32x4 yes, f32x4 no) noexcept {
  const u32x4 m = reinterpret_cast<u32x4>(mask);
  return from_bits((bits_of(yes) & m) | (bits_of(no) & ~m));
}
[[gnu::always_inline]] static inline u32x4 select_bits(i32x4 mask, u32x4 yes, u32x4 no) noexcept {
  const u32x4 m = reinterpret_cast<u32x4>(mask);
  return (yes & m) | (no & ~m);
}

[[gnu::always_inline]] static inline f32x4 abs(f32x4 x) noexcept {
  return from_bits(bits_of(x) & splat_u32(0x7FFFFFFFU));
}

// Converts integers below 2^31.
[[gnu::always_inline]] static inline f32x4 to_f32(u32x4 value) noexcept {
  return __builtin_convertvector(reinterpret_cast<i32x4>(value), f32x4);
}
[[gnu::always_inline]] static inline f32x4 to_f32(i32x4 value) noexcept {
  return __builtin_convertvector(value, f32x4);
}

// Adds the four lanes, halves first: (0 + 2) + (1 + 3).
[[gnu::always_inline]] static inline float sum_lanes(f32x4 x) noexcept {
  return (x[0] + x[2]) + (x[1] + x[3]);
}

// Widens four finite halves in the HIGH 16 bits of each lane, whatever stands below, exactly: an
// arithmetic shift puts exponent and mantissa in their places and keeps the sign, the mask drops
// its copies, and one multiplication rebases the exponent and normalises subnormals. Infinities and
// NaN come out as finite numbers, so only checked weights may take this path.
[[gnu::always_inline]] static inline f32x4 finite_high_half_to_f32(u32x4 word) noexcept {
  const u32x4 moved = reinterpret_cast<u32x4>(reinterpret_cast<i32x4>(word) >> 3);
  return from_bits(moved & 0x8FFFE000U) * 0x1p112F;
}

// The same for any halves: infinities and NaN get their exponent back.
[[gnu::always_inline]] static inline f32x4 high_half_to_f32(u32x4 word) noexcept {
  const u32x4 exponent = word & 0x7C000000U;
  const u32x4 special =
      reinterpret_cast<u32x4>(exponent == splat_u32(0x7C000000U)) & splat_u32(0x7F800000U);
  return from_bits(bits_of(finite_high_half_to_f32(word)) | special);
}

// Splits eight 16-bit values into the high halves of two vectors, zeros below them.
[[gnu::always_inline]] static inline u32x4 first_to_high(u16x8 x) noexcept {
  const u16x8 zero = {};
  return reinterpret_cast<u32x4>(__builtin_shufflevector(zero, x, 0, 8, 1, 9, 2, 10, 3, 11));
}
[[gnu::always_inline]] static inline u32x4 last_to_high(u16x8 x) noexcept {
  const u16x8 zero = {};
  return reinterpret_cast<u32x4>(__builtin_shufflevector(zero, x, 4, 12, 5, 13, 6, 14, 7, 15));
}

// Sixteen floats, one per row of a group.
struct Rows16 {
  f32x4 v[4];
};

[[gnu::always_inline]] static inline Rows16 zero_rows() noexcept {
  return {{splat(0.0F), splat(0.0F), splat(0.0F), splat(0.0F)}};
}

// Widens sixteen finite halves, the scales or mins of a group.
[[gnu::always_inline]] static inline Rows16 load_half_rows(const std::byte* from) noexcept {
  const u16x8 low = load<u16x8>(from);
  const u16x8 high = load<u16x8>(from + 16);
  return {{finite_high_half_to_f32(first_to_high(low)), finite_high_half_to_f32(last_to_high(low)),
           finite_high_half_to_f32(first_to_high(high)),
           finite_high_half_to_f32(last_to_high(high))}};
}

}  // namespace qsf::kernels::lanes

#endif  // QSF_KERNELS_VECTORS_SCALAR_H_
