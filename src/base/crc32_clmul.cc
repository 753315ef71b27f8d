// SPDX-License-Identifier: MIT
//
// CRC-32 by carry-less multiplication: 64 bytes a step fold into the next 64.
//
// The CRC is the remainder of the message, a polynomial over GF(2), by P. Bytes that stand n bits
// before others may be multiplied by x^n mod P and added to those without changing it, so a long
// message shrinks to its last 16 bytes, which the tables finish.
//
// Based on: Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
// Instruction", Intel, 2009.

#include "base/crc32_methods.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstddef>

#define QSF_CLMUL [[gnu::target("pclmul,sse2")]]

namespace qsf {
namespace {

// Returns x^n mod P as the low half of a product wants it: bits reflected, shifted by the one place
// that a product of reflected numbers lacks.
constexpr long long fold_constant(int n) noexcept {
  std::uint32_t power = 0x80000000U;
  for (int i = 0; i < n; ++i) power = (power >> 1) ^ ((power & 1U) != 0 ? 0xEDB88320U : 0U);
  return static_cast<long long>(power) << 1;
}

// The low eight bytes of a vector stand 64 bits further ahead than the high ones.
constexpr long long kFold512Low = fold_constant(512 + 32);
constexpr long long kFold512High = fold_constant(512 - 32);
constexpr long long kFold128Low = fold_constant(128 + 32);
constexpr long long kFold128High = fold_constant(128 - 32);

QSF_CLMUL inline __m128i load(const std::byte* from) noexcept {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

// Returns `vector` moved ahead by what `constants` stand for, plus `next`.
QSF_CLMUL inline __m128i fold(__m128i vector, __m128i constants, __m128i next) noexcept {
  const __m128i low = _mm_clmulepi64_si128(vector, constants, 0x00);
  const __m128i high = _mm_clmulepi64_si128(vector, constants, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

}  // namespace

bool has_crc32_clmul() noexcept {
  return __builtin_cpu_supports("pclmul") != 0;
}

QSF_CLMUL std::uint32_t crc32_clmul(ByteSpan bytes, std::uint32_t crc) noexcept {
  constexpr std::size_t kStep = 64;
  if (bytes.size() < 2 * kStep) return crc32_tables(bytes, crc);
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  const __m128i by_512 = _mm_set_epi64x(kFold512High, kFold512Low);
  const __m128i by_128 = _mm_set_epi64x(kFold128High, kFold128Low);

  __m128i x0 = _mm_xor_si128(load(at), _mm_cvtsi32_si128(static_cast<int>(crc)));
  __m128i x1 = load(at + 16);
  __m128i x2 = load(at + 32);
  __m128i x3 = load(at + 48);
  for (at += kStep, left -= kStep; left >= kStep; at += kStep, left -= kStep) {
    x0 = fold(x0, by_512, load(at));
    x1 = fold(x1, by_512, load(at + 16));
    x2 = fold(x2, by_512, load(at + 32));
    x3 = fold(x3, by_512, load(at + 48));
  }
  x0 = fold(fold(fold(x0, by_128, x1), by_128, x2), by_128, x3);
  for (; left >= 16; at += 16, left -= 16) x0 = fold(x0, by_128, load(at));

  alignas(16) std::byte rest[16];
  _mm_store_si128(reinterpret_cast<__m128i*>(rest), x0);
  return crc32_tables({at, left}, crc32_tables(rest, 0));
}

}  // namespace qsf

#else

namespace qsf {

bool has_crc32_clmul() noexcept {
  return false;
}
std::uint32_t crc32_clmul(ByteSpan bytes, std::uint32_t crc) noexcept {
  return crc32_tables(bytes, crc);
}

}  // namespace qsf

#endif
