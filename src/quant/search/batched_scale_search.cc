// SPDX-License-Identifier: MIT

#include "quant/search/batched_scale_search.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace qsf {

struct BatchStarts {
  CodeGrid grid;
  IntGrid whole;
  std::array<double, kTrials> scales;
  std::array<IntTrial, kTrials> trials;
};

namespace {

typedef PerBlock::Pair Pair;
typedef float Quad __attribute__((vector_size(16)));
typedef std::int32_t Ints __attribute__((vector_size(16)));

// The integer of the largest weight. Weights in columns of negligible cost may be twice as large.
constexpr double kReach = 16384.0;

// The integers of the largest cost and of the smallest one above 0. Sums of 256 costs times the
// squares of 4-bit codes, of 32 and 5 bits, of 16 and 6 bits stay below 2^31.
constexpr float kMostCost = 32767.0F;
constexpr float kLeastCost = 128.0F;

// Limits of the numbers in an IntTrial.
constexpr double kMostInverse = 32767.0;
constexpr double kMostOffset = 16383.0;

// The best of every four first trials continue.
constexpr std::size_t kGroup = 4;
constexpr std::size_t kGroups = kTrials / kGroup;

// Rounds of refinement: fewer where fewer weights move between codes.
constexpr int rounds_of(std::size_t block) noexcept {
  return block <= 16 ? 1 : block <= 32 ? 2 : 3;
}

constexpr int kMostRounds = 3;

template <typename Mask>
Pair select(Mask mask, Pair a, Pair b) noexcept {
  return mask ? a : b;
}
Pair between(Pair value, double limit) noexcept {
  const Pair most = {limit, limit};
  value = value < most ? value : most;
  return value > -most ? value : -most;
}
PerBlock all(double value) noexcept {
  return {{Pair{value, value}, Pair{value, value}}};
}
Pair widen(const std::int32_t* values, std::size_t pair) noexcept {
  return Pair{static_cast<double>(values[2 * pair]), static_cast<double>(values[2 * pair + 1])};
}

constexpr double clamp(double value, double limit) noexcept {
  return value < -limit ? -limit : value > limit ? limit : value;
}

constexpr BatchStarts make_starts(CodeGrid grid) noexcept {
  BatchStarts starts = {};
  starts.grid = grid;
  const auto top = static_cast<unsigned>(grid.top);
  // Fractions of a step that leave room for 2.5 times the steps of a grid in 14 bits.
  starts.whole = {static_cast<std::int32_t>(top),
                  13 - static_cast<std::int32_t>(std::bit_width(top))};
  std::size_t i = 0;
  const auto add = [&](double scale, double min) {
    starts.scales[i] = scale;
    const double steps = static_cast<double>(1 << starts.whole.shift);
    const double inverse = clamp(65536.0 * steps / scale, kMostInverse);
    const double offset = clamp((0.5 - min / scale) * steps + 0.5, kMostOffset);
    for (std::size_t lane = 0; lane < kBlocksPerBatch; ++lane) {
      starts.trials[i].inverse[lane] = static_cast<std::int32_t>(inverse);
      starts.trials[i].offset[lane] = static_cast<std::int32_t>(offset);
    }
    ++i;
  };
  for (std::size_t k = 0; k < kTrials; ++k) {
    const Fields fields =
        first_fields(grid, k, static_cast<float>(-kReach), static_cast<float>(kReach));
    add(fields.scale, fields.min);
  }
  return starts;
}

// One for each grid of codes that a type has.
constexpr BatchStarts kStarts[] = {
    make_starts({.top = 3.0F, .has_min = true}),
    make_starts({.top = 7.0F, .has_min = true}),
    make_starts({.top = 15.0F, .has_min = true}),
    make_starts({.top = 31.0F, .has_min = true}),
    make_starts({.top = 2.0F, .has_min = false, .zero = 1.0F}),
    make_starts({.top = 3.0F, .has_min = false, .zero = 1.5F}),
    make_starts({.top = 7.0F, .has_min = false, .zero = 4.0F}),
    make_starts({.top = 63.0F, .has_min = false, .zero = 32.0F}),
};

const BatchStarts& starts_of(const CodeGrid& grid) noexcept {
  for (const BatchStarts& starts : kStarts) {
    if (starts.grid.top == grid.top && starts.grid.zero == grid.zero) return starts;
  }
  QSF_CHECK(!"a grid of a type");
}

struct Ends {
  float lowest;
  float highest;
};

Ends find_ends(std::span<const float> weights) noexcept {
  Ends ends = {weights[0], weights[0]};
  std::size_t i = 0;
  if (weights.size() >= 4) {
    Quad low;
    std::memcpy(&low, weights.data(), sizeof(low));
    Quad high = low;
    for (i = 4; i + 4 <= weights.size(); i += 4) {
      Quad w;
      std::memcpy(&w, weights.data() + i, sizeof(w));
      low = w < low ? w : low;
      high = w > high ? w : high;
    }
    for (std::size_t lane = 0; lane < 4; ++lane) {
      ends.lowest = std::min(ends.lowest, low[lane]);
      ends.highest = std::max(ends.highest, high[lane]);
    }
  }
  for (; i < weights.size(); ++i) {
    ends.lowest = std::min(ends.lowest, weights[i]);
    ends.highest = std::max(ends.highest, weights[i]);
  }
  return ends;
}

int round_to_int(float steps) noexcept {
  return static_cast<int>(steps + 32768.5F) - 32768;
}

// Both columns of a line, as in memory.
std::int32_t join(std::int32_t first, std::int32_t second) noexcept {
  static_assert(std::endian::native == std::endian::little);
  return static_cast<std::int32_t>((static_cast<std::uint32_t>(first) & 0xFFFFU) |
                                   static_cast<std::uint32_t>(second) << 16U);
}
void store(std::int32_t both, std::int16_t* line) noexcept {
  std::memcpy(line, &both, sizeof(both));
}

}  // namespace

