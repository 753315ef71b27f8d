// SPDX-License-Identifier: MIT

#include "quant/search/trellis_search.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/check.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace qsf {
namespace {

// Path costs are whole numbers of 16 bits. An error of one in a column of middling cost is so many
// of them: thirty a step on a good path at 2 bits and ten at 3, enough that rounding costs nothing.
constexpr double kCountsOf2Bits = 2.0;
constexpr double kCountsOf3Bits = 4.0;
// Beyond the exact ones costs grow slowly up to the most: where all levels that can follow are far
// off, at the start of a row, the nearest still is the best.
constexpr std::int32_t kExactLevelCost = 3000;
constexpr std::int32_t kMostLevelCost = 5000;

// Five steps lead to every state, so costs of paths are no further apart. Those that do not start
// in the state they have to are as far from it.
constexpr std::int32_t kApart = 5 * kMostLevelCost;
constexpr std::int16_t kLeastPathCost = INT16_MIN;
// How far the least cost may rise before it is taken off all. Those of a start rise for five steps.
constexpr std::int32_t kMostRise = UINT16_MAX - 2 * kApart;

// Whether the refined value is nearer than the plain one.
bool is_refined(float distance) noexcept {
  return distance > 0.5F * kTrellisRefinement;
}

typedef float Quad __attribute__((vector_size(16)));
typedef std::int32_t IntQuad __attribute__((vector_size(16)));

#if defined(__SSE2__)
// Of vectors without operators the compiler makes several instructions.
Quad least_of(Quad a, Quad b) noexcept {
  return _mm_min_ps(a, b);
}
void store_counts(const Quad (&costs)[4], std::int16_t* out) noexcept {
  for (unsigned i = 0; i < 4; i += 2) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 4 * i),
                     _mm_packs_epi32(_mm_cvttps_epi32(costs[i]), _mm_cvttps_epi32(costs[i + 1])));
  }
}
#else
Quad least_of(Quad a, Quad b) noexcept {
  return a < b ? a : b;
}
void store_counts(const Quad (&costs)[4], std::int16_t* out) noexcept {
  for (unsigned i = 0; i < 16; ++i) out[i] = static_cast<std::int16_t>(costs[i / 4][i % 4]);
}
#endif

Quad bounded(Quad cost) noexcept {
  constexpr float kExact = kExactLevelCost;
  constexpr float kMostBeyond = kMostLevelCost - kExactLevelCost;
  constexpr float kBeyond = 1.0F / 32.0F;
  const Quad exact = least_of(cost, Quad{} + kExact);
  return exact + least_of((cost - exact) * kBeyond, Quad{} + kMostBeyond);
}

// Sets the costs of levels for a target, less those of the nearest level. Returns the largest cost
// of the nearest of four levels that may follow a state.
template <bool kHasRefinement>
std::int32_t set_level_costs(float target, float cost, const Quad (&levels)[4],
                             std::int16_t* out) noexcept {
  Quad costs[4];
  for (unsigned i = 0; i < 4; ++i) {
    Quad distance = target - levels[i];
    if constexpr (kHasRefinement) {
      const IntQuad refined = distance > 0.5F * kTrellisRefinement;
      const Quad step = Quad{} + kTrellisRefinement;
      distance -= reinterpret_cast<Quad>(refined & reinterpret_cast<IntQuad>(step));
    }
    costs[i] = distance * distance * cost;
  }
  const Quad nearest = least_of(least_of(costs[0], costs[1]), least_of(costs[2], costs[3]));
  const float least = std::min(std::min(nearest[0], nearest[1]), std::min(nearest[2], nearest[3]));
  const float most = std::max(std::max(nearest[0], nearest[1]), std::max(nearest[2], nearest[3]));
  for (Quad& of_four : costs) of_four = bounded(of_four - least) + 0.5F;
  store_counts(costs, out);
  return static_cast<std::int32_t>(bounded(Quad{} + (most - least))[0] + 0.5F);
}

