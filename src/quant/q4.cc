// SPDX-License-Identifier: MIT

#include "quant/q4.h"

#include "quant/bit_pack.h"

namespace qsf {

void pack_q4(const std::uint8_t* codes, std::uint32_t block, std::uint32_t /*n_true*/,
             std::byte* packed) noexcept {
  pack_4bit(codes, block, packed);
}

void unpack_q4(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept {
  unpack_4bit(packed, block, codes);
}

}  // namespace qsf
