// SPDX-License-Identifier: MIT

#include "model/position_tables.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "base/f16.h"
#include "base/portable_math.h"

namespace qsf {
namespace {

double scale_llama3(double frequency, const RopeSpec& rope) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double turns = rope.original_context / wavelength;  // over the original context
  const double low = rope.low_freq_factor;
  const double high = rope.high_freq_factor;
  if (turns < low) return frequency / rope.factor;
  if (turns > high) return frequency;
  const double blend = (turns - low) / (high - low);
  return (1.0 - blend) * frequency / rope.factor + blend * frequency;
}

// The pairs between which yarn blends: the ones that turn beta_fast and beta_slow times over the
// original context.
struct YarnRamp {
  double low = 0.0;
  double high = 1.0;
};

YarnRamp yarn_ramp(const RopeSpec& rope, std::uint32_t dims) {
  if (rope.scaling != RopeScaling::kYarn) return {};
  const auto pair_of = [&](double turns) {
    return dims * portable::log(rope.original_context / (turns * 2.0 * std::numbers::pi)) /
           (2.0 * portable::log(static_cast<double>(rope.theta)));
  };
  YarnRamp ramp = {.low = pair_of(rope.beta_fast), .high = pair_of(rope.beta_slow)};
  if (rope.truncate) ramp = {.low = std::floor(ramp.low), .high = std::ceil(ramp.high)};
  ramp = {.low = std::max(ramp.low, 0.0), .high = std::min(ramp.high, dims - 1.0)};
  if (ramp.low == ramp.high) ramp.high += 0.001;  // as the reference does
  return ramp;
}

double scale_yarn(double frequency, const RopeSpec& rope, const YarnRamp& ramp,
                  std::uint32_t pair) {
  const double interpolated = std::clamp((pair - ramp.low) / (ramp.high - ramp.low), 0.0, 1.0);
  return frequency / rope.factor * interpolated + frequency * (1.0 - interpolated);
}

// Rounded before scaling, as the reference does.
float plain_frequency(float theta, std::uint32_t pair, std::uint32_t dims) {
  return static_cast<float>(portable::pow(static_cast<double>(theta), -2.0 * pair / dims));
}

std::uint32_t rotating_columns(const ModelSpec& spec, LayerRope rope) noexcept {
  return spec.rope.dims == 0 ? rotated_head_dim(spec, rope) : spec.rope.dims;
}

}  // namespace

std::uint32_t rotated_head_dim(const ModelSpec& spec, LayerRope rope) noexcept {
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    if (spec.rope_of(layer) == rope) return spec.attention_of(layer).head_dim;
  }
  return spec.head_dim;
}

float rope_attention_factor(const ModelSpec& spec, std::uint32_t context) noexcept {
  const float at_short = spec.rope.short_attention_factor;
  const bool is_short = at_short != 0.0F && context <= spec.rope.original_context;
  return is_short ? at_short : spec.rope.attention_factor;
}

std::vector<float> rope_inverse_frequencies(const ModelSpec& spec, std::uint32_t context) {
  std::vector<float> frequencies;
  if (spec.positions != PositionEncoding::kRope) return frequencies;
  const std::uint32_t dims = rotating_columns(spec, LayerRope::kMain);
  const bool is_long = context > spec.rope.original_context;
  const std::vector<float>& factors = is_long ? spec.rope.long_factors : spec.rope.short_factors;
  frequencies.reserve(dims / 2);
  const YarnRamp ramp = yarn_ramp(spec.rope, dims);
  for (std::uint32_t i = 0; i < dims / 2; ++i) {
    if (spec.rope.n_turning != 0 && i >= spec.rope.n_turning) {
      frequencies.push_back(0.0F);
      continue;
    }
    const float base = plain_frequency(spec.rope.theta, i, dims);
    switch (spec.rope.scaling) {
      case RopeScaling::kNone: frequencies.push_back(base); break;
      case RopeScaling::kLinear: frequencies.push_back(base / spec.rope.factor); break;
      case RopeScaling::kLlama3:
        frequencies.push_back(static_cast<float>(scale_llama3(base, spec.rope)));
        break;
      case RopeScaling::kLongrope: frequencies.push_back(base / factors[i]); break;
      case RopeScaling::kYarn:
        frequencies.push_back(static_cast<float>(scale_yarn(base, spec.rope, ramp, i)));
        break;
    }
  }
  return frequencies;
}

std::vector<float> local_rope_inverse_frequencies(const ModelSpec& spec) {
  std::vector<float> frequencies;
  const std::uint32_t dims = rotating_columns(spec, LayerRope::kLocal);
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    if (spec.rope_of(layer) != LayerRope::kLocal) continue;
    for (std::uint32_t i = 0; i < dims / 2; ++i) {
      frequencies.push_back(plain_frequency(spec.local_rope_theta, i, dims));
    }
    break;
  }
  return frequencies;
}

std::vector<float> alibi_slopes(const ModelSpec& spec) {
  std::vector<float> slopes;
  if (spec.positions != PositionEncoding::kAlibi) return slopes;
  slopes.reserve(spec.n_heads);
  const std::uint32_t n = std::bit_floor(spec.n_heads);
  for (std::uint32_t head = 0; head < spec.n_heads; ++head) {
    const double exponent = head < n ? -8.0 * (head + 1) / n : -4.0 * (2 * (head - n) + 1) / n;
    const float slope = static_cast<float>(portable::exp2(exponent));
    slopes.push_back(spec.bf16_biases ? to_f32(to_bf16(slope)) : slope);
  }
  return slopes;
}

}  // namespace qsf