BatchedScaleSearch::BatchedScaleSearch(const CodeGrid& grid, std::size_t block,
                                       bool min_is_capped) noexcept
    : grid_(grid),
      min_is_capped_(min_is_capped),
      n_rounds_(rounds_of(block)),
      sum_codes_(best_code_sums()),
      starts_(starts_of(grid)) {
  constexpr std::size_t kColumns = kLineColumns * kLinesAtOnce;
  blocks_.n_lines = (block + kColumns - 1) / kColumns * kLinesAtOnce;
}

void BatchedScaleSearch::clear(std::size_t lane) noexcept {
  constexpr std::array<float, 1> kZero = {0.0F};
  load(lane, kZero, {}, 0.0F);
}

bool BatchedScaleSearch::load(std::size_t lane, std::span<const float> weights,
                              std::span<const float> importance, float unit) noexcept {
  Ends ends = find_ends(weights);
  float most = unit;
  bool is_even = true;
  if (unit > 0.0F) {
    most = 0.0F;
    float least = std::numeric_limits<float>::infinity();
    double total = 0.0;
    for (const float cost : importance) {
      most = std::max(most, cost);
      if (cost > 0.0F) least = std::min(least, cost);
      is_even = is_even && cost == importance[0];
      total += cost;
    }
    if (!(most > unit * 0x1p-60F) || least * kMostCost < most * kLeastCost) return false;
    if (!is_even) {
      const double counts = kCounts * total / static_cast<double>(weights.size());
      ends = {kF16Max, -kF16Max};
      for (std::size_t i = 0; i < weights.size(); ++i) {
        if (importance[i] < counts) continue;
        ends.lowest = std::min(ends.lowest, weights[i]);
        ends.highest = std::max(ends.highest, weights[i]);
      }
    }
  }
  if (min_is_capped_) ends.lowest = std::min(ends.lowest, 0.0F);
  const float middle = grid_.has_min ? 0.5F * (ends.lowest + ends.highest) : 0.0F;
  float half =
      grid_.has_min ? 0.5F * (ends.highest - ends.lowest) : std::max(ends.highest, -ends.lowest);
  if (half == 0.0F) half = 1.0F;
  if (!(half > 0x1p-60F)) return false;
  const float factor = static_cast<float>(kReach) / half;
  if (is_even) {
    load_even(lane, weights, middle, factor);
  } else if (!load_costed(lane, weights, importance, middle, factor, kMostCost / most)) {
    return false;
  }
  const bool is_negative =
      !grid_.has_min && grid_.top != 2.0F * grid_.zero && !(ends.highest > -ends.lowest);
  sign_.set(lane, is_negative ? -1.0 : 1.0);
  unit_.set(lane, half / kReach);
  inverse_unit_.set(lane, kReach / half);
  middle_.set(lane, middle);
  costed_unit_.set(lane, is_even ? 1.0 : 32768.0);
  cost_unit_.set(lane, unit > 0.0F ? double{most} / unit / (is_even ? 1.0F : kMostCost) : 1.0);
  top_min_.set(lane, min_is_capped_ ? -middle * kReach / half : HUGE_VAL);
  return true;
}

