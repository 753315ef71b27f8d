// SPDX-License-Identifier: MIT

#include "quant/search/trellis_search.h"

#include <algorithm>

#include "base/check.h"

namespace qsf {
namespace {

// The cost of a path that does not start in the state it has to.
constexpr float kImpossible = 1e30F;

// Whether the refined value is nearer than the plain one.
bool is_refined(float distance) noexcept {
  return distance > 0.5F * kTrellisRefinement;
}

}  // namespace

std::vector<float> trellis_costs(std::span<const float> importance, std::size_t n_cols) {
  const float largest =
      importance.empty() ? 0.0F : *std::max_element(importance.begin(), importance.end());
  std::vector<float> costs(n_cols, 1.0F);
  if (!(largest > 0.0F)) return costs;
  for (std::size_t i = 0; i < n_cols; ++i) costs[i] = importance[i] / largest;
  return costs;
}

void set_trellis_targets(std::span<const float> weights, std::span<const float> costs,
                         std::span<const float> scales, TrellisTargets& out) {
  out.values.resize(weights.size());
  out.costs.resize(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    out.values[i] = scales[i] != 0.0F ? weights[i] / scales[i] : 0.0F;
    out.costs[i] = costs[i] * scales[i] * scales[i];
  }
}

TrellisSearch::TrellisSearch(QuantType type)
    : type_(type), take_steps_(best_trellis_steps()), path_costs_(kTrellisStates) {
  QSF_CHECK(is_trellis_type(type));
}

// Finds the symbols of a stream.
void TrellisSearch::find_path(const TrellisTargets& targets, std::size_t stream,
                              std::span<std::uint8_t> codes) {
  const std::uint8_t* const levels = trellis_levels(type_);
  const bool has_refinement = type_ == QuantType::kQ3Trellis;
  const std::size_t n = targets.values.size();
  const std::size_t n_steps = (n + kTrellisStreams - 1) / kTrellisStreams;
  level_costs_.resize(16 * n_steps);
  from_.resize(kTrellisStates * n_steps);
  for (std::size_t t = 0; t < n_steps; ++t) {
    const std::size_t column = t * kTrellisStreams + stream;
    const float target = (column < n ? targets.values[column] : 0.0F) + kTrellisZero;
    const float cost = column < n ? targets.costs[column] : 0.0F;
    float* const step = level_costs_.data() + 16 * t;
    for (unsigned i = 0; i < 16; ++i) {
      float distance = target - static_cast<float>(levels[i]);
      if (has_refinement && is_refined(distance)) distance -= kTrellisRefinement;
      step[i] = cost * (distance * distance);
    }
  }
  std::fill(path_costs_.begin(), path_costs_.end(), kImpossible);
  path_costs_[trellis_state(windows_[stream])] = 0.0F;
  take_steps_(level_costs_.data(), n_steps, path_costs_.data(), from_.data());
  auto state = static_cast<unsigned>(std::min_element(path_costs_.begin(), path_costs_.end()) -
                                     path_costs_.begin());
  for (std::size_t t = n_steps; t-- > 0;) {
    const unsigned leaving = from_[t * kTrellisStates + state];
    const std::size_t column = t * kTrellisStreams + stream;
    if (column < codes.size()) codes[column] = static_cast<std::uint8_t>(state & 3U);
    // One symbol back: the second is the newest, the third the second, and so on.
    state = (state >> 6U & 3U) << 8U | (state >> 4U & 3U) << 6U | leaving << 4U |
            (state >> 8U) << 2U | (state >> 2U & 3U);
  }
}

void TrellisSearch::next(const TrellisTargets& targets, std::span<std::uint8_t> codes,
                         std::span<float> values) {
  QSF_CHECK(targets.values.size() >= codes.size() && values.size() == codes.size());
  for (std::size_t stream = 0; stream < kTrellisStreams; ++stream) {
    find_path(targets, stream, codes);
  }
  const std::uint8_t* const levels = trellis_levels(type_);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    std::uint16_t& window = windows_[i % kTrellisStreams];
    window = static_cast<std::uint16_t>(window >> 2U | codes[i] << 10U);
    values[i] = static_cast<float>(levels[trellis_index(window)]) - kTrellisZero;
    if (type_ == QuantType::kQ3Trellis) {
      const bool refined = is_refined(targets.values[i] - values[i]);
      if (refined) values[i] += kTrellisRefinement;
      codes[i] = static_cast<std::uint8_t>(codes[i] << 1U | (refined ? 1U : 0U));
    }
  }
}

}  // namespace qsf
