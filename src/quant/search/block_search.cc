// SPDX-License-Identifier: MIT

#include "quant/search/block_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "quant/search/batched_scale_search.h"
#include "quant/search/search_loops.h"

namespace qsf {
namespace {

// A sum of up to 256 products in f32 is off by at most 256 * 2^-24 of itself.
constexpr double kSumNoise = 0x1p-15;

// Trials that go on after the first, and how often.
constexpr std::size_t kRefined = 4;
constexpr int kRounds = 3;

void keep_better(std::span<const Trial> trials, Trial& best) noexcept {
  for (const Trial& trial : trials) {
    if (is_smaller(trial.error, best.error)) best = trial;
  }
}

}  // namespace

float largest_cost(const QuantOptions& options) noexcept {
  float largest = 0.0F;
  for (const float cost : options.importance) largest = std::max(largest, cost);
  return largest;
}

CostedWeights::CostedWeights(std::span<const float> weights, const QuantOptions& options,
                             float unit) noexcept
    : weights_(weights), lowest_(kF16Max), highest_(-kF16Max) {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    costs_[i] = unit > 0.0F ? options.importance[i] / unit : 1.0F;
    total_cost_ += costs_[i];
  }
  const float counts = kCounts * total_cost_ / static_cast<float>(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (costs_[i] < counts) continue;
    lowest_ = std::min(lowest_, weights[i]);
    highest_ = std::max(highest_, weights[i]);
  }
}

void run_trials(const CostedWeights& block, const CodeGrid& grid,
                std::span<Trial> trials) noexcept {
  static_assert(kTrials == kFieldTrials);
  FieldTrials lanes = {};
  for (std::size_t i = 0; i < trials.size(); ++i) {
    lanes.scale[i] = trials[i].fields.scale;
    lanes.min[i] = trials[i].fields.min;
  }
  best_field_trials()({block.weights(), block.costs(), block.size()}, grid.top, trials.size(),
                      lanes);
  for (std::size_t i = 0; i < trials.size(); ++i) {
    trials[i].error = lanes.error[i];
    trials[i].r = lanes.r[i];
    trials[i].r_code = lanes.r_code[i];
    trials[i].code = lanes.code[i];
    trials[i].code_code = lanes.code_code[i];
  }
}

Fields refit(const CostedWeights& block, const CodeGrid& grid, const Trial& trial) noexcept {
  const double n = block.total_cost();
  const double code = trial.code;
  const double code_code = trial.code_code;
  const double r = trial.r;
  const double r_code = trial.r_code;
  Fields fields = trial.fields;
  if (!grid.has_min) {
    const double zero = grid.zero;
    const double squares = code_code - 2.0 * zero * code + zero * zero * n;
    if (!(squares > 0.0)) return fields;
    fields.scale += static_cast<float>((r_code - zero * r) / squares);
    fields.min = grid.tied_min(fields.scale);
    return fields;
  }
  const double determinant = n * code_code - code * code;
  if (!(determinant > n * code_code * kSumNoise)) return fields;  // one code for all
  fields.scale += static_cast<float>((n * r_code - code * r) / determinant);
  fields.min += static_cast<float>((code_code * r - code * r_code) / determinant);
  return fields;
}

double predict_error(double total_cost, const Trial& trial, Fields fields) noexcept {
  const double scale = double{fields.scale} - trial.fields.scale;
  const double min = double{fields.min} - trial.fields.min;
  return trial.error - 2.0 * (scale * trial.r_code + min * trial.r) +
         scale * scale * trial.code_code + 2.0 * scale * min * trial.code + min * min * total_cost;
}

bool is_smaller(double error, double than) noexcept {
  return error < than * (1.0 - 2.0 * kSumNoise);
}

Trial search_block(const CostedWeights& block, const CodeGrid& grid, Fields start,
                   RoundFields round) noexcept {
  std::array<Trial, kTrials> trials;
  for (std::size_t i = 1; i < kTrials; ++i) {
    trials[i].fields = round(grid, first_fields(grid, i, block.lowest(), block.highest()));
  }
  trials[0].fields = start;  // instead of the widest pair
  run_trials(block, grid, trials);
  Trial best = trials[0];
  if (!(best.error > 0.0F)) return best;
  keep_better(trials, best);
  std::array<std::pair<double, std::size_t>, kTrials> order;
  for (std::size_t i = 0; i < kTrials; ++i) {
    const Fields better = round(grid, refit(block, grid, trials[i]));
    order[i] = {predict_error(block.total_cost(), trials[i], better), i};
    trials[i].fields = better;
  }
  std::partial_sort(order.begin(), order.begin() + kRefined, order.end());
  std::array<Trial, kRefined> refined;
  for (std::size_t i = 0; i < kRefined; ++i) refined[i] = trials[order[i].second];
  for (int n = 0; n < kRounds; ++n) {
    if (n > 0) {
      for (Trial& trial : refined) trial.fields = round(grid, refit(block, grid, trial));
    }
    run_trials(block, grid, refined);
    keep_better(refined, best);
  }
  return best;
}

