// SPDX-License-Identifier: MIT

#include "quant/q3.h"

#include <cstring>

#include "quant/bit_pack.h"
#include "quant/types.h"

namespace qsf {

void pack_q3(const std::uint8_t* codes, std::uint32_t block, std::uint32_t /*n_true*/,
             std::byte* packed) noexcept {
  std::uint8_t low[kMaxBlock];
  std::uint8_t high[kMaxBlock];
  for (std::uint32_t i = 0; i < block; ++i) {
    low[i] = codes[i] & 1U;
    high[i] = static_cast<std::uint8_t>(codes[i] >> 1U);
  }
  pack_plane(low, block, packed);
  pack_2bit(high, block, packed + block / 8);
}

void unpack_q3(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept {
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

}  // namespace qsf
