// SPDX-License-Identifier: MIT

#include "quant/q2s.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/f16.h"
#include "quant/bit_pack.h"
#include "quant/search/row_search.h"

namespace qsf {
namespace {

// The nearest level: floor(w / scale + 2) rounds w / scale + 1.5.
unsigned nearest_code(float w, float inverse) noexcept {
  return static_cast<unsigned>(static_cast<int>(std::clamp(w * inverse + 2.0F, 0.0F, 3.0F)));
}

// The scale that just reaches the largest weight, with which a block made of the four levels is
// exact.
float reaching_scale(std::span<const float> weights) noexcept {
  float largest = 0.0F;
  for (const float w : weights) largest = std::max(largest, std::fabs(w));
  return to_f32(to_f16(largest / 1.5F));
}

}  // namespace

void pack_q2s(const std::uint8_t* codes, std::uint32_t block, std::uint32_t /*n_true*/,
              std::byte* packed) noexcept {
  pack_2bit(codes, block, packed);
}

void unpack_q2s(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept {
  unpack_2bit(packed, block, codes);
}

void encode_q2s_blocks(BlockFormat format, std::span<const float> weights,
                       const QuantOptions& options, MutableByteSpan out) {
  constexpr CodeGrid kGrid = {.top = 3.0F, .has_min = false, .zero = 1.5F};
  const std::size_t n_blocks = (weights.size() + format.block - 1) / format.block;
  std::array<Fields, kBlocksPerBatch> fields;
  for (std::size_t k = 0; k < n_blocks; ++k) {
    const float scale = reaching_scale(weights_of_block(weights, format.block, k));
    fields[k] = {scale, kGrid.tied_min(scale)};
  }
  search_blocks(weights, format.block,
                options.rounding == Rounding::kSearch ? options : QuantOptions{}, kGrid,
                std::span(fields).first(n_blocks));
  for (std::size_t k = 0; k < n_blocks; ++k) {
    const auto part = weights_of_block(weights, format.block, k);
    const float scale = std::max(fields[k].scale, 0.0F);
    std::uint8_t codes[kMaxBlock] = {};
    if (scale > 0.0F) {
      const float inverse = 1.0F / scale;
      for (std::size_t i = 0; i < part.size(); ++i) {
        codes[i] = static_cast<std::uint8_t>(nearest_code(part[i], inverse));
      }
    }
    const MutableByteSpan bytes = out.subspan(k * block_bytes(format), block_bytes(format));
    store_le(bytes, 0, to_f16(scale));
    pack_q2s(codes, format.block, static_cast<std::uint32_t>(part.size()), bytes.data() + 2);
  }
}

}  // namespace qsf
