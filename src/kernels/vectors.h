// SPDX-License-Identifier: MIT
//
// Vectors of the tier that a file is compiled for, so that a kernel is written once.
//
// A kernel is written over virtual lanes: F32<k16> is sixteen floats on every tier, in one register
// of AVX-512, two of AVX2 or four of SSE2 and NEON. Arithmetic is lane by lane, sums run in as many
// lanes everywhere and are added in one fixed order, and nothing fuses multiply and add, so every
// tier gives the same bits. (Of a NaN only that it is one: its sign and payload follow the order of
// operands, which compilers may turn.)
//
// A file of a tier defines QSF_TIER_AVX2, say, and includes the kernel's *_lanes.h; without such a
// definition the tier is scalar: the compiler's vectors of 16 bytes, no intrinsics. Each tier has a
// namespace of its own and everything here has internal linkage: a weak definition in an object of
// a tier could be chosen by the linker for code that runs on lesser CPUs.

#ifndef QSF_KERNELS_VECTORS_H_
#define QSF_KERNELS_VECTORS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/tier.h"

#if defined(QSF_TIER_AVX512)
#define QSF_TIER_NAMESPACE tier_avx512
#define QSF_TIER_NAME "avx512"
#elif defined(QSF_TIER_AVX2)
#define QSF_TIER_NAMESPACE tier_avx2
#define QSF_TIER_NAME "avx2"
#elif defined(QSF_TIER_NEON)
#define QSF_TIER_NAMESPACE tier_neon
#define QSF_TIER_NAME "neon"
#else
#define QSF_TIER_NAMESPACE tier_scalar
#define QSF_TIER_NAME "scalar"
#endif

// Of a lambda that takes or returns vectors: a call would put them into memory.
#define QSF_INLINE __attribute__((always_inline))

// Registers of one vector, one after the other.
#define QSF_EACH_REG(i, n) _Pragma("GCC unroll 16") for (unsigned i = 0; i < (n); ++i)

namespace qsf::kernels::QSF_TIER_NAMESPACE {

#if defined(QSF_TIER_AVX512)
constexpr Isa kTier = Isa::kAvx512;
constexpr std::size_t kRegBytes = 64;
#elif defined(QSF_TIER_AVX2)
constexpr Isa kTier = Isa::kAvx2;
constexpr std::size_t kRegBytes = 32;
#elif defined(QSF_TIER_NEON)
constexpr Isa kTier = Isa::kNeon;
constexpr std::size_t kRegBytes = 16;
#else
constexpr Isa kTier = Isa::kScalar;
constexpr std::size_t kRegBytes = 16;
#endif

constexpr unsigned kRegLanes = kRegBytes / 4;  // of 32 bits
constexpr unsigned k16 = 16 / kRegLanes;       // registers of sixteen such lanes

typedef float F32Reg __attribute__((vector_size(kRegBytes)));
typedef double F64Reg __attribute__((vector_size(kRegBytes)));
typedef std::int32_t I32Reg __attribute__((vector_size(kRegBytes)));
typedef std::uint32_t U32Reg __attribute__((vector_size(kRegBytes)));
typedef std::uint64_t U64Reg __attribute__((vector_size(kRegBytes)));
typedef std::uint16_t U16x8 __attribute__((vector_size(16)));
typedef std::uint8_t U8x16 __attribute__((vector_size(16)));

template <typename Reg, unsigned N>
struct Regs {
  Reg r[N];
};
template <unsigned N>
using F32 = Regs<F32Reg, N>;
template <unsigned N>
using F64 = Regs<F64Reg, N>;
template <unsigned N>
using I32 = Regs<I32Reg, N>;
template <unsigned N>
using U32 = Regs<U32Reg, N>;
template <unsigned N>
using U64 = Regs<U64Reg, N>;

// Sixteen lanes as four registers of four, for what crosses lanes.
typedef std::int32_t I32x4 __attribute__((vector_size(16)));
struct Quarters {
  I32x4 q[4];
};

template <typename To, typename From>
[[gnu::always_inline]] static inline To cast_reg(From from) noexcept {
  return reinterpret_cast<To>(from);
}

}  // namespace qsf::kernels::QSF_TIER_NAMESPACE

// What a tier does in its own way, register by register.
#if defined(QSF_TIER_AVX512)
#include "kernels/registers_avx512.h"
#elif defined(QSF_TIER_AVX2)
#include "kernels/registers_avx2.h"
#elif defined(QSF_TIER_NEON)
#include "kernels/registers_neon.h"
#else
#include "kernels/registers_scalar.h"
#endif