// Every column costs 1.
void BatchedScaleSearch::load_even(std::size_t lane, std::span<const float> weights, float middle,
                                   float factor) noexcept {
  const std::size_t n = weights.size();
  std::size_t at = lane * kLineColumns;
  const auto add_line = [&](std::int32_t both, std::int32_t costs) {
    store(both, blocks_.weights + at);
    store(both, blocks_.costed + at);
    store(costs, blocks_.costs + at);
    at += kLineSize;
  };
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    Quad w;
    std::memcpy(&w, weights.data() + i, sizeof(w));
    const Ints whole = __builtin_convertvector((w - middle) * factor + 32768.5F, Ints) - 32768;
    add_line(join(whole[0], whole[1]), join(1, 1));
    add_line(join(whole[2], whole[3]), join(1, 1));
  }
  for (; i < blocks_.n_lines * kLineColumns; i += 2) {
    const int first = i < n ? round_to_int((weights[i] - middle) * factor) : 0;
    const int second = i + 1 < n ? round_to_int((weights[i + 1] - middle) * factor) : 0;
    add_line(join(first, second), join(i < n ? 1 : 0, i + 1 < n ? 1 : 0));
  }
}

// Returns false if a weight is too large.
bool BatchedScaleSearch::load_costed(std::size_t lane, std::span<const float> weights,
                                     std::span<const float> importance, float middle, float factor,
                                     float cost_factor) noexcept {
  const std::size_t n = weights.size();
  std::size_t at = lane * kLineColumns;
  for (std::size_t i = 0; i < blocks_.n_lines * kLineColumns; i += 2) {
    std::array<std::int32_t, 2> whole{}, cost{}, costed{};
    for (std::size_t c = 0; c < std::min<std::size_t>(2, n - std::min(i, n)); ++c) {
      const float steps = (weights[i + c] - middle) * factor;
      if (!(std::fabs(steps) <= 32767.0F)) return false;
      const float exact = importance[i + c] * cost_factor;
      whole[c] = round_to_int(steps);
      cost[c] = static_cast<int>(exact + 0.5F);
      costed[c] = round_to_int(exact * steps * 0x1p-15F);
    }
    store(join(whole[0], whole[1]), blocks_.weights + at);
    store(join(cost[0], cost[1]), blocks_.costs + at);
    store(join(costed[0], costed[1]), blocks_.costed + at);
    at += kLineSize;
  }
  return true;
}

void BatchedScaleSearch::finish() noexcept {
  for (std::size_t lane = 0; lane < kBlocksPerBatch; ++lane) {
    std::int32_t n = 0;
    std::int32_t sum = 0;
    std::int64_t squares = 0;
    for (std::size_t line = 0; line < blocks_.n_lines; ++line) {
      const std::size_t at = line * kLineSize + lane * kLineColumns;
      n += blocks_.costs[at] + blocks_.costs[at + 1];
      sum += blocks_.costed[at] + blocks_.costed[at + 1];
      squares += blocks_.costed[at] * blocks_.weights[at];
      squares += blocks_.costed[at + 1] * blocks_.weights[at + 1];
    }
    n_.set(lane, n);
    sum_.set(lane, sum * costed_unit_.get(lane));
    squares_.set(lane, static_cast<double>(squares) * costed_unit_.get(lane));
    inverse_n_.set(lane, 1.0 / n);
  }
}

double BatchedScaleSearch::unsure_error(std::size_t lane) const noexcept {
  constexpr double kSureSteps = 32.0;
  const double sure = kSureSteps * unit_.get(lane);
  return total_cost(lane) * sure * sure;
}

IntTrial BatchedScaleSearch::trial_of(const PerBlock& scale, const PerBlock& min) const noexcept {
  const double steps = static_cast<double>(1 << starts_.whole.shift);
  IntTrial trial;
  for (std::size_t p = 0; p < 2; ++p) {
    const auto is_scale = scale.pairs[p] != 0.0;
    const Pair per_step = select(is_scale, 1.0 / scale.pairs[p], Pair{});
    const Pair inverse = between(per_step * (65536.0 * steps), kMostInverse);
    const Pair offset = between((0.5 - min.pairs[p] * per_step) * steps + 0.5, kMostOffset);
    for (std::size_t i = 0; i < 2; ++i) {
      trial.inverse[2 * p + i] = static_cast<std::int32_t>(inverse[i]);
      trial.offset[2 * p + i] = scale.pairs[p][i] != 0.0 ? static_cast<std::int32_t>(offset[i]) : 0;
    }
  }
  return trial;
}

