// SPDX-License-Identifier: MIT

#include "quant/affine.h"

#include <algorithm>
#include <array>

#include "quant/codec.h"
#include "quant/search/row_search.h"

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

}  // namespace

F16 f16_not_below(float value) noexcept {
  const F16 nearest = to_f16(value);
  return positive_zero(to_f32(nearest) < value ? next_up(nearest) : nearest);
}

F16 f16_not_above(float value) noexcept {
  const F16 nearest = to_f16(value);
  return positive_zero(to_f32(nearest) > value ? next_down(nearest) : nearest);
}

F16 covering_scale(float extent, std::uint32_t levels) noexcept {
  const float n_levels = static_cast<float>(levels);
  const F16 nearest = to_f16(extent / n_levels);
  if (to_f32(nearest) * n_levels >= extent) return positive_zero(nearest);
  return next_up(nearest);
}

AffineFields fit_affine(std::span<const float> weights, std::uint32_t levels) noexcept {
  float lowest = weights[0];
  float highest = weights[0];
  for (const float w : weights) {
    lowest = std::min(lowest, w);
    highest = std::max(highest, w);
  }
  const F16 min = f16_not_above(lowest);
  // The difference is rounded to f32, so a block that was decoded from these fields finds them
  // again: the nearest f16 of extent / levels is the scale it had, and it is kept if decoding with
  // it gives the highest weight back.
  const float extent = highest - to_f32(min);
  const F16 nearest = positive_zero(to_f16(extent / static_cast<float>(levels)));
  if (to_f32(nearest) * static_cast<float>(levels) + to_f32(min) >= highest) {
    return {nearest, min};
  }
  return {covering_scale(extent, levels), min};
}

void choose_affine_codes(std::span<const float> weights, float scale, float min,
                         std::uint32_t levels, std::uint8_t* codes) noexcept {
  if (scale == 0.0F) {
    std::fill_n(codes, weights.size(), std::uint8_t{0});
    return;
  }
  const float inverse = 1.0F / scale;  // at most 2^24
  const float top = static_cast<float>(levels);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float steps = (weights[i] - min) * inverse + 0.5F;
    codes[i] = static_cast<std::uint8_t>(static_cast<int>(std::clamp(steps, 0.0F, top)));
  }
}

void encode_affine_blocks(BlockFormat format, std::span<const float> weights,
                          const QuantOptions& options, MutableByteSpan out) {
  const std::uint32_t levels = (1U << code_bits(format.type)) - 1U;
  const std::size_t n_blocks = (weights.size() + format.block - 1) / format.block;
  std::array<Fields, kBlocksPerBatch> fields;
  for (std::size_t k = 0; k < n_blocks; ++k) {
    const AffineFields nearest = fit_affine(weights_of_block(weights, format.block, k), levels);
    fields[k] = {to_f32(nearest.scale), to_f32(nearest.min)};
  }
  if (options.rounding == Rounding::kSearch) {
    search_blocks(weights, format.block, options,
                  {.top = static_cast<float>(levels), .has_min = true},
                  std::span(fields).first(n_blocks));
  }
  for (std::size_t k = 0; k < n_blocks; ++k) {
    const MutableByteSpan bytes = out.subspan(k * block_bytes(format), block_bytes(format));
    const auto part = weights_of_block(weights, format.block, k);
    std::uint8_t codes[kMaxBlock] = {};
    choose_affine_codes(part, fields[k].scale, fields[k].min, levels, codes);
    store_le(bytes, 0, to_f16(fields[k].scale));
    store_le(bytes, 2, to_f16(fields[k].min));
    block_codec(format.type)
        .pack(codes, format.block, static_cast<std::uint32_t>(part.size()), bytes.data() + 4);
  }
}

}  // namespace qsf
