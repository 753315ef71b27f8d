// SPDX-License-Identifier: MIT

#include "model/position_tables.h"

#include <bit>
#include <cmath>
#include <numbers>

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

}  // namespace

std::vector<float> rope_inverse_frequencies(const ModelSpec& spec, std::uint32_t context) {
  std::vector<float> frequencies;
  if (spec.positions != PositionEncoding::kRope) return frequencies;
  const std::uint32_t dims = spec.rope_dims();
  const bool is_long = context > spec.rope.original_context;
  const std::vector<float>& factors = is_long ? spec.rope.long_factors : spec.rope.short_factors;
  frequencies.reserve(dims / 2);
  for (std::uint32_t i = 0; i < dims / 2; ++i) {
    // Rounded before scaling, as the reference does. Computed once per model, so the C library's
    // pow is good enough: its last-bit differences vanish in the rounding to f32 all but never.
    const float base =
        static_cast<float>(std::pow(static_cast<double>(spec.rope.theta), -2.0 * i / dims));
    switch (spec.rope.scaling) {
      case RopeScaling::kNone: frequencies.push_back(base); break;
      case RopeScaling::kLinear: frequencies.push_back(base / spec.rope.factor); break;
      case RopeScaling::kLlama3:
        frequencies.push_back(static_cast<float>(scale_llama3(base, spec.rope)));
        break;
      case RopeScaling::kLongrope: frequencies.push_back(base / factors[i]); break;
    }
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
    slopes.push_back(static_cast<float>(std::exp2(exponent)));
  }
  return slopes;
}

}  // namespace qsf