Pair BatchedScaleSearch::error_of(const CodeSums& sums, Pair scale, Pair min,
                                  std::size_t pair) const noexcept {
  const Pair weight_code = widen(sums.weight_code, pair) * costed_unit_.pairs[pair];
  const Pair error =
      squares_.pairs[pair] - 2.0 * (scale * weight_code + min * sum_.pairs[pair]) +
      scale * (scale * widen(sums.code_code, pair) + 2.0 * min * widen(sums.code, pair)) +
      min * min * n_.pairs[pair];
  return error > 0.0 ? error : Pair{};
}

// The minimum of the error for the codes of a trial; the scale stays where it has no influence.
BatchedScaleSearch::Point BatchedScaleSearch::lowest_point(const CodeSums& sums,
                                                           const PerBlock& scale,
                                                           double index) const noexcept {
  Point point;
  for (std::size_t p = 0; p < 2; ++p) {
    const Pair code = widen(sums.code, p);
    const Pair code_code = widen(sums.code_code, p);
    const Pair weight_code = widen(sums.weight_code, p) * costed_unit_.pairs[p];
    const Pair n = n_.pairs[p];
    const Pair sum = sum_.pairs[p];
    Pair s, m;
    if (grid_.has_min) {
      const Pair determinant = n * code_code - code * code;
      s = select(determinant > 0.0, (n * weight_code - sum * code) / determinant, scale.pairs[p]);
      m = (sum - s * code) * inverse_n_.pairs[p];
      if (min_is_capped_) {
        const auto is_above = m > top_min_.pairs[p];
        m = select(is_above, top_min_.pairs[p], m);
        s = select(is_above & (code_code > 0.0), (weight_code - m * code) / code_code, s);
      }
    } else {
      const double zero = grid_.zero;
      const Pair squares = code_code - (2.0 * zero) * code + (zero * zero) * n;
      s = select(squares > 0.0, (weight_code - zero * sum) / squares, scale.pairs[p]);
      m = -zero * s;
    }
    point.scale.pairs[p] = s;
    point.min.pairs[p] = m;
    point.error.pairs[p] = error_of(sums, s, m, p);
    point.index.pairs[p] = Pair{index, index};
  }
  return point;
}

namespace {

// Replaces the kept point of each lane if the new one has a smaller error.
template <typename Point>
void keep_better(const Point& point, Point& kept) noexcept {
  for (std::size_t p = 0; p < 2; ++p) {
    const auto is_less = point.error.pairs[p] < kept.error.pairs[p];
    kept.scale.pairs[p] = select(is_less, point.scale.pairs[p], kept.scale.pairs[p]);
    kept.min.pairs[p] = select(is_less, point.min.pairs[p], kept.min.pairs[p]);
    kept.error.pairs[p] = select(is_less, point.error.pairs[p], kept.error.pairs[p]);
    kept.index.pairs[p] = select(is_less, point.index.pairs[p], kept.index.pairs[p]);
  }
}

}  // namespace

void BatchedScaleSearch::int_fields(const BatchFields& fields, PerBlock& scale,
                                    PerBlock& min) const noexcept {
  for (std::size_t p = 0; p < 2; ++p) {
    const Fields& a = fields[2 * p];
    const Fields& b = fields[2 * p + 1];
    scale.pairs[p] = Pair{a.scale, b.scale} * inverse_unit_.pairs[p];
    min.pairs[p] = (Pair{a.min, b.min} - middle_.pairs[p]) * inverse_unit_.pairs[p];
  }
}

Trial BatchedScaleSearch::real_trial(const CodeSums& sums, double scale, double min, double error,
                                     std::size_t lane) const noexcept {
  const double unit = unit_.get(lane);
  const double cost = cost_unit_.get(lane);
  const double code = sums.code[lane];
  const double code_code = sums.code_code[lane];
  const double weight_code = sums.weight_code[lane] * costed_unit_.get(lane);
  Trial trial;
  trial.fields.scale = static_cast<float>(scale * unit);
  trial.fields.min = grid_.has_min ? static_cast<float>(min * unit + middle_.get(lane))
                                   : grid_.tied_min(trial.fields.scale);
  trial.error = static_cast<float>(error * cost * unit * unit);
  trial.r = static_cast<float>((sum_.get(lane) - scale * code - min * n_.get(lane)) * cost * unit);
  trial.r_code = static_cast<float>((weight_code - scale * code_code - min * code) * cost * unit);
  trial.code = static_cast<float>(code * cost);
  trial.code_code = static_cast<float>(code_code * cost);
  return trial;
}

