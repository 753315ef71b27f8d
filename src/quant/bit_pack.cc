// SPDX-License-Identifier: MIT

#include "quant/bit_pack.h"

#include <cstring>

namespace qsf {
namespace {

std::uint64_t load_eight(const void* from) noexcept {
  std::uint64_t eight;
  std::memcpy(&eight, from, sizeof(eight));
  return eight;
}
void store_eight(void* to, std::uint64_t eight) noexcept {
  std::memcpy(to, &eight, sizeof(eight));
}

}  // namespace

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
  if (quarter == 4) {
    std::uint32_t four;
    std::memcpy(&four, packed, sizeof(four));
    for (std::uint32_t f = 0; f < 4; ++f) {
      const std::uint32_t run = (four >> (2 * f)) & 0x03030303U;
      std::memcpy(codes + 4 * f, &run, sizeof(run));
    }
    return;
  }
  for (std::uint32_t j = 0; j < quarter; j += 8) {
    const std::uint64_t eight = load_eight(packed + j);
    for (std::uint32_t f = 0; f < 4; ++f) {
      store_eight(codes + f * quarter + j, (eight >> (2 * f)) & 0x0303030303030303U);
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
  for (std::uint32_t j = 0; j < half; j += 8) {
    const std::uint64_t eight = load_eight(packed + j);
    store_eight(codes + j, eight & 0x0F0F0F0F0F0F0F0FU);
    store_eight(codes + half + j, (eight >> 4U) & 0x0F0F0F0F0F0F0F0FU);
  }
}

// Eight bytes of 0 or 1 become one byte: the factor moves bit 8i to bit 56 + i, for i = 0 .. 7.
void pack_plane(const std::uint8_t* bits, std::uint32_t block, std::byte* packed) noexcept {
  for (std::uint32_t j = 0; j < block / 8; ++j) {
    const std::uint64_t eight = load_eight(bits + 8 * j);
    packed[j] = static_cast<std::byte>((eight * 0x0102040810204080U) >> 56U);
  }
}

// One byte becomes eight: byte i of the product keeps bit i alone, 0 or 2^i; adding 0x7F carries
// any set bit into bit 7 of its byte and no further.
void unpack_plane(const std::byte* packed, std::uint32_t block, std::uint8_t* bits) noexcept {
  for (std::uint32_t j = 0; j < block / 8; ++j) {
    const std::uint64_t spread =
        (static_cast<std::uint64_t>(packed[j]) * 0x0101010101010101U) & 0x8040201008040201U;
    store_eight(bits + 8 * j, ((spread + 0x7F7F7F7F7F7F7F7FU) >> 7U) & 0x0101010101010101U);
  }
}

}  // namespace qsf
