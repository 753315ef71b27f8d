// SPDX-License-Identifier: MIT

#include "quant/q2a.h"

#include "quant/bit_pack.h"

namespace qsf {

void pack_q2a(const std::uint8_t* codes, std::uint32_t block, std::uint32_t /*n_true*/,
              std::byte* packed) noexcept {
  pack_2bit(codes, block, packed);
}

void unpack_q2a(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept {
  unpack_2bit(packed, block, codes);
}

}  // namespace qsf
