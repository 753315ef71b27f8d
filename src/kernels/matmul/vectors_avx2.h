// SPDX-License-Identifier: MIT
//
// The vectors of the AVX2 tier as matmul_maddubs.h takes them. In an unnamed namespace, so that
// nothing made from them leaves the object that includes it.

#ifndef QSF_KERNELS_MATMUL_VECTORS_AVX2_H_
#define QSF_KERNELS_MATMUL_VECTORS_AVX2_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace qsf::kernels {
namespace {

struct Avx2 {
  using Ints = __m256i;
  using Floats = __m256;
  static constexpr unsigned kVectors = 2;  // of a line
  static constexpr unsigned kRows = 8;     // of weights in a vector
  static constexpr bool kHasDot = false;   // products of bytes by maddubs

  // Rows of x for which a block is unpacked straight into the products.
  static constexpr std::uint32_t kFewRows = 4;
  // 12 sums, two vectors of codes, one of x and one product: all sixteen registers.
  static constexpr std::uint32_t kTileRows = 6;
  // 8 sums of a sub-block, more than which would leave no register to the sums of 64 columns.
  static constexpr std::uint32_t kWholeTileRows = 4;
  // 8 sums, two vectors of codes and two of their magnitudes.
  static constexpr std::uint32_t kByteTileRows = 4;

  [[gnu::always_inline]] static Ints load(const std::byte* from) noexcept {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
  }
  [[gnu::always_inline]] static void store(std::byte* to, Ints value) noexcept {
    _mm256_store_si256(reinterpret_cast<__m256i*>(to), value);
  }
  [[gnu::always_inline]] static Ints zero() noexcept { return _mm256_setzero_si256(); }
  [[gnu::always_inline]] static Ints splat_bytes(char value) noexcept {
    return _mm256_set1_epi8(value);
  }
  [[gnu::always_inline]] static Ints splat_four(const std::byte* from) noexcept {
    std::int32_t four;
    std::memcpy(&four, from, sizeof(four));
    return _mm256_set1_epi32(four);
  }
  [[gnu::always_inline]] static Ints both(Ints a, Ints b) noexcept {
    return _mm256_and_si256(a, b);
  }
  [[gnu::always_inline]] static Ints differing(Ints a, Ints b) noexcept {
    return _mm256_xor_si256(a, b);
  }
  [[gnu::always_inline]] static Ints either(Ints a, Ints b) noexcept {
    return _mm256_or_si256(a, b);
  }
  [[gnu::always_inline]] static Ints differing(Ints a, Ints b, Ints c) noexcept {
    return differing(differing(a, b), c);
  }
  // a where the mask has a bit, b elsewhere.
  [[gnu::always_inline]] static Ints choose(Ints mask, Ints a, Ints b) noexcept {
    return either(both(mask, a), _mm256_andnot_si256(mask, b));
  }
  // Shifts of 16-bit lanes.
  template <int kBits>
  [[gnu::always_inline]] static Ints up(Ints a) noexcept {
    return _mm256_slli_epi16(a, kBits);
  }
  template <int kBits>
  [[gnu::always_inline]] static Ints down(Ints a) noexcept {
    return _mm256_srli_epi16(a, kBits);
  }
  template <int kBits>
  [[gnu::always_inline]] static Ints down_signed(Ints a) noexcept {
    return _mm256_srai_epi16(a, kBits);
  }
  // Shifts of 32-bit lanes.
  [[gnu::always_inline]] static Ints up32(Ints a, unsigned bits) noexcept {
    return _mm256_slli_epi32(a, static_cast<int>(bits));
  }
  [[gnu::always_inline]] static Ints down32(Ints a, unsigned bits) noexcept {
    return _mm256_srli_epi32(a, static_cast<int>(bits));
  }
  [[gnu::always_inline]] static Ints down32_signed(Ints a, unsigned bits) noexcept {
    return _mm256_srai_epi32(a, static_cast<int>(bits));
  }
  [[gnu::always_inline]] static Ints largest(Ints a, Ints b) noexcept {
    return _mm256_max_epi32(a, b);
  }
  [[gnu::always_inline]] static Floats as_floats(Ints a) noexcept { return _mm256_castsi256_ps(a); }
  [[gnu::always_inline]] static Ints splat_int(int value) noexcept {
    return _mm256_set1_epi32(value);
  }
  [[gnu::always_inline]] static Ints widen_words(const std::byte* from) noexcept {
    return _mm256_cvtepu16_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(from)));
  }
  [[gnu::always_inline]] static Ints repeat(__m128i a) noexcept {
    return _mm256_broadcastsi128_si256(a);
  }
  [[gnu::always_inline]] static Ints look_up(Ints table, Ints index) noexcept {
    return _mm256_shuffle_epi8(table, index);
  }
  [[gnu::always_inline]] static Ints magnitude(Ints a) noexcept { return _mm256_abs_epi8(a); }
  [[gnu::always_inline]] static Ints with_sign(Ints a, Ints sign) noexcept {
    return _mm256_sign_epi8(a, sign);
  }
  // Products of unsigned and signed bytes, neighbours added.
  [[gnu::always_inline]] static Ints multiply_pairs(Ints a, Ints b) noexcept {
    return _mm256_maddubs_epi16(a, b);
  }
  [[gnu::always_inline]] static Ints add16(Ints a, Ints b) noexcept {
    return _mm256_add_epi16(a, b);
  }
  [[gnu::always_inline]] static Ints add32(Ints a, Ints b) noexcept {
    return _mm256_add_epi32(a, b);
  }
  // Adds the two 16-bit lanes of every row.
  [[gnu::always_inline]] static Ints add_pairs(Ints a) noexcept {
    return _mm256_madd_epi16(a, _mm256_set1_epi16(1));
  }
  // Multiplies 16-bit lanes and adds the two products of every row.
  [[gnu::always_inline]] static Ints multiply_words(Ints a, Ints b) noexcept {
    return _mm256_madd_epi16(a, b);
  }
  [[gnu::always_inline]] static Floats to_floats(Ints a) noexcept { return _mm256_cvtepi32_ps(a); }
  [[gnu::always_inline]] static Floats widen_halves(const std::byte* from) noexcept {
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(from)));
  }
  [[gnu::always_inline]] static Floats splat(float value) noexcept { return _mm256_set1_ps(value); }
  [[gnu::always_inline]] static Floats splat_at(const std::byte* from) noexcept {
    return _mm256_broadcast_ss(reinterpret_cast<const float*>(from));
  }
  [[gnu::always_inline]] static Floats load_floats(const float* from) noexcept {
    return _mm256_load_ps(from);
  }
  [[gnu::always_inline]] static void store(float* to, Floats value) noexcept {
    _mm256_storeu_ps(to, value);
  }
  [[gnu::always_inline]] static Floats multiply(Floats a, Floats b) noexcept {
    return _mm256_mul_ps(a, b);
  }
  [[gnu::always_inline]] static Floats add(Floats a, Floats b) noexcept {
    return _mm256_add_ps(a, b);
  }
  [[gnu::always_inline]] static void prefetch(const std::byte* from) noexcept {
    _mm_prefetch(reinterpret_cast<const char*>(from), _MM_HINT_T0);
  }
};

}  // namespace
}  // namespace qsf::kernels

#endif  // QSF_KERNELS_MATMUL_VECTORS_AVX2_H_