namespace qsf::kernels::QSF_TIER_NAMESPACE {

template <unsigned N>
using Mask = Regs<MaskReg, N>;

template <typename Reg, unsigned N>
[[gnu::always_inline]] static inline Regs<Reg, N> operator+(Regs<Reg, N> a,
                                                            Regs<Reg, N> b) noexcept {
  QSF_EACH_REG(i, N) a.r[i] = a.r[i] + b.r[i];
  return a;
}
template <typename Reg, unsigned N>
[[gnu::always_inline]] static inline Regs<Reg, N> operator-(Regs<Reg, N> a,
                                                            Regs<Reg, N> b) noexcept {
  QSF_EACH_REG(i, N) a.r[i] = a.r[i] - b.r[i];
  return a;
}
template <typename Reg, unsigned N>
[[gnu::always_inline]] static inline Regs<Reg, N> operator*(Regs<Reg, N> a,
                                                            Regs<Reg, N> b) noexcept {
  QSF_EACH_REG(i, N) a.r[i] = a.r[i] * b.r[i];
  return a;
}
template <typename Reg, unsigned N>
[[gnu::always_inline]] static inline Regs<Reg, N> operator/(Regs<Reg, N> a,
                                                            Regs<Reg, N> b) noexcept {
  QSF_EACH_REG(i, N) a.r[i] = a.r[i] / b.r[i];
  return a;
}
template <typename Reg, unsigned N>
[[gnu::always_inline]] static inline Regs<Reg, N> operator-(Regs<Reg, N> a) noexcept {
  QSF_EACH_REG(i, N) a.r[i] = -a.r[i];
  return a;
}
template <typename Reg, unsigned N>
[[gnu::always_inline]] static inline Regs<Reg, N> operator&(Regs<Reg, N> a,
                                                            Regs<Reg, N> b) noexcept {
  QSF_EACH_REG(i, N) a.r[i] = a.r[i] & b.r[i];
  return a;
}
template <typename Reg, unsigned N>
[[gnu::always_inline]] static inline Regs<Reg, N> operator|(Regs<Reg, N> a,
                                                            Regs<Reg, N> b) noexcept {
  QSF_EACH_REG(i, N) a.r[i] = a.r[i] | b.r[i];
  return a;
}
template <typename Reg, unsigned N>
[[gnu::always_inline]] static inline Regs<Reg, N> operator^(Regs<Reg, N> a,
                                                            Regs<Reg, N> b) noexcept {
  QSF_EACH_REG(i, N) a.r[i] = a.r[i] ^ b.r[i];
  return a;
}
template <typename Reg, unsigned N>
[[gnu::always_inline]] static inline Regs<Reg, N> operator<<(Regs<Reg, N> a, int n_bits) noexcept {
  QSF_EACH_REG(i, N) a.r[i] = a.r[i] << n_bits;
  return a;
}
template <typename Reg, unsigned N>
[[gnu::always_inline]] static inline Regs<Reg, N> operator>>(Regs<Reg, N> a, int n_bits) noexcept {
  QSF_EACH_REG(i, N) a.r[i] = a.r[i] >> n_bits;
  return a;
}

template <typename To, typename From, unsigned N>
[[gnu::always_inline]] static inline Regs<To, N> cast_regs(Regs<From, N> from) noexcept {
  Regs<To, N> to;
  QSF_EACH_REG(i, N) to.r[i] = cast_reg<To>(from.r[i]);
  return to;
}
template <unsigned N>
[[gnu::always_inline]] static inline U32<N> bits_of(F32<N> x) noexcept {
  return cast_regs<U32Reg>(x);
}
template <unsigned N>
[[gnu::always_inline]] static inline F32<N> from_bits(U32<N> bits) noexcept {
  return cast_regs<F32Reg>(bits);
}

template <unsigned N>
[[gnu::always_inline]] static inline F32<N> splat(float value) noexcept {
  F32<N> x;
  QSF_EACH_REG(i, N) x.r[i] = value - F32Reg{};  // minus 0 changes nothing, plus 0 would change -0
  return x;
}
template <unsigned N>
[[gnu::always_inline]] static inline F64<N> splat_f64(double value) noexcept {
  F64<N> x;
  QSF_EACH_REG(i, N) x.r[i] = value - F64Reg{};
  return x;
}
template <unsigned N>
[[gnu::always_inline]] static inline U32<N> splat_u32(std::uint32_t value) noexcept {
  U32<N> x;
  QSF_EACH_REG(i, N) x.r[i] = U32Reg{} + value;
  return x;
}
template <unsigned N>
[[gnu::always_inline]] static inline U64<N> splat_u64(std::uint64_t value) noexcept {
  U64<N> x;
  QSF_EACH_REG(i, N) x.r[i] = U64Reg{} + value;
  return x;
}

// Loads and stores without any alignment. The vector is sizeof(V) bytes.
template <typename V>
[[gnu::always_inline]] static inline V load(const void* from) noexcept {
  V x;
  QSF_EACH_REG(i, sizeof(V) / kRegBytes) {
    std::memcpy(&x.r[i], static_cast<const char*>(from) + i * kRegBytes, kRegBytes);
  }
  return x;
}
template <typename V>
[[gnu::always_inline]] static inline void store(void* to, V x) noexcept {
  QSF_EACH_REG(i, sizeof(V) / kRegBytes) {
    std::memcpy(static_cast<char*>(to) + i * kRegBytes, &x.r[i], kRegBytes);
  }
}

// Loads the first n_values elements, n_values less than the vector holds, and zeros behind them;
// touches nothing past them.
template <unsigned N>
[[gnu::always_inline]] static inline F32<N> load_part(const float* from,
                                                      std::size_t n_values) noexcept {
  F32<N> x;
  QSF_EACH_REG(i, N) {
    const std::size_t first = i * kRegLanes;
    x.r[i] = load_part_reg(from + first, n_values > first ? n_values - first : 0);
  }
  return x;
}
template <unsigned N>
[[gnu::always_inline]] static inline void store_part(float* to, F32<N> x,
                                                     std::size_t n_values) noexcept {
  QSF_EACH_REG(i, N) {
    const std::size_t first = i * kRegLanes;
    store_part_reg(to + first, x.r[i], n_values > first ? n_values - first : 0);
  }
}

// Lanes where a < b, which no NaN is.
template <unsigned N>
[[gnu::always_inline]] static inline Mask<N> is_less(F32<N> a, F32<N> b) noexcept {
  Mask<N> mask;
  QSF_EACH_REG(i, N) mask.r[i] = is_less_reg(a.r[i], b.r[i]);
  return mask;
}
template <unsigned N>
[[gnu::always_inline]] static inline Mask<N> is_at_least(F32<N> a, F32<N> b) noexcept {
  Mask<N> mask;
  QSF_EACH_REG(i, N) mask.r[i] = is_at_least_reg(a.r[i], b.r[i]);
  return mask;
}
// Compares as signed integers.
template <unsigned N>
[[gnu::always_inline]] static inline Mask<N> is_greater_i32(U32<N> a, U32<N> b) noexcept {
  Mask<N> mask;
  QSF_EACH_REG(i, N) {
    mask.r[i] = is_greater_i32_reg(cast_reg<I32Reg>(a.r[i]), cast_reg<I32Reg>(b.r[i]));
  }
  return mask;
}
// The first n_values of all lanes.
template <unsigned N>
[[gnu::always_inline]] static inline Mask<N> first_lanes(std::size_t n_values) noexcept {
  Mask<N> mask;
  QSF_EACH_REG(i, N) {
    const std::size_t first = i * kRegLanes;
    mask.r[i] = first_lanes_reg(n_values > first ? n_values - first : 0);
  }
  return mask;
}
template <unsigned N>
[[gnu::always_inline]] static inline F32<N> select(Mask<N> mask, F32<N> yes, F32<N> no) noexcept {
  F32<N> x;
  QSF_EACH_REG(i, N) x.r[i] = select_reg(mask.r[i], yes.r[i], no.r[i]);
  return x;
}
template <unsigned N>
[[gnu::always_inline]] static inline U32<N> select(Mask<N> mask, U32<N> yes, U32<N> no) noexcept {
  return bits_of(select(mask, from_bits(yes), from_bits(no)));
}

// a < b ? a : b and a > b ? a : b: of a NaN and a number b remains.
template <unsigned N>
[[gnu::always_inline]] static inline F32<N> min_of(F32<N> a, F32<N> b) noexcept {
  QSF_EACH_REG(i, N) a.r[i] = min_reg(a.r[i], b.r[i]);
  return a;
}
template <unsigned N>
[[gnu::always_inline]] static inline F32<N> max_of(F32<N> a, F32<N> b) noexcept {
  QSF_EACH_REG(i, N) a.r[i] = max_reg(a.r[i], b.r[i]);
  return a;
}

template <unsigned N>
[[gnu::always_inline]] static inline F32<N> abs(F32<N> x) noexcept {
  return from_bits(bits_of(x) & splat_u32<N>(0x7FFFFFFFU));
}
template <unsigned N>
[[gnu::always_inline]] static inline F32<N> to_f32(I32<N> x) noexcept {
  F32<N> y;
  QSF_EACH_REG(i, N) y.r[i] = __builtin_convertvector(x.r[i], F32Reg);
  return y;
}
// Rounds to nearest even. Requires  |x| <= 2^22
template <unsigned N>
[[gnu::always_inline]] static inline I32<N> round_to_i32(F32<N> x) noexcept {
  I32<N> y;
  QSF_EACH_REG(i, N) y.r[i] = round_reg(x.r[i]);
  return y;
}

template <unsigned N>
[[gnu::always_inline]] static inline I32<N> max_of(I32<N> a, I32<N> b) noexcept {
  QSF_EACH_REG(i, N) a.r[i] = max_i32_reg(a.r[i], b.r[i]);
  return a;
}

// One bit a lane.
template <unsigned N>
[[gnu::always_inline]] static inline std::uint32_t mask_bits(Mask<N> mask) noexcept {
  std::uint32_t bits = 0;
  QSF_EACH_REG(i, N) bits |= mask_bits_reg(mask.r[i]) << (i * kRegLanes);
  return bits;
}

[[gnu::always_inline]] static inline std::int32_t sum_lanes(I32<k16> x) noexcept {
  const Quarters y = quarters_of(x);
  I32x4 sum = (y.q[0] + y.q[1]) + (y.q[2] + y.q[3]);
  sum += __builtin_shufflevector(sum, sum, 2, 3, 0, 1);
  sum += __builtin_shufflevector(sum, sum, 1, 0, 3, 2);
  return sum[0];
}
[[gnu::always_inline]] static inline std::int32_t max_lane(I32<k16> x) noexcept {
  const Quarters y = quarters_of(x);
  const auto larger = [](I32x4 a, I32x4 b) QSF_INLINE { return a > b ? a : b; };
  I32x4 max = larger(larger(y.q[0], y.q[1]), larger(y.q[2], y.q[3]));
  max = larger(max, __builtin_shufflevector(max, max, 2, 3, 0, 1));
  max = larger(max, __builtin_shufflevector(max, max, 1, 0, 3, 2));
  return max[0];
}

// Lane i of the floats is lane i of the doubles.
template <unsigned N>
[[gnu::always_inline]] static inline F64<2 * N> widen(F32<N> x) noexcept {
  F64<2 * N> y;
  QSF_EACH_REG(i, N) {
    y.r[2 * i] = widen_low_reg(x.r[i]);
    y.r[2 * i + 1] = widen_high_reg(x.r[i]);
  }
  return y;
}
template <unsigned N>
[[gnu::always_inline]] static inline F32<N> narrow(F64<2 * N> x) noexcept {
  F32<N> y;
  QSF_EACH_REG(i, N) y.r[i] = narrow_reg(x.r[2 * i], x.r[2 * i + 1]);
  return y;
}

// Calls one(get, put) for each N registers of arrays of n_values and for what is left; get(array)
// loads the values that put(array, values) then stores.
template <unsigned N, typename One>
[[gnu::always_inline]] static inline void for_blocks(std::size_t n_values, One one) noexcept {
  constexpr std::size_t kLanes = std::size_t{N} * kRegLanes;
  std::size_t i = 0;
  for (; i + kLanes <= n_values; i += kLanes) {
    one([i](const float* from) QSF_INLINE { return load<F32<N>>(from + i); },
        [i](float* to, F32<N> values) QSF_INLINE { store(to + i, values); });
  }
  if (i < n_values) {
    const std::size_t rest = n_values - i;
    one([i, rest](const float* from) QSF_INLINE { return load_part<N>(from + i, rest); },
        [i, rest](float* to, F32<N> values) QSF_INLINE { store_part(to + i, values, rest); });
  }
}

// Adds sixteen lanes in one order for all tiers: lane i and lane i + 8 first, then 4, 2 and 1
// apart.
[[gnu::always_inline]] static inline double sum_lanes(F64<2 * k16> x) noexcept {
  double lanes[16];
  store(lanes, x);
  for (unsigned apart = 8; apart > 0; apart /= 2) {
    for (unsigned i = 0; i < apart; ++i) lanes[i] += lanes[i + apart];
  }
  return lanes[0];
}

}  // namespace qsf::kernels::QSF_TIER_NAMESPACE

#endif  // QSF_KERNELS_VECTORS_H_
