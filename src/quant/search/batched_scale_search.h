// SPDX-License-Identifier: MIT
//
// The search for scales and mins of four blocks side by side, in whole numbers.
//
// Weights of a block become whole numbers of 16 bits, their costs too, and what a trial leads to is
// summed exactly (quant/search/code_sums.h): the codes, which are nearest to a part in 2^7 of a
// step, and the parabola of the error in scale and min for those codes, whose lowest point is where
// the next trial begins. All of it in f64 apart from that, in one order: the same fields on every
// machine.
//
// Nothing is rounded to what a file holds. That is the caller's, who also turns to
// quant/search/block_search.h where 16 bits are not enough.

#ifndef QSF_QUANT_SEARCH_BATCHED_SCALE_SEARCH_H_
#define QSF_QUANT_SEARCH_BATCHED_SCALE_SEARCH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "quant/search/block_search.h"
#include "quant/search/code_sums.h"

namespace qsf {

// A number of each block.
struct Sides {
  typedef double Pair __attribute__((vector_size(16)));
  std::array<Pair, 2> pairs;

  double get(std::size_t side) const noexcept { return pairs[side / 2][side % 2]; }
  void set(std::size_t side, double value) noexcept { pairs[side / 2][side % 2] = value; }
};

// The trials of a grid that a search begins with, for blocks whose weights reach as far as whole
// numbers do.
struct SideStarts;

class BatchedScaleSearch {
 public:
  using FieldsOfSides = std::array<Fields, kBlocksPerBatch>;
  using TrialsOfSides = std::array<Trial, kBlocksPerBatch>;

  // For blocks of up to `block` columns; where `min_is_capped`, no min is above 0.
  BatchedScaleSearch(const CodeGrid& grid, std::size_t block, bool min_is_capped) noexcept;

  // Takes the weights of block `side`; costs are importance over `unit`, 1 where the unit is 0.
  // Returns false where 16 bits are not enough, and leaves the side unfit for anything but load().
  // Requires  as CostedWeights
  bool load(std::size_t side, std::span<const float> weights, std::span<const float> importance,
            float unit) noexcept;

  // Gives a side nothing to search.
  void clear(std::size_t side) noexcept;

  // Has to be called when all sides are loaded or cleared.
  void finish() noexcept;

  // Searches all sides, beginning with `starts` too where it is not null, and writes what each of
  // them leads to. Returns the best.
  TrialsOfSides search(const FieldsOfSides* starts, TrialsOfSides* of_starts) noexcept;

  // Tries fields and writes which of them are the best of each side, the first of equals.
  // Shapes    trials [1 .. kTrials]
  TrialsOfSides choose(std::span<const FieldsOfSides> trials,
                       std::array<std::size_t, kBlocksPerBatch>& best) noexcept;

  double total_cost(std::size_t side) const noexcept { return n_.get(side) * cost_unit_.get(side); }
  // Returns an error that is too small for 16 bits to tell it from others.
  double unsure_error(std::size_t side) const noexcept;

 private:
  struct Point {
    Sides scale, min, error, index;
  };

  void load_even(std::size_t side, std::span<const float> weights, float middle,
                 float factor) noexcept;
  bool load_costed(std::size_t side, std::span<const float> weights,
                   std::span<const float> importance, float middle, float factor,
                   float cost_factor) noexcept;
  WholeTrial trial_of(const Sides& scale, const Sides& min) const noexcept;
  Point lowest_point(const CodeSums& sums, const Sides& scale, double index) const noexcept;
  Sides::Pair error_of(const CodeSums& sums, Sides::Pair scale, Sides::Pair min,
                       std::size_t pair) const noexcept;
  void whole_fields(const FieldsOfSides& fields, Sides& scale, Sides& min) const noexcept;
  Trial real_trial(const CodeSums& sums, double scale, double min, double error,
                   std::size_t side) const noexcept;

  const CodeGrid grid_;
  const bool min_is_capped_;
  const int n_rounds_;
  const SumCodesFn sum_codes_;
  const SideStarts& starts_;
  Sides sign_;  // of the scales to begin with
  Sides unit_;  // of weights: w = unit * W + middle
  Sides inverse_unit_;
  Sides middle_;
  Sides cost_unit_;
  Sides costed_unit_;        // of cost * weight, in units of both
  Sides n_, sum_, squares_;  // of cost, cost * W and cost * W^2
  Sides inverse_n_;
  Sides top_min_;  // the highest min
  WholeBlocks blocks_;
};

}  // namespace qsf

#endif  // QSF_QUANT_SEARCH_BATCHED_SCALE_SEARCH_H_
