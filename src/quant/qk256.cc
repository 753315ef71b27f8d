// SPDX-License-Identifier: MIT

#include "quant/qk256.h"

#include <algorithm>
#include <cstring>

namespace qsf {

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

void encode_qk256_row(std::span<const float> weights, MutableByteSpan out) noexcept {
  std::fill(out.begin(), out.end(), std::byte{0});
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float w = weights[i];
    const unsigned code = w < -1.5F ? 0U : w < 0.0F ? 1U : w < 1.5F ? 2U : 3U;
    out[i / 4] |= static_cast<std::byte>(code << (2 * (i % 4)));
  }
}

}  // namespace qsf
