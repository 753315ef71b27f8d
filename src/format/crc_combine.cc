// SPDX-License-Identifier: MIT
//
// Appending n zero bytes multiplies the CRC register, as a polynomial over GF(2), by x^(8n) modulo
// the CRC polynomial; by linearity crc(ab) = crc(a) * x^(8n) + crc(b).

#include "format/crc_combine.h"

namespace qsf {
namespace {

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
