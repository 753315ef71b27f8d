// SPDX-License-Identifier: MIT

#include "quant/q4.h"

#include "quant/affine.h"
#include "quant/bit_pack.h"
#include "quant/types.h"

namespace qsf {

void pack_q4(const std::uint8_t* codes, std::uint32_t block, std::uint32_t /*n_true*/,
             std::byte* packed) noexcept {
  pack_4bit(codes, block, packed);
}

void unpack_q4(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept {
  unpack_4bit(packed, block, codes);
}

void encode_q4_block(std::span<const float> weights, std::uint32_t block, MutableByteSpan out) {
  const AffineFields fields = fit_affine(weights, kQ4Levels);
  std::uint8_t codes[kMaxBlock] = {};
  choose_affine_codes(weights, to_f32(fields.scale), to_f32(fields.min), kQ4Levels, codes);
  store_le(out, 0, fields.scale);
  store_le(out, 2, fields.min);
  pack_q4(codes, block, static_cast<std::uint32_t>(weights.size()), out.data() + 4);
}

}  // namespace qsf
