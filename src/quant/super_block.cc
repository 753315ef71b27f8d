// SPDX-License-Identifier: MIT

#include "quant/super_block.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/f16.h"
#include "quant/block_encoders.h"
#include "quant/search/super_search.h"

namespace qsf {
namespace {

// The largest scale or min of a sub-block.
int top_field(QuantType type) noexcept {
  return scale_form(type) == ScaleForm::kSuperNibble ? 15 : 63;
}

struct Range {
  float lowest;  // at most 0: a min cannot be positive
  float highest;
};

struct SubBlocks {
  std::uint32_t count = 0;
  std::array<Range, kMaxSubBlocks> ranges{};
  int top = 0;  // the largest scale or min
};

// The largest weight that a sub-block can express; rounded as decoding rounds.
float top_weight(float d, int scale, float top_code, float min) noexcept {
  return d * static_cast<float>(scale) * top_code + min;
}

SubBlocks find_ranges(BlockFormat format, std::span<const float> weights) noexcept {
  const std::uint32_t block = format.block;
  SubBlocks subs;
  subs.top = top_field(format.type);
  for (std::size_t first = 0; first < weights.size(); first += block) {
    const auto part = weights.subspan(first, std::min<std::size_t>(block, weights.size() - first));
    Range range = {std::min(part[0], 0.0F), part[0]};
    for (const float w : part) {
      range.lowest = std::min(range.lowest, w);
      range.highest = std::max(range.highest, w);
    }
    subs.ranges[subs.count++] = range;
  }
  return subs;
}

// Chooses dmin to reach the lowest weight, and of every sub-block the first min that reaches its
// own.
void choose_mins(const SubBlocks& subs, SuperFields& fields) noexcept {
  float lowest = 0.0F;
  for (std::uint32_t k = 0; k < subs.count; ++k) lowest = std::min(lowest, subs.ranges[k].lowest);
  fields.dmin = f16_not_above(lowest / static_cast<float>(subs.top));
  const float step = to_f32(fields.dmin);
  if (!(step < 0.0F)) return;
  for (std::uint32_t k = 0; k < subs.count; ++k) {
    const float target = subs.ranges[k].lowest;
    auto min = static_cast<int>(target / step);  // at most one off: the quotient was rounded
    if (step * static_cast<float>(min) > target) ++min;
    fields.subs[k].min = std::min(min, subs.top);
  }
}

// Chooses d to reach the highest weight of the widest sub-block, and then every scale. As in
// fit_affine, the nearest f16 is kept where decoding with it reaches the weight, so that fields
// which weights were decoded from are found again.
void choose_scales(const SubBlocks& subs, std::uint32_t top_code, SuperFields& fields) noexcept {
  const auto steps = static_cast<float>(top_code);
  std::array<float, kMaxSubBlocks> mins{};
  std::array<float, kMaxSubBlocks> extents{};
  std::uint32_t widest = 0;
  for (std::uint32_t k = 0; k < subs.count; ++k) {
    mins[k] = to_f32(fields.dmin) * static_cast<float>(fields.subs[k].min);
    extents[k] = std::max(subs.ranges[k].highest - mins[k], 0.0F);
    if (extents[k] > extents[widest]) widest = k;
  }
  const std::uint32_t most_steps = top_code * static_cast<std::uint32_t>(subs.top);
  fields.d = to_f16(extents[widest] / static_cast<float>(most_steps));
  if (top_weight(to_f32(fields.d), subs.top, steps, mins[widest]) < subs.ranges[widest].highest) {
    fields.d = covering_scale(extents[widest], most_steps);
  }
  const float step = to_f32(fields.d) * steps;
  if (!(step > 0.0F)) {
    fields.d = F16{0};
    return;
  }
  for (std::uint32_t k = 0; k < subs.count; ++k) {
    auto scale = static_cast<int>(extents[k] / step + 0.5F);
    if (top_weight(to_f32(fields.d), scale, steps, mins[k]) < subs.ranges[k].highest) ++scale;
    fields.subs[k].scale = std::min(scale, subs.top);
  }
}

// The largest scale that the encoder uses: other tools give q3_k scales of 6 bits.
int top_scale(QuantType type) noexcept {
  return type == QuantType::kQ6K ? 127 : 31;
}

float largest_magnitude(std::span<const float> weights) noexcept {
  float largest = 0.0F;
  for (const float w : weights) largest = std::max(largest, std::fabs(w));
  return largest;
}

// Returns scales with which `steps` codes on either side of zero reach every weight.
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

void encode_super_block(BlockFormat format, std::span<const float> weights,
                        const QuantOptions& options, MutableByteSpan out) {
  const std::uint32_t top_code = largest_code(format.type);
  const SuperGrid grid = {.codes = {.top = static_cast<float>(top_code), .has_min = true},
                          .lowest_scale = 0,
                          .highest_scale = top_field(format.type),
                          .highest_min = top_field(format.type)};
  const SubBlocks subs = find_ranges(format, weights);
  SuperFields fields;
  choose_mins(subs, fields);
  choose_scales(subs, top_code, fields);
  if (options.rounding == Rounding::kSearch) {
    fields = search_super_block(grid, weights, format.block, options, fields);
  }
  std::fill(out.begin(), out.end(), std::byte{0});
  store_le(out, 0, fields.d);
  store_le(out, 2, fields.dmin);
  const std::uint32_t n_fields = kSuperColumns / format.block;
  std::uint32_t high = 0;
  for (std::uint32_t k = 0; k < subs.count; ++k) {
    const auto scale = static_cast<unsigned>(fields.subs[k].scale);
    const auto min = static_cast<unsigned>(fields.subs[k].min);
    out[4 + k] = static_cast<std::byte>((scale & 15U) | (min & 15U) << 4U);
    if (k < 8) high |= ((scale >> 4U) | (min >> 4U) << 2U) << (4 * k);
  }
  pack_sub_blocks(format, grid.codes, fields, weights, out);
  if (scale_form(format.type) == ScaleForm::kSuperNibble) return;
  for (std::uint32_t i = 0; i < n_fields / 2; ++i) {
    out[4 + n_fields + i] = static_cast<std::byte>(high >> (8 * i));
  }
}

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
