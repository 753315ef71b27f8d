// SPDX-License-Identifier: MIT

#include "quant/bit_pack.h"

#include <cstring>

namespace qsf {

void pack_2bit(const std::uint8_t* codes, std::uint32_t block, std::byte* packed) noexcept {
  const std::uint32_t quarter = block / 4;
  for (std::uint32_t j = 0; j < quarter; ++j) {
    const unsigned byte = codes[j] | (codes[j + quarter] << 2U) | (codes[j + 2 * quarter] << 4U) |
                          (codes[j + 3 * quarter] << 6U);
    packed[j] = static_cast<std::byte>(byte);
  }
}

void unpack_2bit(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept {
  const std::uint32_t quarter = block / 4;
  for (std::uint32_t f = 0; f < 4; ++f) {
    for (std::uint32_t j = 0; j < quarter; ++j) {
      const unsigned byte = static_cast<unsigned>(packed[j]);
      codes[f * quarter + j] = static_cast<std::uint8_t>((byte >> (2 * f)) & 3U);
    }
  }
}

void pack_4bit(const std::uint8_t* codes, std::uint32_t block, std::byte* packed) noexcept {
  const std::uint32_t half = block / 2;
  for (std::uint32_t j = 0; j < half; ++j) {
    packed[j] = static_cast<std::byte>(codes[j] | (codes[j + half] << 4U));
  }
}

void unpack_4bit(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept {
  const std::uint32_t half = block / 2;
  for (std::uint32_t j = 0; j < half; ++j) {
    const unsigned byte = static_cast<unsigned>(packed[j]);
    codes[j] = static_cast<std::uint8_t>(byte & 15U);
    codes[j + half] = static_cast<std::uint8_t>(byte >> 4U);
  }
}

// Eight bytes of 0 or 1 become one byte: the factor moves bit 8i to bit 56 + i, for i = 0 .. 7.
void pack_plane(const std::uint8_t* bits, std::uint32_t block, std::byte* packed) noexcept {
  for (std::uint32_t j = 0; j < block / 8; ++j) {
    std::uint64_t eight;
    std::memcpy(&eight, bits + 8 * j, sizeof(eight));
    packed[j] = static_cast<std::byte>((eight * 0x0102040810204080U) >> 56U);
  }
}

// One byte becomes eight: byte i of the product keeps bit i alone, 0 or 2^i; adding 0x7F carries
// any set bit into bit 7 of its byte and no further.
void unpack_plane(const std::byte* packed, std::uint32_t block, std::uint8_t* bits) noexcept {
  for (std::uint32_t j = 0; j < block / 8; ++j) {
    const std::uint64_t spread =
        (static_cast<std::uint64_t>(packed[j]) * 0x0101010101010101U) & 0x8040201008040201U;
    const std::uint64_t eight = ((spread + 0x7F7F7F7F7F7F7F7FU) >> 7U) & 0x0101010101010101U;
    std::memcpy(bits + 8 * j, &eight, sizeof(eight));
  }
}

}  // namespace qsf
