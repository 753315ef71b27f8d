// SPDX-License-Identifier: MIT
//
// CRC-32 by three methods: carry-less multiplication (x86-64), the CRC instruction (AArch64), and
// tables, which run everywhere.
//
// Based on: Kounavis and Berry, "Novel table lookup-based algorithms for high-performance CRC
// generation", 2008 (tables); Gopal et al., "Fast CRC Computation for Generic Polynomials Using
// PCLMULQDQ Instruction", Intel, 2009.

#include "base/crc32.h"

#include <array>
#include <cstddef>

#if defined(__x86_64__)
#include <immintrin.h>
#define QSF_CLMUL [[gnu::target("pclmul,sse2")]]
#elif defined(__aarch64__)
#include <arm_acle.h>

#include "base/crc32_instruction.h"
#endif

namespace qsf {
namespace {

// Tables ("slicing by 8"): eight tables, eight bytes a step.

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() noexcept {
  Tables tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U);
    tables[0][i] = crc;
  }
  for (std::size_t i = 0; i < 256; ++i) {
    for (std::size_t t = 1; t < 8; ++t) {
      const std::uint32_t before = tables[t - 1][i];
      tables[t][i] = (before >> 8) ^ tables[0][before & 0xFFU];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

std::uint32_t crc32_tables(ByteSpan bytes, std::uint32_t crc) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    const std::uint64_t word = load_le<std::uint64_t>(bytes, i) ^ crc;
    crc = kTables[7][word & 0xFFU] ^ kTables[6][(word >> 8) & 0xFFU] ^
          kTables[5][(word >> 16) & 0xFFU] ^ kTables[4][(word >> 24) & 0xFFU] ^
          kTables[3][(word >> 32) & 0xFFU] ^ kTables[2][(word >> 40) & 0xFFU] ^
          kTables[1][(word >> 48) & 0xFFU] ^ kTables[0][word >> 56];
  }
  for (; i < bytes.size(); ++i) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<std::uint32_t>(bytes[i])) & 0xFFU];
  }
  return crc;
}

#if defined(__x86_64__)

// Carry-less multiplication: 64 bytes a step fold into the next 64.
//
// The CRC is the remainder of the message, a polynomial over GF(2), by P. Bytes n bits before
// others can be multiplied by x^n mod P and added to those without changing it, so a long message
// shrinks to its last 16 bytes, which the tables finish.

// Returns x^n mod P in the form of the low half of a product: bits reflected, and shifted by one
// place, because a product of reflected numbers has one place less.
constexpr long long fold_constant(int n) noexcept {
  std::uint32_t power = 0x80000000U;
  for (int i = 0; i < n; ++i) power = (power >> 1) ^ ((power & 1U) != 0 ? 0xEDB88320U : 0U);
  return static_cast<long long>(power) << 1;
}

// The low eight bytes of a vector are 64 bits before the high ones.
constexpr long long kFold512Low = fold_constant(512 + 32);
constexpr long long kFold512High = fold_constant(512 - 32);
constexpr long long kFold128Low = fold_constant(128 + 32);
constexpr long long kFold128High = fold_constant(128 - 32);

QSF_CLMUL inline __m128i load(const std::byte* from) noexcept {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

// Returns `vector` multiplied by `constants`, plus `next`.
QSF_CLMUL inline __m128i fold(__m128i vector, __m128i constants, __m128i next) noexcept {
  const __m128i low = _mm_clmulepi64_si128(vector, constants, 0x00);
  const __m128i high = _mm_clmulepi64_si128(vector, constants, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

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

#elif defined(__aarch64__)

// The instruction for this polynomial, eight bytes each. One chain: its latency of two or three
// cycles still makes 8 GB/s at 3 GHz.

[[gnu::target("+crc")]] std::uint32_t crc32_instruction(ByteSpan bytes,
                                                        std::uint32_t crc) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) crc = __crc32d(crc, load_le<std::uint64_t>(bytes, i));
  for (; i < bytes.size(); ++i) crc = __crc32b(crc, static_cast<std::uint8_t>(bytes[i]));
  return crc;
}

#endif

bool always() noexcept {
  return true;
}

constexpr Crc32Method kMethods[] = {
#if defined(__x86_64__)
    {.name = "clmul", .is_available = has_crc32_clmul, .run = crc32_clmul},
#elif defined(__aarch64__)
    {.name = "instruction", .is_available = has_crc32_instruction, .run = crc32_instruction},
#endif
    {.name = "tables", .is_available = always, .run = crc32_tables},
};

auto choose_method() noexcept {
  const Crc32Method* method = kMethods;
  while (!method->is_available()) ++method;
  return method->run;
}

// Reflected: bit 31 is the coefficient of x^0.
constexpr std::uint32_t kPolynomial = 0xEDB88320U;
constexpr std::uint32_t kOne = 0x80000000U;
constexpr std::uint32_t kX8 = kOne >> 8;

constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) noexcept {
  std::uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit) {
    if (((a >> bit) & 1U) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1U) != 0 ? kPolynomial : 0U);  // b *= x
  }
  return product;
}

}  // namespace

std::span<const Crc32Method> crc32_methods() noexcept {
  return kMethods;
}

std::uint32_t crc32(ByteSpan bytes, std::uint32_t crc) noexcept {
  static const auto run = choose_method();
  return ~run(bytes, ~crc);
}

// Appending n zero bytes multiplies the CRC register, as a polynomial over GF(2), by x^(8n) modulo
// the CRC polynomial; by linearity crc(ab) = crc(a) * x^(8n) + crc(b).
std::uint32_t crc32_combine(std::uint32_t crc_a, std::uint32_t crc_b,
                            std::uint64_t b_bytes) noexcept {
  std::uint32_t power = kOne;
  for (std::uint32_t square = kX8; b_bytes != 0; b_bytes >>= 1) {
    if ((b_bytes & 1U) != 0) power = multiply(power, square);
    square = multiply(square, square);
  }
  return multiply(crc_a, power) ^ crc_b;
}

}  // namespace qsf
