// SPDX-License-Identifier: MIT
//
// The scale search for a batch of four blocks at once, in integers.
//
// Weights and costs of a block become 16-bit integers, so the sums of a trial are exact
// (quant/search/search_loops.h). They give the nearest codes, to a part in 2^7 of a step, and the
// parabola of the error in scale and min for these codes, whose minimum is the next trial. The rest
// is f64 in a fixed order, so every machine finds the same fields.
//
// Fields are not rounded to the numbers that a file can hold; the caller does that, and uses
// quant/search/block_search.h where 16 bits are not enough.

#ifndef QSF_QUANT_SEARCH_BATCHED_SCALE_SEARCH_H_
#define QSF_QUANT_SEARCH_BATCHED_SCALE_SEARCH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "quant/search/block_search.h"
#include "quant/search/search_loops.h"

namespace qsf {

// One number per block.
struct PerBlock {
  typedef double Pair __attribute__((vector_size(16)));
  std::array<Pair, 2> pairs;

  double get(std::size_t lane) const noexcept { return pairs[lane / 2][lane % 2]; }
  void set(std::size_t lane, double value) noexcept { pairs[lane / 2][lane % 2] = value; }
};

// The first trials of a grid, for blocks whose weights fill the integer range.
struct BatchStarts;

class BatchedScaleSearch {
 public:
  using BatchFields = std::array<Fields, kBlocksPerBatch>;
  using BatchTrials = std::array<Trial, kBlocksPerBatch>;

  // For blocks of up to `block` columns; with `min_is_capped` no min is above 0.
  BatchedScaleSearch(const CodeGrid& grid, std::size_t block, bool min_is_capped) noexcept;

  // Loads the weights of block `lane`; costs are importance over `unit`, or 1 if the unit is 0.
  // Returns false if 16 bits are not enough; the lane must then be loaded again or cleared.
  // Requires  as CostedWeights
  bool load(std::size_t lane, std::span<const float> weights, std::span<const float> importance,
            float unit) noexcept;

  // Leaves a lane empty.
  void clear(std::size_t lane) noexcept;

  // Must be called when all lanes are loaded or cleared.
  void finish() noexcept;

  // Searches all lanes and returns the best trials. If `starts` is not null, they are tried too and
  // their results written to `of_starts`.
  BatchTrials search(const BatchFields* starts, BatchTrials* of_starts) noexcept;

  // Tries fields, returns the best trial of each lane and writes its index, the first of equals.
  // Shapes    trials [1 .. kTrials]
  BatchTrials choose(std::span<const BatchFields> trials,
                     std::array<std::size_t, kBlocksPerBatch>& best) noexcept;

  double total_cost(std::size_t lane) const noexcept { return n_.get(lane) * cost_unit_.get(lane); }
  // Returns the error below which 16 bits cannot tell two trials apart.
  double unsure_error(std::size_t lane) const noexcept;

 private:
  struct Point {
    PerBlock scale, min, error, index;
  };

  void load_even(std::size_t lane, std::span<const float> weights, float middle,
                 float factor) noexcept;
  bool load_costed(std::size_t lane, std::span<const float> weights,
                   std::span<const float> importance, float middle, float factor,
                   float cost_factor) noexcept;
  IntTrial trial_of(const PerBlock& scale, const PerBlock& min) const noexcept;
  Point lowest_point(const CodeSums& sums, const PerBlock& scale, double index) const noexcept;
  PerBlock::Pair error_of(const CodeSums& sums, PerBlock::Pair scale, PerBlock::Pair min,
                          std::size_t pair) const noexcept;
  void int_fields(const BatchFields& fields, PerBlock& scale, PerBlock& min) const noexcept;
  Trial real_trial(const CodeSums& sums, double scale, double min, double error,
                   std::size_t lane) const noexcept;

  const CodeGrid grid_;
  const bool min_is_capped_;
  const int n_rounds_;
  const SumCodesFn sum_codes_;
  const BatchStarts& starts_;
  PerBlock sign_;  // of the scales to begin with
  PerBlock unit_;  // of weights: w = unit * W + middle
  PerBlock inverse_unit_;
  PerBlock middle_;
  PerBlock cost_unit_;
  PerBlock costed_unit_;        // of cost * weight, in units of both
  PerBlock n_, sum_, squares_;  // of cost, cost * W and cost * W^2
  PerBlock inverse_n_;
  PerBlock top_min_;  // the highest min
  IntBlocks blocks_;
};

}  // namespace qsf

#endif  // QSF_QUANT_SEARCH_BATCHED_SCALE_SEARCH_H_