BatchedScaleSearch::BatchTrials BatchedScaleSearch::choose(
    std::span<const BatchFields> trials, std::array<std::size_t, kBlocksPerBatch>& best) noexcept {
  std::array<IntTrial, kTrials> whole = {};
  std::array<CodeSums, kTrials> sums;
  std::array<Point, kTrials> points;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    int_fields(trials[i], points[i].scale, points[i].min);
    points[i].index = all(static_cast<double>(i));
    whole[i] = trial_of(points[i].scale, points[i].min);
  }
  sum_codes_(blocks_, starts_.whole, whole.data(), trials.size(), sums.data());
  Point kept;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    for (std::size_t p = 0; p < 2; ++p) {
      points[i].error.pairs[p] =
          error_of(sums[i], points[i].scale.pairs[p], points[i].min.pairs[p], p);
    }
    if (i == 0) {
      kept = points[0];
    } else {
      keep_better(points[i], kept);
    }
  }
  BatchTrials result;
  for (std::size_t lane = 0; lane < kBlocksPerBatch; ++lane) {
    best[lane] = static_cast<std::size_t>(kept.index.get(lane));
    result[lane] = real_trial(sums[best[lane]], kept.scale.get(lane), kept.min.get(lane),
                              kept.error.get(lane), lane);
    result[lane].fields = trials[best[lane]][lane];
  }
  return result;
}

BatchedScaleSearch::BatchTrials BatchedScaleSearch::search(const BatchFields* starts,
                                                           BatchTrials* of_starts) noexcept {
  constexpr std::size_t kAll = 1 + kTrials + kMostRounds * kGroups;
  std::array<IntTrial, 1 + kTrials> trials;
  std::array<CodeSums, kAll> sums;
  std::copy(starts_.trials.begin(), starts_.trials.end(), trials.begin() + 1);
  for (std::size_t lane = 0; lane < kBlocksPerBatch; ++lane) {
    if (sign_.get(lane) > 0.0) continue;
    for (std::size_t i = 1; i < trials.size(); ++i) {
      trials[i].inverse[lane] = -trials[i].inverse[lane];
    }
  }
  std::array<Point, kGroups> points;
  if (starts != nullptr) {
    Point start;
    int_fields(*starts, start.scale, start.min);
    trials[0] = trial_of(start.scale, start.min);
    sum_codes_(blocks_, starts_.whole, trials.data(), 1 + kTrials, sums.data());
    for (std::size_t lane = 0; lane < kBlocksPerBatch; ++lane) {
      const std::size_t p = lane / 2;
      const Pair error = error_of(sums[0], start.scale.pairs[p], start.min.pairs[p], p);
      (*of_starts)[lane] =
          real_trial(sums[0], start.scale.get(lane), start.min.get(lane), error[lane % 2], lane);
    }
  } else {
    sum_codes_(blocks_, starts_.whole, trials.data() + 1, kTrials, sums.data() + 1);
  }
  for (std::size_t i = 0; i < kTrials; ++i) {
    PerBlock scale = sign_;
    for (Pair& pair : scale.pairs) pair *= starts_.scales[i];
    const Point point = lowest_point(sums[1 + i], scale, static_cast<double>(1 + i));
    if (i % kGroup == 0) {
      points[i / kGroup] = point;
    } else {
      keep_better(point, points[i / kGroup]);
    }
  }
  Point found = points[0];
  for (std::size_t i = 1; i < kGroups; ++i) keep_better(points[i], found);
  std::size_t next = 1 + kTrials;
  for (int round = 0; round < n_rounds_; ++round) {
    for (std::size_t i = 0; i < kGroups; ++i) trials[i] = trial_of(points[i].scale, points[i].min);
    sum_codes_(blocks_, starts_.whole, trials.data(), kGroups, sums.data() + next);
    for (std::size_t i = 0; i < kGroups; ++i, ++next) {
      points[i] = lowest_point(sums[next], points[i].scale, static_cast<double>(next));
      keep_better(points[i], found);
    }
  }
  BatchTrials best;
  for (std::size_t lane = 0; lane < kBlocksPerBatch; ++lane) {
    best[lane] =
        real_trial(sums[static_cast<std::size_t>(found.index.get(lane))], found.scale.get(lane),
                   found.min.get(lane), found.error.get(lane), lane);
  }
  return best;
}

}  // namespace qsf
