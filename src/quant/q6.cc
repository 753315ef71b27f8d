// SPDX-License-Identifier: MIT

#include "quant/q6.h"

#include "quant/bit_pack.h"
#include "quant/types.h"

namespace qsf {

void pack_q6(const std::uint8_t* codes, std::uint32_t block, std::uint32_t /*n_true*/,
             std::byte* packed) noexcept {
  std::uint8_t low[kMaxBlock];
  std::uint8_t high[kMaxBlock];
  for (std::uint32_t i = 0; i < block; ++i) {
    low[i] = codes[i] & 15U;
    high[i] = static_cast<std::uint8_t>(codes[i] >> 4U);
  }
  pack_4bit(low, block, packed);
  pack_2bit(high, block, packed + block / 2);
}

void unpack_q6(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept {
  std::uint8_t high[kMaxBlock];
  unpack_4bit(packed, block, codes);
  unpack_2bit(packed + block / 2, block, high);
  for (std::uint32_t i = 0; i < block; ++i) {
    codes[i] = static_cast<std::uint8_t>(codes[i] | high[i] << 4U);
  }
}

}  // namespace qsf
