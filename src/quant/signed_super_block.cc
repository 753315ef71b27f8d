// SPDX-License-Identifier: MIT

#include "quant/signed_super_block.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/f16.h"
#include "quant/affine.h"
#include "quant/codec.h"

namespace qsf {
namespace {

// Scales that the encoder uses: those of q3_k fit the 6 bits that other tools give them.
std::uint32_t top_scale(QuantType type) noexcept {
  return type == QuantType::kQ6K ? 127 : 31;
}

float largest_magnitude(std::span<const float> weights) noexcept {
  float largest = 0.0F;
  for (const float w : weights) largest = std::max(largest, std::fabs(w));
  return largest;
}

}  // namespace

void encode_signed_super_block(BlockFormat format, std::span<const float> weights,
                               MutableByteSpan out) {
  const std::uint32_t steps = code_zero(format.type) - 1U;  // of either side that both sides have
  const std::uint32_t top = top_scale(format.type);
  const F16 d = covering_scale(largest_magnitude(weights), steps * top);
  const float step = to_f32(d) * static_cast<float>(steps);
  std::fill(out.begin(), out.end(), std::byte{0});
  store_le(out, 0, d);
  std::array<std::uint8_t, kMaxBlock> codes;
  for (std::size_t first = 0; first < weights.size(); first += format.block) {
    const std::size_t k = first / format.block;
    const auto part =
        weights.subspan(first, std::min<std::size_t>(format.block, weights.size() - first));
    const float extent = largest_magnitude(part);
    std::uint32_t scale = 0;
    if (step > 0.0F) {
      scale = static_cast<std::uint32_t>(extent / step);  // at most one off: it was rounded
      if (step * static_cast<float>(scale) < extent) ++scale;
    }
    scale = std::min(scale, top);
    out[2 + k] = static_cast<std::byte>(scale);
    codes.fill(0);
    const float width = to_f32(d) * static_cast<float>(scale);
    choose_affine_codes(part, width, -width * static_cast<float>(steps), 2 * steps, codes.data());
    for (std::size_t i = 0; i < part.size(); ++i) ++codes[i];  // code 0 is a step further down
    if (scale == 0) std::fill_n(codes.begin(), part.size(), code_zero(format.type));
    block_codec(format.type)
        .pack(codes.data(), format.block, static_cast<std::uint32_t>(part.size()),
              out.data() + locate_in_row(format, k).codes);
  }
}

}  // namespace qsf
