// SPDX-License-Identifier: MIT

#include "quant/block_encoders.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "quant/code_packing.h"
#include "quant/codec.h"
#include "quant/search/block_search.h"
#include "quant/search/search_loops.h"

namespace qsf {
namespace {

// The next f16 towards +infinity. Requires  finite, below the largest.
F16 next_up(F16 h) noexcept {
  if ((h.bits & 0x7FFFU) == 0) return {1};
  return {static_cast<std::uint16_t>((h.bits & 0x8000U) != 0 ? h.bits - 1 : h.bits + 1)};
}
F16 next_down(F16 h) noexcept {
  if ((h.bits & 0x7FFFU) == 0) return {0x8001};
  return {static_cast<std::uint16_t>((h.bits & 0x8000U) != 0 ? h.bits + 1 : h.bits - 1)};
}
F16 positive_zero(F16 h) noexcept {
  return (h.bits & 0x7FFFU) == 0 ? F16{0} : h;
}

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

F16 f16_not_below(float value) noexcept {
  const F16 nearest = to_f16(value);
  return positive_zero(to_f32(nearest) < value ? next_up(nearest) : nearest);
}

F16 f16_not_above(float value) noexcept {
  const F16 nearest = to_f16(value);
  return positive_zero(to_f32(nearest) > value ? next_down(nearest) : nearest);
}

F16 covering_scale(float extent, std::uint32_t top) noexcept {
  const float steps = static_cast<float>(top);
  const F16 nearest = to_f16(extent / steps);
  if (to_f32(nearest) * steps >= extent) return positive_zero(nearest);
  return next_up(nearest);
}

AffineFields fit_affine(std::span<const float> weights, std::uint32_t top) noexcept {
  float lowest = weights[0];
  float highest = weights[0];
  for (const float w : weights) {
    lowest = std::min(lowest, w);
    highest = std::max(highest, w);
  }
  const F16 min = f16_not_above(lowest);
  // The difference is rounded to f32, so a block that was decoded from these fields finds them
  // again: the nearest f16 of extent / top is the scale it had, and it is kept if decoding with
  // it gives the highest weight back.
  const float extent = highest - to_f32(min);
  const F16 nearest = positive_zero(to_f16(extent / static_cast<float>(top)));
  if (to_f32(nearest) * static_cast<float>(top) + to_f32(min) >= highest) {
    return {nearest, min};
  }
  return {covering_scale(extent, top), min};
}

void choose_affine_codes(std::span<const float> weights, float scale, float min, std::uint32_t top,
                         std::uint8_t* codes) noexcept {
  if (scale == 0.0F) {
    std::fill_n(codes, weights.size(), std::uint8_t{0});
    return;
  }
  const float inverse = 1.0F / scale;  // at most 2^24
  const float highest = static_cast<float>(top);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float steps = (weights[i] - min) * inverse + 0.5F;
    codes[i] = static_cast<std::uint8_t>(static_cast<int>(std::clamp(steps, 0.0F, highest)));
  }
}

void encode_affine_blocks(BlockFormat format, std::span<const float> weights,
                          const QuantOptions& options, MutableByteSpan out) {
  const std::uint32_t top = largest_code(format.type);
  const std::size_t n_blocks = (weights.size() + format.block - 1) / format.block;
  std::array<Fields, kBlocksPerBatch> fields;
  for (std::size_t k = 0; k < n_blocks; ++k) {
    const AffineFields nearest = fit_affine(weights_of_block(weights, format.block, k), top);
    fields[k] = {to_f32(nearest.scale), to_f32(nearest.min)};
  }
  if (options.rounding == Rounding::kSearch) {
    search_blocks(weights, format.block, options, {.top = static_cast<float>(top), .has_min = true},
                  std::span(fields).first(n_blocks));
  }
  for (std::size_t k = 0; k < n_blocks; ++k) {
    const MutableByteSpan bytes = out.subspan(k * block_bytes(format), block_bytes(format));
    const auto part = weights_of_block(weights, format.block, k);
    std::uint8_t codes[kMaxBlock] = {};
    choose_affine_codes(part, fields[k].scale, fields[k].min, top, codes);
    store_le(bytes, 0, to_f16(fields[k].scale));
    store_le(bytes, 2, to_f16(fields[k].min));
    block_codec(format.type)
        .pack(codes, format.block, static_cast<std::uint32_t>(part.size()), bytes.data() + 4);
  }
}

void encode_2bit_symmetric_blocks(BlockFormat format, std::span<const float> weights,
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
    pack_2bit(codes, format.block, static_cast<std::uint32_t>(part.size()), bytes.data() + 2);
  }
}

void encode_8bit_blocks(BlockFormat format, std::span<const float> weights,
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
    pack_8bit(codes, format.block, static_cast<std::uint32_t>(part.size()), bytes.data() + 2);
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
