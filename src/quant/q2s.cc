// SPDX-License-Identifier: MIT

#include "quant/q2s.h"

#include <algorithm>
#include <cmath>

#include "base/f16.h"
#include "quant/bit_pack.h"
#include "quant/block_search.h"

namespace qsf {
namespace {

// The nearest level: floor(w / scale + 2) rounds w / scale + 1.5.
unsigned nearest_code(float w, float inverse) noexcept {
  return static_cast<unsigned>(static_cast<int>(std::clamp(w * inverse + 2.0F, 0.0F, 3.0F)));
}

struct Trial {
  double squared_error;
  double best_scale;  // least squares for the codes that this scale leads to
};

Trial try_scale(std::span<const float> weights, float scale) noexcept {
  const float inverse = scale > 0.0F ? 1.0F / scale : 0.0F;
  double error = 0.0;
  double weight_level = 0.0;
  double level_level = 0.0;
  for (const float w : weights) {
    const double level = static_cast<double>(nearest_code(w, inverse)) - 1.5;
    const double difference = static_cast<double>(w) - scale * level;
    error += difference * difference;
    weight_level += w * level;
    level_level += level * level;
  }
  return {error, weight_level / level_level};
}

// Candidates: the scale that just covers the block, 15 smaller ones that clip it, and then two
// steps of least squares from the best of those. The covering scale comes first and only a smaller
// error replaces it, so a block made of the four levels is found exactly.
F16 choose_scale(std::span<const float> weights) noexcept {
  float largest = 0.0F;
  for (const float w : weights) largest = std::max(largest, std::fabs(w));
  F16 best = to_f16(largest / 1.5F);
  Trial best_trial = try_scale(weights, to_f32(best));
  for (int step = 1; step < 16; ++step) {
    const F16 scale = to_f16(largest / 1.5F * (1.0F - static_cast<float>(step) / 24.0F));
    const Trial trial = try_scale(weights, to_f32(scale));
    if (trial.squared_error < best_trial.squared_error) {
      best = scale;
      best_trial = trial;
    }
  }
  for (int step = 0; step < 2; ++step) {
    const F16 scale = to_f16(static_cast<float>(std::max(best_trial.best_scale, 0.0)));
    const Trial trial = try_scale(weights, to_f32(scale));
    if (!(trial.squared_error < best_trial.squared_error)) break;
    best = scale;
    best_trial = trial;
  }
  return best;
}

}  // namespace

void pack_q2s(const std::uint8_t* codes, std::uint32_t block, std::uint32_t /*n_true*/,
              std::byte* packed) noexcept {
  pack_2bit(codes, block, packed);
}

void unpack_q2s(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept {
  unpack_2bit(packed, block, codes);
}

void encode_q2s_block(BlockFormat format, std::span<const float> weights,
                      const QuantOptions& options, MutableByteSpan out) {
  F16 scale = choose_scale(weights);
  if (options.rounding == Rounding::kSearch) {
    scale = search_scale(weights, options, {.top = 3.0F, .has_min = false, .zero = 1.5F}, scale);
  }
  std::uint8_t codes[kMaxBlock] = {};
  if (to_f32(scale) > 0.0F) {
    const float inverse = 1.0F / to_f32(scale);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      codes[i] = static_cast<std::uint8_t>(nearest_code(weights[i], inverse));
    }
  }
  store_le(out, 0, scale);
  pack_q2s(codes, format.block, static_cast<std::uint32_t>(weights.size()), out.data() + 2);
}

}  // namespace qsf
