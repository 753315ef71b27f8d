// SPDX-License-Identifier: MIT

#include "quant/q2a.h"

#include "quant/affine.h"
#include "quant/bit_pack.h"
#include "quant/types.h"

namespace qsf {

void pack_q2a(const std::uint8_t* codes, std::uint32_t block, std::uint32_t /*n_true*/,
              std::byte* packed) noexcept {
  pack_2bit(codes, block, packed);
}

void unpack_q2a(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept {
  unpack_2bit(packed, block, codes);
}

void encode_q2a_block(std::span<const float> weights, std::uint32_t block, MutableByteSpan out) {
  const AffineFields fields = fit_affine(weights, kQ2ALevels);
  std::uint8_t codes[kMaxBlock] = {};
  choose_affine_codes(weights, to_f32(fields.scale), to_f32(fields.min), kQ2ALevels, codes);
  store_le(out, 0, fields.scale);
  store_le(out, 2, fields.min);
  pack_q2a(codes, block, static_cast<std::uint32_t>(weights.size()), out.data() + 4);
}

}  // namespace qsf
