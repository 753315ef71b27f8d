// SPDX-License-Identifier: MIT

#include "quant/code_packing.h"

#include <cstring>

#include "quant/block_format.h"

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

}  // namespace

void pack_2bit(const std::uint8_t* codes, std::uint32_t block, std::uint32_t /*n_true*/,
               std::byte* packed) noexcept {
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

void pack_4bit(const std::uint8_t* codes, std::uint32_t block, std::uint32_t /*n_true*/,
               std::byte* packed) noexcept {
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

void pack_3bit(const std::uint8_t* codes, std::uint32_t block, std::uint32_t /*n_true*/,
               std::byte* packed) noexcept {
  std::uint8_t low[kMaxBlock];
  std::uint8_t high[kMaxBlock];
  for (std::uint32_t i = 0; i < block; ++i) {
    low[i] = codes[i] & 1U;
    high[i] = static_cast<std::uint8_t>(codes[i] >> 1U);
  }
  pack_plane(low, block, packed);
  pack_2bit(high, block, block, packed + block / 8);
}

void unpack_3bit(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept {
  std::uint8_t low[kMaxBlock];
  unpack_plane(packed, block, low);
  unpack_2bit(packed + block / 8, block, codes);
  for (std::uint32_t i = 0; i < block; i += 8) {  // no code byte exceeds 3, so none overflows
    std::uint64_t highs;
    std::uint64_t lows;
    std::memcpy(&highs, codes + i, sizeof(highs));
    std::memcpy(&lows, low + i, sizeof(lows));
    const std::uint64_t eight = (highs << 1U) | lows;
    std::memcpy(codes + i, &eight, sizeof(eight));
  }
}

void pack_5bit(const std::uint8_t* codes, std::uint32_t block, std::uint32_t /*n_true*/,
               std::byte* packed) noexcept {
  std::uint8_t low[kMaxBlock];
  std::uint8_t high[kMaxBlock];
  for (std::uint32_t i = 0; i < block; ++i) {
    low[i] = codes[i] & 15U;
    high[i] = static_cast<std::uint8_t>(codes[i] >> 4U);
  }
  pack_4bit(low, block, block, packed);
  pack_plane(high, block, packed + block / 2);
}

void unpack_5bit(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept {
  std::uint8_t high[kMaxBlock];
  unpack_4bit(packed, block, codes);
  unpack_plane(packed + block / 2, block, high);
  for (std::uint32_t i = 0; i < block; ++i) {
    codes[i] = static_cast<std::uint8_t>(codes[i] | high[i] << 4U);
  }
}

void pack_6bit(const std::uint8_t* codes, std::uint32_t block, std::uint32_t /*n_true*/,
               std::byte* packed) noexcept {
  std::uint8_t low[kMaxBlock];
  std::uint8_t high[kMaxBlock];
  for (std::uint32_t i = 0; i < block; ++i) {
    low[i] = codes[i] & 15U;
    high[i] = static_cast<std::uint8_t>(codes[i] >> 4U);
  }
  pack_4bit(low, block, block, packed);
  pack_2bit(high, block, block, packed + block / 2);
}

void unpack_6bit(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept {
  std::uint8_t high[kMaxBlock];
  unpack_4bit(packed, block, codes);
  unpack_2bit(packed + block / 2, block, high);
  for (std::uint32_t i = 0; i < block; ++i) {
    codes[i] = static_cast<std::uint8_t>(codes[i] | high[i] << 4U);
  }
}

void pack_8bit(const std::uint8_t* codes, std::uint32_t block, std::uint32_t /*n_true*/,
               std::byte* packed) noexcept {
  std::memcpy(packed, codes, block);
}

void unpack_8bit(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept {
  std::memcpy(codes, packed, block);
}

void pack_ternary(const std::uint8_t* codes, std::uint32_t block, std::uint32_t n_true,
                  std::byte* packed) noexcept {
  std::uint8_t sign[kMaxBlock] = {};
  std::uint8_t zero[kMaxBlock] = {};
  for (std::uint32_t i = 0; i < n_true; ++i) {
    sign[i] = codes[i] == 0 ? 1 : 0;
    zero[i] = codes[i] == 1 ? 1 : 0;
  }
  pack_plane(sign, block, packed);
  pack_plane(zero, block, packed + block / 8);
}

void unpack_ternary(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept {
  std::uint8_t sign[kMaxBlock];
  unpack_plane(packed, block, sign);
  unpack_plane(packed + block / 8, block, codes);
  constexpr std::uint64_t kOnes = 0x0101010101010101U;
  for (std::uint32_t i = 0; i < block; i += 8) {  // 1 under a zero bit, else 2 - 2 * sign
    std::uint64_t signs;
    std::uint64_t zeros;
    std::memcpy(&signs, sign + i, sizeof(signs));
    std::memcpy(&zeros, codes + i, sizeof(zeros));
    const std::uint64_t eight = zeros | (((signs ^ kOnes) & (zeros ^ kOnes)) << 1U);
    std::memcpy(codes + i, &eight, sizeof(eight));
  }
}

void pack_qk256(const std::uint8_t* codes, std::uint32_t block, std::uint32_t /*n_true*/,
                std::byte* packed) noexcept {
  for (std::uint32_t b = 0; b < block / 4; ++b) {
    unsigned byte = 0;
    for (unsigned f = 0; f < 4; ++f) byte |= static_cast<unsigned>(codes[4 * b + f]) << (2 * f);
    packed[b] = static_cast<std::byte>(byte);
  }
}

void unpack_qk256(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept {
  for (std::uint32_t b = 0; b < block / 4; ++b) {  // bits 2f, 2f+1 go to the bottom of byte f
    const auto byte = static_cast<std::uint32_t>(packed[b]);
    const std::uint32_t four = (byte | byte << 6U | byte << 12U | byte << 18U) & 0x03030303U;
    std::memcpy(codes + std::size_t{4} * b, &four, sizeof(four));
  }
}

}  // namespace qsf