// The place of the least cost: of several the first in the first lane.
unsigned least_place(const std::int16_t (&costs)[kTrellisStates]) noexcept {
  std::int16_t of_lanes[kTrellisLanes];
  std::copy_n(costs, kTrellisLanes, of_lanes);
  for (unsigned first = kTrellisLanes; first < kTrellisStates; first += kTrellisLanes) {
    for (unsigned lane = 0; lane < kTrellisLanes; ++lane) {
      of_lanes[lane] = std::min(of_lanes[lane], costs[first + lane]);
    }
  }
  const auto* const least = std::min_element(std::begin(of_lanes), std::end(of_lanes));
  auto place = static_cast<unsigned>(least - of_lanes);
  while (costs[place] != *least) place += kTrellisLanes;
  return place;
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

TrellisSearch::TrellisSearch(QuantType type) : type_(type), take_steps_(best_trellis_steps()) {
  QSF_CHECK(is_trellis_type(type));
}

// What a cost is multiplied with to be counted. The middling cost is the square of the mean root,
// so that a few large ones do not take the others' resolution.
double TrellisSearch::counts_of(std::span<const float> costs) const noexcept {
  double roots = 0.0;
  for (const float cost : costs) roots += std::sqrt(static_cast<double>(cost));
  if (!(roots > 0.0)) return 0.0;
  const double inverse = static_cast<double>(costs.size()) / roots;
  return (type_ == QuantType::kQ2Trellis ? kCountsOf2Bits : kCountsOf3Bits) * inverse * inverse;
}

// Sets the costs of levels in the steps of a stream, whose number is made even.
void TrellisSearch::set_steps(const TrellisTargets& targets, std::size_t stream, double counts) {
  // Of levels as far off, all cost the same.
  constexpr float kFar = 1e4F;
  const std::uint8_t* const levels = trellis_levels(type_);
  Quad quads[4];
  for (unsigned i = 0; i < kTrellisLevels; ++i) quads[i / 4][i % 4] = levels[i];
  const std::size_t n = targets.values.size();
  const std::size_t n_steps = (n + 2 * kTrellisStreams - 1) / (2 * kTrellisStreams) * 2;
  level_costs_.assign(kTrellisLevels * n_steps, 0);
  rises_.assign(n_steps, 0);
  if (n_kept_ <= n_steps) {
    n_kept_ = n_steps + 1;
    costs_.reset(new PathCosts[n_kept_]);
  }
  for (std::size_t t = 0; t < n_steps; ++t) {
    const std::size_t column = t * kTrellisStreams + stream;
    if (column >= n) break;
    const float target = std::clamp(targets.values[column], -kFar, kFar) + kTrellisZero;
    const auto cost = static_cast<float>(targets.costs[column] * counts);
    std::int16_t* const out = level_costs_.data() + kTrellisLevels * t;
    rises_[t] = type_ == QuantType::kQ3Trellis ? set_level_costs<true>(target, cost, quads, out)
                                               : set_level_costs<false>(target, cost, quads, out);
  }
}

// Takes all steps, and takes off what the least cost has risen to before sums leave their range.
void TrellisSearch::take_steps() {
  const std::size_t n_steps = rises_.size();
  std::size_t done = 0;
  std::int32_t rise = 0;
  for (std::size_t t = 0; t < n_steps; t += 2) {
    rise += rises_[t] + rises_[t + 1];
    if (rise <= kMostRise) continue;
    take_steps_(level_costs_.data() + kTrellisLevels * done, t - done, costs_[done].of);
    done = t;
    const int taken_off = costs_[t].of[least_place(costs_[t].of)] - kLeastPathCost;
    for (std::size_t i = 0; i < kTrellisLevels; ++i) {
      std::int16_t& cost = level_costs_[kTrellisLevels * t + i];
      cost = static_cast<std::int16_t>(cost - taken_off);
    }
    rise = rises_[t] + rises_[t + 1];
  }
  take_steps_(level_costs_.data() + kTrellisLevels * done, n_steps - done, costs_[done].of);
}

// Finds the symbols of a stream.
void TrellisSearch::find_path(const TrellisTargets& targets, std::size_t stream, double counts,
                              std::span<std::uint8_t> codes) {
  set_steps(targets, stream, counts);
  auto& start = costs_[0].of;
  std::fill(std::begin(start), std::end(start), static_cast<std::int16_t>(kLeastPathCost + kApart));
  start[trellis_place(windows_[stream] >> 2U, false)] = kLeastPathCost;
  take_steps();
  // Back on the path of least cost.
  constexpr unsigned kNextLeaving = trellis_place(1, false) - trellis_place(0, false);
  static_assert(kNextLeaving == trellis_place(1, true) - trellis_place(0, true));
  unsigned state = trellis_state_at(least_place(costs_[rises_.size()].of), false);
  for (std::size_t t = rises_.size(); t-- > 0;) {
    const std::size_t column = t * kTrellisStreams + stream;
    if (column < codes.size()) codes[column] = static_cast<std::uint8_t>(state >> 8U);
    const std::int16_t* const level_costs = level_costs_.data() + kTrellisLevels * t;
    const unsigned before = state << 2U & (kTrellisStates - 1);
    const std::int16_t* const costs = costs_[t].of + trellis_place(before, t % 2 != 0);
    // The symbol in the lowest bits of each cost, so that of equal ones the smallest is taken.
    const auto four_times = [&](unsigned symbol) {
      const unsigned level = trellis_index(state << 2U | symbol);
      const int cost = costs[kNextLeaving * symbol] + level_costs[level];
      return 4 * cost + static_cast<int>(symbol);
    };
    const int least =
        std::min(std::min(four_times(0), four_times(1)), std::min(four_times(2), four_times(3)));
    state = before | (static_cast<unsigned>(least) & 3U);
  }
}

void TrellisSearch::next(const TrellisTargets& targets, std::span<std::uint8_t> codes,
                         std::span<float> values) {
  QSF_CHECK(targets.values.size() >= codes.size() && values.size() == codes.size());
  const double counts = counts_of(targets.costs);
  for (std::size_t stream = 0; stream < kTrellisStreams; ++stream) {
    find_path(targets, stream, counts, codes);
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
