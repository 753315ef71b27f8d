// SPDX-License-Identifier: MIT

#include "quant/search/row_search.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "quant/search/batched_scale_search.h"

namespace qsf {
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
  BatchedScaleSearch sides(grid, block, false);
  BatchedScaleSearch::FieldsOfSides starts{};
  std::array<bool, kBlocksPerBatch> is_loaded{};
  const auto weights_of = [&](std::size_t k) { return weights_of_block(weights, block, k); };
  const auto options_of = [&](std::size_t k) {
    return options_of_columns(options, k * block, weights_of(k).size());
  };
  for (std::size_t k = 0; k < fields.size(); ++k) {
    const QuantOptions own = options_of(k);
    starts[k] = fields[k];
    is_loaded[k] = is_fine_enough(grid, weights_of(k)) &&
                   sides.load(k, weights_of(k), own.importance, largest_cost(own));
    if (is_loaded[k]) continue;
    sides.clear(k);
    fields[k] =
        search_block({weights_of(k), own, largest_cost(own)}, grid, fields[k], round_to_f16).fields;
  }
  for (std::size_t k = fields.size(); k < kBlocksPerBatch; ++k) sides.clear(k);
  sides.finish();
  BatchedScaleSearch::TrialsOfSides of_starts;
  const BatchedScaleSearch::TrialsOfSides found = sides.search(&starts, &of_starts);
  for (std::size_t k = 0; k < fields.size(); ++k) {
    if (!is_loaded[k]) continue;
    double error;
    const Fields rounded = round_found(grid, found[k], sides.total_cost(k), error);
    const bool is_sure = error < kSureShare * of_starts[k].error && error > sides.unsure_error(k);
    const QuantOptions own = options_of(k);
    fields[k] =
        is_sure ? rounded
                : choose_exactly({weights_of(k), own, largest_cost(own)}, grid, starts[k], rounded);
  }
}

}  // namespace qsf
