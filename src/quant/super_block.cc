// SPDX-License-Identifier: MIT

#include "quant/super_block.h"

#include <algorithm>
#include <array>

#include "base/f16.h"
#include "quant/affine.h"
#include "quant/codec.h"

namespace qsf {
namespace {

struct Range {
  float lowest;  // at most 0: a min cannot be positive
  float highest;
};

struct SubBlocks {
  std::uint32_t count = 0;
  std::array<Range, kMaxSubBlocks> ranges{};
  std::array<SixBitFields, kMaxSubBlocks> fields{};
  unsigned top = kSixBitTop;  // the largest scale or min
};

// The largest weight that a sub-block can express; rounded as decoding rounds.
float top_weight(float d, unsigned scale, float levels, float min) noexcept {
  return d * static_cast<float>(scale) * levels + min;
}

SubBlocks find_ranges(BlockFormat format, std::span<const float> weights) noexcept {
  const std::uint32_t block = format.block;
  SubBlocks subs;
  if (scale_form(format.type) == ScaleForm::kSuperNibble) subs.top = kFourBitTop;
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
F16 choose_mins(SubBlocks& subs) noexcept {
  float lowest = 0.0F;
  for (std::uint32_t k = 0; k < subs.count; ++k) lowest = std::min(lowest, subs.ranges[k].lowest);
  const F16 dmin = f16_not_above(lowest / static_cast<float>(subs.top));
  const float step = to_f32(dmin);
  if (!(step < 0.0F)) return dmin;
  for (std::uint32_t k = 0; k < subs.count; ++k) {
    const float target = subs.ranges[k].lowest;
    auto min = static_cast<unsigned>(target / step);  // at most one off: the quotient was rounded
    if (step * static_cast<float>(min) > target) ++min;
    subs.fields[k].min = std::min(min, subs.top);
  }
  return dmin;
}

// Chooses d to reach the highest weight of the widest sub-block, and then every scale. As in
// fit_affine, the nearest f16 is kept where decoding with it reaches the weight, so that fields
// which weights were decoded from are found again.
F16 choose_scales(SubBlocks& subs, float dmin, std::uint32_t n_levels) noexcept {
  const auto levels = static_cast<float>(n_levels);
  std::array<float, kMaxSubBlocks> mins{};
  std::array<float, kMaxSubBlocks> extents{};
  std::uint32_t widest = 0;
  for (std::uint32_t k = 0; k < subs.count; ++k) {
    mins[k] = dmin * static_cast<float>(subs.fields[k].min);
    extents[k] = std::max(subs.ranges[k].highest - mins[k], 0.0F);
    if (extents[k] > extents[widest]) widest = k;
  }
  const std::uint32_t most_steps = n_levels * subs.top;
  F16 d = to_f16(extents[widest] / static_cast<float>(most_steps));
  if (top_weight(to_f32(d), subs.top, levels, mins[widest]) < subs.ranges[widest].highest) {
    d = covering_scale(extents[widest], most_steps);
  }
  const float step = to_f32(d) * levels;
  if (!(step > 0.0F)) return F16{0};
  for (std::uint32_t k = 0; k < subs.count; ++k) {
    auto scale = static_cast<unsigned>(extents[k] / step + 0.5F);
    if (top_weight(to_f32(d), scale, levels, mins[k]) < subs.ranges[k].highest) ++scale;
    subs.fields[k].scale = std::min(scale, subs.top);
  }
  return d;
}

}  // namespace

void encode_super_block(BlockFormat format, std::span<const float> weights, MutableByteSpan out) {
  const std::uint32_t n_levels = (1U << code_bits(format.type)) - 1U;
  SubBlocks subs = find_ranges(format, weights);
  const F16 dmin = choose_mins(subs);
  const F16 d = choose_scales(subs, to_f32(dmin), n_levels);
  std::fill(out.begin(), out.end(), std::byte{0});
  store_le(out, 0, d);
  store_le(out, 2, dmin);
  const std::uint32_t n_fields = kSuperColumns / format.block;
  std::uint32_t high = 0;
  std::array<std::uint8_t, kMaxBlock> codes;
  for (std::uint32_t k = 0; k < subs.count; ++k) {
    const SixBitFields fields = subs.fields[k];
    out[4 + k] = static_cast<std::byte>((fields.scale & 15U) | (fields.min & 15U) << 4U);
    if (k < 8) high |= ((fields.scale >> 4U) | (fields.min >> 4U) << 2U) << (4 * k);
    const std::size_t first = std::size_t{k} * format.block;
    const auto part =
        weights.subspan(first, std::min<std::size_t>(format.block, weights.size() - first));
    codes.fill(0);
    choose_affine_codes(part, to_f32(d) * static_cast<float>(fields.scale),
                        to_f32(dmin) * static_cast<float>(fields.min), n_levels, codes.data());
    block_codec(format.type)
        .pack(codes.data(), format.block, static_cast<std::uint32_t>(part.size()),
              out.data() + locate_in_row(format, k).codes);
  }
  if (subs.top == kFourBitTop) return;
  for (std::uint32_t i = 0; i < n_fields / 2; ++i) {
    out[4 + n_fields + i] = static_cast<std::byte>(high >> (8 * i));
  }
}

}  // namespace qsf
