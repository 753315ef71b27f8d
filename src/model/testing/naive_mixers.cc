// SPDX-License-Identifier: MIT
//
// Layers of NaiveModel that have a state in place of attention, or beside it.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/testing/naive_activations.h"
#include "model/testing/naive_model.h"

namespace qsf::testing_support {

std::vector<NaiveModel::Row> NaiveModel::short_conv(std::uint32_t section,
                                                    const std::vector<Row>& rows) const {
  using enum TensorKind;
  const std::size_t n = spec_.hidden;
  const Weights& taps = weights(section, kConvTaps);
  const Weights& bias = weights(section, kConvBias);
  std::vector<Row> gated;
  std::vector<Row> out;
  for (const Row& x : rows) {
    const Row parts = product(section, kMixerIn, kMixerInBias, x);  // B, C, x
    gated.emplace_back(n);
    Row y(n);
    for (std::size_t c = 0; c < n; ++c) {
      gated.back()[c] = parts[c] * parts[2 * n + c];
      for (std::size_t back = 0; back < spec_.conv_taps && back < gated.size(); ++back) {
        const std::size_t tap = spec_.conv_taps - 1 - back;
        y[c] += taps[tap * n + c] * gated[gated.size() - 1 - back][c];
      }
      y[c] = (y[c] + (bias.empty() ? 0.0F : bias[c])) * parts[n + c];
    }
    out.push_back(product(section, kMixerOut, kMixerOutBias, y));
  }
  return out;
}

std::vector<NaiveModel::Row> NaiveModel::mamba2(std::uint32_t section,
                                                const std::vector<Row>& rows) const {
  using enum TensorKind;
  const std::size_t n_inner = spec_.mixer_out();
  const std::size_t n_channels = spec_.conv_channels();
  const std::size_t n_state = spec_.mixer_state;
  const Weights& taps = weights(section, kConvTaps);
  const Weights& conv_bias = weights(section, kConvBias);
  const Weights& gain = weights(section, kScanNorm);
  std::vector<Row> parts;
  std::vector<double> h(n_inner * n_state);
  std::vector<Row> out;
  for (const Row& row : rows) {
    parts.push_back(product(section, kMixerIn, kMixerInBias, row));  // z, the convolution's, t
    Row v(n_channels);                                               // x, B, C
    for (std::size_t c = 0; c < n_channels; ++c) {
      for (std::size_t back = 0; back < spec_.conv_taps && back < parts.size(); ++back) {
        const std::size_t tap = spec_.conv_taps - 1 - back;
        v[c] += taps[tap * n_channels + c] * parts[parts.size() - 1 - back][n_inner + c];
      }
      v[c] = activated(Activation::kSilu, v[c] + (conv_bias.empty() ? 0.0F : conv_bias[c]));
    }
    Row y(n_inner);
    for (std::size_t i = 0; i < n_inner; ++i) {
      const std::size_t head = i / spec_.mixer_head_dim;
      const std::size_t group = head / (spec_.mixer_heads / spec_.mixer_groups);
      const double t =
          parts.back()[n_inner + n_channels + head] + weights(section, kScanBias)[head];
      const double step = std::log1p(std::exp(t));
      const double decay = std::exp(step * weights(section, kScanDecay)[head]);
      y[i] = weights(section, kScanSkip)[head] * v[i];
      for (std::size_t n = 0; n < n_state; ++n) {
        const std::size_t at = n_inner + group * n_state + n;
        double& value = h[i * n_state + n];
        value = decay * value + step * v[i] * v[at];
        y[i] += value * v[at + spec_.mixer_groups * n_state];
      }
      y[i] *= activated(Activation::kSilu, parts.back()[i]);
    }
    const std::size_t width = n_inner / spec_.mixer_groups;
    for (std::size_t first = 0; !gain.empty() && first < n_inner; first += width) {
      double mean = 0;
      for (std::size_t i = first; i < first + width; ++i) mean += y[i] * y[i] / width;
      for (std::size_t i = first; i < first + width; ++i) {
        y[i] *= gain[i] / std::sqrt(mean + spec_.norm_epsilon);
      }
    }
    out.push_back(product(section, kMixerOut, kMixerOutBias, y));
  }
  return out;
}

std::vector<NaiveModel::Row> NaiveModel::delta_rule(std::uint32_t section,
                                                    const std::vector<Row>& rows) const {
  using enum TensorKind;
  const std::size_t n_channels = spec_.conv_channels();
  const std::size_t width = spec_.mixer_head_dim;
  const std::size_t n_state = spec_.mixer_state;
  const std::size_t values_at = 2 * spec_.mixer_groups * n_state;
  const Weights& taps = weights(section, kConvTaps);
  const Weights& bias = weights(section, kConvBias);
  std::vector<Row> parts;
  std::vector<double> state(spec_.mixer_out() * n_state);
  std::vector<Row> out;
  const auto unit = [&](const Row& v, std::size_t at) {
    Row x(v.begin() + static_cast<std::ptrdiff_t>(at),
          v.begin() + static_cast<std::ptrdiff_t>(at + n_state));
    double squares = 1e-6;
    for (const double value : x) squares += value * value;
    for (double& value : x) value /= std::sqrt(squares);
    return x;
  };
  for (const Row& row : rows) {
    parts.push_back(product(section, kMixerIn, kMixerInBias, row));
    Row v(n_channels);  // queries, keys, values
    for (std::size_t c = 0; c < n_channels; ++c) {
      for (std::size_t back = 0; back < spec_.conv_taps && back < parts.size(); ++back) {
        const std::size_t tap = spec_.conv_taps - 1 - back;
        v[c] += taps[tap * n_channels + c] * parts[parts.size() - 1 - back][c];
      }
      v[c] = activated(Activation::kSilu, v[c] + (bias.empty() ? 0.0F : bias[c]));
    }
    const Row gates = product(section, kMixerGate, kNone, row);
    const Row rates = product(section, kDeltaRate, kNone, row);
    const Row steps = product(section, kDeltaStep, kNone, row);
    Row y(spec_.mixer_out());
    for (std::size_t head = 0; head < spec_.mixer_heads; ++head) {
      const std::size_t group = spec_.mixer_heads_in_turn
                                    ? head % spec_.mixer_groups
                                    : head / (spec_.mixer_heads / spec_.mixer_groups);
      const Row query = unit(v, group * n_state);
      const Row key = unit(v, (spec_.mixer_groups + group) * n_state);
      const double step = std::log1p(std::exp(steps[head] + weights(section, kScanBias)[head]));
      const double decay = std::exp(step * weights(section, kScanDecay)[head]);
      const double rate = 1 / (1 + std::exp(-rates[head]));
      double mean = 0;
      for (std::size_t i = head * width; i < (head + 1) * width; ++i) {
        double change = v[values_at + i];
        for (std::size_t n = 0; n < n_state; ++n) {
          state[i * n_state + n] *= decay;
          change -= state[i * n_state + n] * key[n];
        }
        for (std::size_t n = 0; n < n_state; ++n) {
          state[i * n_state + n] += rate * change * key[n];
          y[i] += state[i * n_state + n] * query[n] / std::sqrt(n_state);
        }
        mean += y[i] * y[i] / static_cast<double>(width);
      }
      for (std::size_t i = head * width; i < (head + 1) * width; ++i) {
        y[i] *= weights(section, kDeltaNorm)[i % width] / std::sqrt(mean + spec_.norm_epsilon) *
                activated(Activation::kSilu, gates[i]);
      }
    }
    out.push_back(product(section, kMixerOut, kMixerOutBias, y));
  }
  return out;
}

std::vector<NaiveModel::Row> NaiveModel::mix(std::uint32_t section,
                                             const std::vector<Row>& rows) const {
  switch (spec_.mixer_of(section - 1)) {
    case LayerMixer::kAttention:
    case LayerMixer::kNone: break;
    case LayerMixer::kShortConv: return short_conv(section, rows);
    case LayerMixer::kMamba2:
    case LayerMixer::kMamba2AndAttention: return mamba2(section, rows);
    case LayerMixer::kDeltaNet: return delta_rule(section, rows);
  }
  return {};
}

}  // namespace qsf::testing_support