Fields round_to_f16(const CodeGrid& grid, Fields fields) noexcept {
  const auto round = [](float value) {
    return to_f32(to_f16(std::clamp(value, -kF16Max, kF16Max)));
  };
  const float scale = round(grid.has_min ? std::max(fields.scale, 0.0F) : fields.scale);
  return {scale, grid.has_min ? round(fields.min) : grid.tied_min(scale)};
}

namespace {

// Whether f16 holds fields of such weights so finely that they can be searched unrounded: a scale
// has all its bits, and a min is rounded by less than a 16th of a step.
bool is_fine_enough(const CodeGrid& grid, std::span<const float> weights) noexcept {
  float lowest = weights[0];
  float highest = weights[0];
  for (const float w : weights) {
    lowest = std::min(lowest, w);
    highest = std::max(highest, w);
  }
  const float largest = std::max(highest, -lowest);
  const float step = (grid.has_min ? highest - lowest : largest) / grid.top;
  return step >= 0x1p-13F && (!grid.has_min || largest * 0x1p-11F * 16.0F <= step);
}

// Rounds what was found: the scale, and then the min that suits it. Returns the fields and what
// error they lead to, at most.
Fields round_found(const CodeGrid& grid, const Trial& found, double total_cost,
                   double& error) noexcept {
  Fields fields = round_to_f16(grid, found.fields);
  if (grid.has_min) {
    const double moved = double{fields.scale} - found.fields.scale;
    const double min = found.fields.min + (found.r - found.code * moved) / total_cost;
    fields = round_to_f16(grid, {fields.scale, static_cast<float>(min)});
  }
  error = predict_error(total_cost, found, fields);
  return fields;
}

// Returns the better one, by sums in f32.
Fields choose_exactly(const CostedWeights& block, const CodeGrid& grid, Fields start,
                      Fields found) noexcept {
  std::array<Trial, 4> trials;
  trials[0].fields = start;
  for (std::size_t i = 1; i < trials.size(); ++i) trials[i].fields = found;
  run_trials(block, grid, trials);
  return is_smaller(trials[1].error, trials[0].error) ? found : start;
}

}  // namespace

void search_blocks(std::span<const float> weights, std::uint32_t block, const QuantOptions& options,
                   const CodeGrid& grid, std::span<Fields> fields) noexcept {
  BatchedScaleSearch batch(grid, block, false);
  BatchedScaleSearch::BatchFields starts{};
  std::array<bool, kBlocksPerBatch> is_loaded{};
  const auto weights_of = [&](std::size_t k) { return weights_of_block(weights, block, k); };
  const auto options_of = [&](std::size_t k) {
    return options_of_columns(options, k * block, weights_of(k).size());
  };
  for (std::size_t k = 0; k < fields.size(); ++k) {
    const QuantOptions own = options_of(k);
    starts[k] = fields[k];
    is_loaded[k] = is_fine_enough(grid, weights_of(k)) &&
                   batch.load(k, weights_of(k), own.importance, largest_cost(own));
    if (is_loaded[k]) continue;
    batch.clear(k);
    fields[k] =
        search_block({weights_of(k), own, largest_cost(own)}, grid, fields[k], round_to_f16).fields;
  }
  for (std::size_t k = fields.size(); k < kBlocksPerBatch; ++k) batch.clear(k);
  batch.finish();
  BatchedScaleSearch::BatchTrials of_starts;
  const BatchedScaleSearch::BatchTrials found = batch.search(&starts, &of_starts);
  for (std::size_t k = 0; k < fields.size(); ++k) {
    if (!is_loaded[k]) continue;
    double error;
    const Fields rounded = round_found(grid, found[k], batch.total_cost(k), error);
    const bool is_sure = error < kSureShare * of_starts[k].error && error > batch.unsure_error(k);
    const QuantOptions own = options_of(k);
    fields[k] =
        is_sure ? rounded
                : choose_exactly({weights_of(k), own, largest_cost(own)}, grid, starts[k], rounded);
  }
}

}  // namespace qsf
