// SPDX-License-Identifier: MIT

#include "quant/codebook_block.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/f16.h"
#include "quant/block_encoders.h"
#include "quant/codec.h"
#include "quant/search/codebook_search.h"

namespace qsf {
namespace {

// The weight of the largest magnitude.
float extreme_of(std::span<const float> weights) noexcept {
  float extreme = 0.0F;
  for (const float w : weights) {
    if (std::fabs(w) > std::fabs(extreme)) extreme = w;
  }
  return extreme;
}

std::span<const float> sub_block(std::span<const float> weights, std::size_t block,
                                 std::size_t k) noexcept {
  return weights.subspan(k * block, std::min(block, weights.size() - k * block));
}

// Fields with which the first level reaches the extreme weight of every sub-block.
CodebookFields cover_extremes(BlockFormat format, std::span<const float> weights) noexcept {
  const int top = top_codebook_scale(format);
  const float first = -static_cast<float>(codebook_levels(format.type)[0]);
  CodebookFields fields;
  fields.d = covering_scale(std::fabs(extreme_of(weights)),
                            static_cast<std::uint32_t>(first) * static_cast<std::uint32_t>(top));
  const float step = to_f32(fields.d) * first;
  if (!(step > 0.0F)) return fields;
  for (std::size_t k = 0; k * format.block < weights.size(); ++k) {
    const float extreme = extreme_of(sub_block(weights, format.block, k));
    auto scale = static_cast<int>(std::fabs(extreme) / step);  // at most one off: it was rounded
    if (step * static_cast<float>(scale) < std::fabs(extreme)) ++scale;
    scale = std::min(scale, top);
    fields.scales[k] = extreme > 0.0F ? -scale : scale;
  }
  return fields;
}

}  // namespace

void put_codebook_scales(BlockFormat format, std::span<const int> scales, MutableByteSpan fields) {
  std::uint64_t words = 0;  // those of layout 0, in the order of their bytes
  for (unsigned k = 0; k < scales.size(); ++k) {
    const auto bits = static_cast<unsigned>(scales[k]);
    if (format.block == 16) {
      words |= std::uint64_t{bits & 15U} << (k / 8 * 32 + k % 4 * 8 + k / 4 % 2 * 4);
    } else {
      words |= std::uint64_t{bits >> 4U & 3U} << (k / 2 * 2 + k % 2 * 8);
      words |= std::uint64_t{bits & 15U} << (16 + k / 2 * 4 + k % 2 * 16);
    }
  }
  for (std::size_t i = 2; i < field_bytes(format); ++i, words >>= 8U) {
    fields[i] = static_cast<std::byte>(words & 255U);
  }
}

void choose_codebook_codes(QuantType type, std::span<const float> weights, float scale,
                           std::uint8_t* codes) noexcept {
  const auto levels = codebook_levels(type);
  const float inverse = scale != 0.0F ? 1.0F / scale : 0.0F;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float at = weights[i] * inverse;
    unsigned code = 0;
    for (std::size_t j = 1; j < levels.size(); ++j) {
      code += at > 0.5F * static_cast<float>(levels[j - 1] + levels[j]) ? 1U : 0U;
    }
    codes[i] = static_cast<std::uint8_t>(code);
  }
}

void encode_codebook_block(BlockFormat format, std::span<const float> weights,
                           const QuantOptions& options, MutableByteSpan out) {
  CodebookFields fields = cover_extremes(format, weights);
  if (options.rounding == Rounding::kSearch) {
    fields = search_codebook_block(format, weights, options, fields);
  }
  std::fill(out.begin(), out.end(), std::byte{0});
  store_le(out, 0, fields.d);
  const std::size_t n_sub_blocks = (weights.size() + format.block - 1) / format.block;
  put_codebook_scales(format, std::span(fields.scales).first(n_sub_blocks), out);
  std::array<std::uint8_t, kMaxCodebookBlock> codes;
  for (std::size_t k = 0; k < n_sub_blocks; ++k) {
    const auto part = sub_block(weights, format.block, k);
    codes.fill(0);
    choose_codebook_codes(format.type, part, fields.scale_of(k), codes.data());
    block_codec(format.type)
        .pack(codes.data(), format.block, static_cast<std::uint32_t>(part.size()),
              out.data() + locate_in_row(format, k).codes);
  }
}

}  // namespace qsf
