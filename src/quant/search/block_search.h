// SPDX-License-Identifier: MIT
//
// The core of every scale search: trials of a scale and a min (the *fields*) for one block, one
// trial per SIMD lane, and the fields that would improve each trial.
//
//   w[i] ~ scale * code[i] + min      code[i] the nearest in [0, top]
//   error = sum of cost[i] * (w[i] - (scale * code[i] + min))^2
//
// For given codes the error is a parabola in scale and min. So a trial yields, besides its error,
// the sums from which the minimum of that parabola follows. Moving there and choosing codes again
// lowers the error, apart from the rounding of the fields. Types with w = scale * (code - zero) are
// searched along min = -zero * scale.
//
// Every sum has a lane of its own and runs over the weights in their order, and nothing fuses
// multiply and add: the same fields on every machine.

#ifndef QSF_QUANT_SEARCH_BLOCK_SEARCH_H_
#define QSF_QUANT_SEARCH_BLOCK_SEARCH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/f16.h"
#include "quant/block_format.h"
#include "quant/quant_options.h"

namespace qsf {

// Returns the largest importance, 0 where there is none.
float largest_cost(const QuantOptions& options) noexcept;

// Weights that share fields, and the costs of errors in them (column importance).
class CostedWeights {
 public:
  // Costs are importance over `unit`; all are 1 where the unit is 0.
  // Shapes    weights [1 .. 256]; options of the same columns
  // Requires  every weight is finite and at most 65504 in magnitude, no importance above `unit`
  CostedWeights(std::span<const float> weights, const QuantOptions& options, float unit) noexcept;

  std::size_t size() const noexcept { return weights_.size(); }
  const float* weights() const noexcept { return weights_.data(); }
  const float* costs() const noexcept { return costs_.data(); }
  float total_cost() const noexcept { return total_cost_; }
  // Range of the weights, without columns of negligible cost.
  float lowest() const noexcept { return lowest_; }
  float highest() const noexcept { return highest_; }

 private:
  std::span<const float> weights_;
  std::array<float, kMaxBlock> costs_;
  float total_cost_ = 0.0F;
  float lowest_;
  float highest_;
};

// The codes of a type, 0 .. top, and for types without a min the code of weight 0.
struct CodeGrid {
  float top;
  bool has_min;
  float zero = 0.0F;

  constexpr float tied_min(float scale) const noexcept { return -zero * scale; }
};

struct Fields {
  float scale = 0.0F;
  float min = 0.0F;
};

// The result of a pair of fields. `r` is the residual w - (scale * code + min); every sum is
// weighted with the costs.
struct Trial {
  Fields fields;
  float error = 0.0F;      // r^2
  float r = 0.0F;          // r
  float r_code = 0.0F;     // r * code
  float code = 0.0F;       // code
  float code_code = 0.0F;  // code^2
};

inline constexpr std::size_t kTrials = 16;

// Columns below this share of the mean cost do not widen the range of the first trials. With equal
// costs it has no effect. With log-normal costs the weighted error is 0.565 of nearest rounding at
// 2^-4 and 0.579 at 2^-8; 4bit/64 rises from 0.01798 to 0.01815, and ternary/64, where one outlier
// spoils the only scale, falls from 0.0643 to 0.0222.
inline constexpr float kCounts = 0x1p-4F;

// Returns the fields of first trial `i`, for weights from `lowest` to `highest`. The levels begin
// and end a little within the range, so that weights are clipped, or beyond it. With a min all
// pairs of insets are tried. Without one the weight of the largest magnitude lies a little within
// or beyond the first or the last level; if both sides of zero have equally many levels, the sign
// of the scale changes nothing. Measured: docs/decisions/032-scale-search.md.
constexpr Fields first_fields(const CodeGrid& grid, std::size_t i, float lowest,
                              float highest) noexcept {
  if (grid.has_min) {
    constexpr float kInsets[] = {-0.4F, 0.0F, 0.4F, 0.8F};
    constexpr std::size_t kEach = 4;
    static_assert(kEach * kEach == kTrials);
    const float low = kInsets[i / kEach];
    const float scale = (highest - lowest) / (grid.top + low + kInsets[i % kEach]);
    return {scale, lowest + low * scale};
  }
  const float extreme = highest > -lowest ? highest : lowest;
  const bool is_symmetric = grid.top == 2.0F * grid.zero;
  // From half a step beyond to 1.25 steps within, of either end in turn.
  const float inset = -0.5F + 0.25F * static_cast<float>(i / 2);
  float scale = extreme / (grid.top - grid.zero + inset);
  if (i % 2 == 1) {
    scale = extreme / (is_symmetric ? grid.zero + inset + 0.125F : -grid.zero - inset);
  }
  if (is_symmetric && scale < 0.0F) scale = -scale;
  return {scale, grid.tied_min(scale)};
}

// Tries several pairs of fields at once; a scale of 0 gives every weight code 0.
// Shapes    trials [a multiple of 4, at most 16]: fields are read, all other members are written
// Requires  no scale but 0 is below 2^-25 in magnitude
void run_trials(const CostedWeights& block, const CodeGrid& grid, std::span<Trial> trials) noexcept;

// Returns the fields with the smallest error for the codes of a trial.
Fields refit(const CostedWeights& block, const CodeGrid& grid, const Trial& trial) noexcept;

// Returns the error of a trial with other fields and the same codes.
double predict_error(double total_cost, const Trial& trial, Fields fields) noexcept;

// Returns whether an error is smaller by more than the rounding of its sum.
bool is_smaller(double error, double than) noexcept;

// Rounds fields to numbers that a file can hold.
using RoundFields = Fields (*)(const CodeGrid& grid, Fields fields) noexcept;

// Searches the fields of one block, starting from `start`, which stays where nothing is better.
// Guarantees  the error is not larger than with `start`; fields that reproduce all weights stay
Trial search_block(const CostedWeights& block, const CodeGrid& grid, Fields start,
                   RoundFields round) noexcept;

// The rounding of types whose blocks have fields of their own: to f16.
Fields round_to_f16(const CodeGrid& grid, Fields fields) noexcept;

// An error below this share of the starting error is certainly smaller if both were found in
// integers (quant/search/batched_scale_search.h), whose codes are the nearest to a 64th of a step
// or better.
inline constexpr double kSureShare = 0.875;

// Searches the f16 fields of up to kBlocksPerBatch blocks of `block` columns (the last one may be
// shorter), starting from `fields`, which stay where nothing is better.
// Shapes      fields [ceil(weights.size() / block)]: f16 numbers; options of the same columns
// Requires    as CostedWeights
// Guarantees  as search_block(); a block's result does not depend on the other blocks
void search_blocks(std::span<const float> weights, std::uint32_t block, const QuantOptions& options,
                   const CodeGrid& grid, std::span<Fields> fields) noexcept;

}  // namespace qsf

#endif  // QSF_QUANT_SEARCH_BLOCK_SEARCH_H_
