// SPDX-License-Identifier: MIT

#include "quant/signed_super_block.h"

#include <algorithm>
#include <cmath>

#include "base/f16.h"
#include "quant/affine.h"
#include "quant/search/super_search.h"

namespace qsf {
namespace {

// Scales that the encoder uses: those of q3_k fit the 6 bits that other tools give them.
int top_scale(QuantType type) noexcept {
  return type == QuantType::kQ6K ? 127 : 31;
}

float largest_magnitude(std::span<const float> weights) noexcept {
  float largest = 0.0F;
  for (const float w : weights) largest = std::max(largest, std::fabs(w));
  return largest;
}

// Scales of which `steps` of either side, which both sides have, reach every weight.
SuperFields cover_magnitudes(BlockFormat format, std::span<const float> weights, int steps,
                             int top) noexcept {
  SuperFields fields;
  fields.d = covering_scale(largest_magnitude(weights), static_cast<std::uint32_t>(steps * top));
  const float step = to_f32(fields.d) * static_cast<float>(steps);
  if (!(step > 0.0F)) return fields;
  for (std::size_t first = 0; first < weights.size(); first += format.block) {
    const float extent = largest_magnitude(
        weights.subspan(first, std::min<std::size_t>(format.block, weights.size() - first)));
    auto scale = static_cast<int>(extent / step);  // at most one off: it was rounded
    if (step * static_cast<float>(scale) < extent) ++scale;
    fields.subs[first / format.block].scale = std::min(scale, top);
  }
  return fields;
}

}  // namespace

void encode_signed_super_block(BlockFormat format, std::span<const float> weights,
                               const QuantOptions& options, MutableByteSpan out) {
  const int zero = code_zero(format.type);
  const int top = top_scale(format.type);
  const SuperGrid grid = {.codes = {.top = static_cast<float>(2 * zero - 1),
                                    .has_min = false,
                                    .zero = static_cast<float>(zero)},
                          .lowest_scale = -top,
                          .highest_scale = top,
                          .highest_min = 0};
  SuperFields fields = cover_magnitudes(format, weights, zero - 1, top);
  if (options.rounding == Rounding::kSearch) {
    fields = search_super_block(grid, weights, format.block, options, fields);
  }
  std::fill(out.begin(), out.end(), std::byte{0});
  store_le(out, 0, fields.d);
  for (std::size_t k = 0; k * format.block < weights.size(); ++k) {
    out[2 + k] = static_cast<std::byte>(fields.subs[k].scale);
  }
  pack_sub_blocks(format, grid.codes, fields, weights, out);
}

}  // namespace qsf
