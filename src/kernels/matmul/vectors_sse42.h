// SPDX-License-Identifier: MIT
//
// The vectors of matmul_i8_maddubs.h for SSE4.2, and for WebAssembly, whose compiler has these
// functions too.

#ifndef QSF_KERNELS_MATMUL_VECTORS_SSE42_H_
#define QSF_KERNELS_MATMUL_VECTORS_SSE42_H_

#include <smmintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace qsf::kernels {
namespace {

struct Sse42 {
  using Ints = __m128i;
  using Floats = __m128;
  static constexpr unsigned kVectors = 4;  // of a line
  static constexpr bool kHasDot = false;   // products of bytes by maddubs
  static constexpr unsigned kRows = 4;     // of weights in a vector

  // Rows of x for which a block is unpacked straight into the products.
  static constexpr std::uint32_t kFewRows = 1;
  // 12 sums; codes come from L1, since a product overwrites its operand.
  static constexpr std::uint32_t kTileRows = 3;
  static constexpr std::uint32_t kWholeTileRows = kTileRows;
  static constexpr std::uint32_t kByteTileRows = 2;

  [[gnu::always_inline]] static Ints load(const std::byte* from) noexcept {
    return _mm_load_si128(reinterpret_cast<const __m128i*>(from));
  }
  [[gnu::always_inline]] static void store(std::byte* to, Ints value) noexcept {
    _mm_store_si128(reinterpret_cast<__m128i*>(to), value);
  }
  [[gnu::always_inline]] static Ints zero() noexcept { return _mm_setzero_si128(); }
  [[gnu::always_inline]] static Ints splat_bytes(char value) noexcept {
    return _mm_set1_epi8(value);
  }
  [[gnu::always_inline]] static Ints splat_four(const std::byte* from) noexcept {
    std::int32_t four;
    std::memcpy(&four, from, sizeof(four));
    return _mm_set1_epi32(four);
  }
  [[gnu::always_inline]] static Ints both(Ints a, Ints b) noexcept { return _mm_and_si128(a, b); }
  [[gnu::always_inline]] static Ints either(Ints a, Ints b) noexcept { return _mm_or_si128(a, b); }
  [[gnu::always_inline]] static Ints differing(Ints a, Ints b) noexcept {
    return _mm_xor_si128(a, b);
  }
  [[gnu::always_inline]] static Ints differing(Ints a, Ints b, Ints c) noexcept {
    return differing(differing(a, b), c);
  }
  // a where the mask has a bit, b elsewhere.
  [[gnu::always_inline]] static Ints choose(Ints mask, Ints a, Ints b) noexcept {
    return either(both(mask, a), _mm_andnot_si128(mask, b));
  }
  // Shifts of 16-bit lanes.
  template <int kBits>
  [[gnu::always_inline]] static Ints up(Ints a) noexcept {
    return _mm_slli_epi16(a, kBits);
  }
  template <int kBits>
  [[gnu::always_inline]] static Ints down(Ints a) noexcept {
    return _mm_srli_epi16(a, kBits);
  }
  template <int kBits>
  [[gnu::always_inline]] static Ints down_signed(Ints a) noexcept {
    return _mm_srai_epi16(a, kBits);
  }
  // Shifts of 32-bit lanes.
  [[gnu::always_inline]] static Ints up32(Ints a, unsigned bits) noexcept {
    return _mm_slli_epi32(a, static_cast<int>(bits));
  }
  [[gnu::always_inline]] static Ints down32(Ints a, unsigned bits) noexcept {
    return _mm_srli_epi32(a, static_cast<int>(bits));
  }
  [[gnu::always_inline]] static Ints down32_signed(Ints a, unsigned bits) noexcept {
    return _mm_srai_epi32(a, static_cast<int>(bits));
  }
  [[gnu::always_inline]] static Ints largest(Ints a, Ints b) noexcept {
    return _mm_max_epi32(a, b);
  }
  [[gnu::always_inline]] static Floats as_floats(Ints a) noexcept { return _mm_castsi128_ps(a); }
  [[gnu::always_inline]] static Ints splat_int(int value) noexcept { return _mm_set1_epi32(value); }
  [[gnu::always_inline]] static Ints widen_words(const std::byte* from) noexcept {
    return _mm_cvtepu16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }
  [[gnu::always_inline]] static Ints repeat(__m128i a) noexcept { return a; }
  [[gnu::always_inline]] static Ints look_up(Ints table, Ints index) noexcept {
    return _mm_shuffle_epi8(table, index);
  }
  [[gnu::always_inline]] static Ints magnitude(Ints a) noexcept { return _mm_abs_epi8(a); }
  [[gnu::always_inline]] static Ints with_sign(Ints a, Ints sign) noexcept {
    return _mm_sign_epi8(a, sign);
  }
  // Products of unsigned and signed bytes, neighbours added.
  [[gnu::always_inline]] static Ints multiply_pairs(Ints a, Ints b) noexcept {
    return _mm_maddubs_epi16(a, b);
  }
  [[gnu::always_inline]] static Ints add16(Ints a, Ints b) noexcept { return _mm_add_epi16(a, b); }
  [[gnu::always_inline]] static Ints add32(Ints a, Ints b) noexcept { return _mm_add_epi32(a, b); }
  // Adds the two 16-bit lanes of every row.
  [[gnu::always_inline]] static Ints add_pairs(Ints a) noexcept {
    return _mm_madd_epi16(a, _mm_set1_epi16(1));
  }
  // Multiplies 16-bit lanes and adds the two products of every row.
  [[gnu::always_inline]] static Ints multiply_words(Ints a, Ints b) noexcept {
    return _mm_madd_epi16(a, b);
  }
  [[gnu::always_inline]] static Floats to_floats(Ints a) noexcept { return _mm_cvtepi32_ps(a); }
  // Finite halves: exponent and mantissa move to their places with copies of the sign, the mask
  // drops the copies, and one exact product rebases the exponent and normalises subnormals.
  [[gnu::always_inline]] static Floats widen_halves(const std::byte* from) noexcept {
    const __m128i halves = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    const __m128i high = _mm_srai_epi32(_mm_unpacklo_epi16(_mm_setzero_si128(), halves), 3);
    const __m128i placed = _mm_and_si128(high, _mm_set1_epi32(static_cast<int>(0x8FFFE000U)));
    return _mm_mul_ps(_mm_castsi128_ps(placed), _mm_set1_ps(0x1p112F));
  }
  [[gnu::always_inline]] static Floats splat(float value) noexcept { return _mm_set1_ps(value); }
  [[gnu::always_inline]] static Floats splat_at(const std::byte* from) noexcept {
    return _mm_load1_ps(reinterpret_cast<const float*>(from));
  }
  [[gnu::always_inline]] static Floats load_floats(const float* from) noexcept {
    return _mm_load_ps(from);
  }
  [[gnu::always_inline]] static void store(float* to, Floats value) noexcept {
    _mm_storeu_ps(to, value);
  }
  [[gnu::always_inline]] static Floats multiply(Floats a, Floats b) noexcept {
    return _mm_mul_ps(a, b);
  }
  [[gnu::always_inline]] static Floats add(Floats a, Floats b) noexcept { return _mm_add_ps(a, b); }
  [[gnu::always_inline]] static void prefetch(const std::byte* from) noexcept {
    _mm_prefetch(reinterpret_cast<const char*>(from), _MM_HINT_T0);
  }
};

}  // namespace
}  // namespace qsf::kernels

#endif  // QSF_KERNELS_MATMUL_VECTORS_SSE42_H_
