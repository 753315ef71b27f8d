// SPDX-License-Identifier: MIT

#include "quant/q8.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/affine.h"
#include "quant/types.h"

namespace qsf {

void pack_q8(const std::uint8_t* codes, std::uint32_t block, std::uint32_t /*n_true*/,
             std::byte* packed) noexcept {
  std::memcpy(packed, codes, block);
}

void unpack_q8(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept {
  std::memcpy(codes, packed, block);
}

void encode_q8_blocks(BlockFormat format, std::span<const float> weights,
                      const QuantOptions& /*options*/, MutableByteSpan out) {
  for (std::size_t k = 0; k * format.block < weights.size(); ++k) {
    const auto part = weights_of_block(weights, format.block, k);
    float largest = 0.0F;
    for (const float w : part) largest = std::max(largest, std::fabs(w));
    const F16 scale = covering_scale(largest, 127);
    const float inverse = largest > 0.0F ? 1.0F / to_f32(scale) : 0.0F;
    std::uint8_t codes[kMaxBlock] = {};
    for (std::size_t i = 0; i < part.size(); ++i) {
      const float steps = std::clamp(part[i] * inverse, -127.0F, 127.0F);
      const int code = static_cast<int>(steps + std::copysign(0.5F, steps));
      codes[i] = static_cast<std::uint8_t>(static_cast<std::int8_t>(code));
    }
    const MutableByteSpan bytes = out.subspan(k * block_bytes(format), block_bytes(format));
    store_le(bytes, 0, scale);
    pack_q8(codes, format.block, static_cast<std::uint32_t>(part.size()), bytes.data() + 2);
  }
}

}  // namespace qsf
