// SPDX-License-Identifier: MIT

#include "quant/search/codebook_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quant/search/block_search.h"
#include "quant/search/search_loops.h"

namespace qsf {
namespace {

constexpr std::size_t kLanes = kCodebookTrials;

// Half the smallest f16: a smaller scale becomes 0.
constexpr float kSmallestScale = 0x1p-25F;

// Columns below this share of the mean cost do not influence the first scales.
constexpr float kCounts = 0x1p-4F;

// Factors of the first scales: how far the weight of the largest magnitude lies beyond the first or
// the last level. Measured: docs/decisions/036-codebook-types.md.
constexpr float kReaches[kLanes / 2] = {1.12F, 1.02F, 0.93F, 0.85F, 0.77F, 0.7F, 0.62F, 0.53F};

constexpr int kRefits = 1;  // of the trials of one sub-block
constexpr int kTurns = 2;   // of integer scales and d

// Number of d that are refined. With 6-bit scales more of them gain a thousandth of the error, and
// 4-bit levels take longest to find.
template <std::size_t kLevels>
constexpr std::size_t kTried = kLevels == 16 ? 1 : 3;

// A scale and its sums, weighted with the costs.
struct CodebookTrial {
  float scale = 0.0F;
  float error = std::numeric_limits<float>::infinity();  // (w - scale * level)^2
  float w_level = 0.0F;                                  // w * level
  float level_level = 0.0F;                              // level^2

  // The scale with the smallest error for the levels chosen.
  double refitted() const noexcept {
    return level_level > 0.0F ? double{w_level} / level_level : double{scale};
  }
  // The error with another scale and the same levels. `best` is refitted().
  double predict(double other, double best) const noexcept {
    const double by_this = scale - best;
    const double by_other = other - best;
    return error + level_level * (by_other * by_other - by_this * by_this);
  }
};

using Trials = std::array<CodebookTrial, kLanes>;

void run_trials(const CodebookSubBlock& block, const TrialLevels& levels, Trials& trials) noexcept {
  CodebookTrials lanes;
  for (std::size_t i = 0; i < kLanes; ++i) lanes.scale[i] = trials[i].scale;
  best_codebook_trials()(block, levels, lanes);
  for (std::size_t i = 0; i < kLanes; ++i) {
    trials[i].error = lanes.error[i];
    trials[i].w_level = lanes.w_level[i];
    trials[i].level_level = lanes.level_level[i];
  }
}

template <std::size_t kLevels>
class CodebookSearch {
 public:
  CodebookSearch(BlockFormat format, std::span<const float> weights,
                 const QuantOptions& options) noexcept
      : top_(top_codebook_scale(format)),
        last_(static_cast<float>(codebook_levels(format.type).back())),
        levels_(codebook_levels(format.type)) {
    const float unit = largest_cost(options);
    for (std::size_t first = 0; first < weights.size(); first += format.block) {
      CodebookSubBlock& block = blocks_[n_++];
      block.n = std::min<std::size_t>(format.block, weights.size() - first);
      for (std::size_t i = 0; i < block.n; ++i) {
        block.weights[i] = weights[first + i];
        block.costs[i] = unit > 0.0F ? options.importance[first + i] / unit : 1.0F;
      }
    }
  }

  CodebookFields run(const CodebookFields& start) noexcept;

 private:
  // Fields and their trials.
  struct Candidate {
    CodebookFields fields;
    std::array<CodebookTrial, kMaxCodebookSubBlocks> trials;
    double error = 0.0;
  };

  void search_alone(std::size_t k) noexcept;
  double predict(double d) const noexcept;
  int whole(double scale, double d) const noexcept;
  std::array<double, kTried<kLevels>> choose_ds() const noexcept;
  void choose_scales(Candidate& candidate) const noexcept;
  double refit_d(const Candidate& candidate) const noexcept;

  const int top_;
  const float last_;  // level
  const TrialLevels levels_;
  std::size_t n_ = 0;
  std::array<CodebookSubBlock, kMaxCodebookSubBlocks> blocks_;
  // The best trial of every sub-block by itself, for positive and for negative scales.
  std::array<std::array<CodebookTrial, 2>, kMaxCodebookSubBlocks> alone_;
  std::array<std::array<double, 2>, kMaxCodebookSubBlocks> refitted_;  // of them
};

// The weight of the largest magnitude, without columns of negligible cost.
float costed_extreme(const CodebookSubBlock& block) noexcept {
  float total = 0.0F;
  for (std::size_t i = 0; i < block.n; ++i) total += block.costs[i];
  const float counts = kCounts * total / static_cast<float>(block.n);
  float extreme = 0.0F;
  for (std::size_t i = 0; i < block.n; ++i) {
    if (block.costs[i] >= counts && std::fabs(block.weights[i]) > std::fabs(extreme)) {
      extreme = block.weights[i];
    }
  }
  return extreme;
}

template <std::size_t kLevels>
void CodebookSearch<kLevels>::search_alone(std::size_t k) noexcept {
  const CodebookSubBlock& block = blocks_[k];
  const float extreme = costed_extreme(block);
  Trials trials;
  for (std::size_t i = 0; i < kLanes / 2; ++i) {
    trials[i].scale = extreme / levels_.level[0] * kReaches[i];
    trials[kLanes / 2 + i].scale = extreme / last_ * kReaches[i];
  }
  for (int round = 0;; ++round) {
    run_trials(block, levels_, trials);
    for (const CodebookTrial& trial : trials) {
      CodebookTrial& best = alone_[k][trial.scale < 0.0F ? 1 : 0];
      if (trial.error < best.error) best = trial;
    }
    if (round == kRefits) break;
    for (CodebookTrial& trial : trials) {
      trial.scale = static_cast<float>(trial.refitted());
      if (std::fabs(trial.scale) < kSmallestScale) trial.scale = 0.0F;
    }
  }
  for (std::size_t sign = 0; sign < 2; ++sign) refitted_[k][sign] = alone_[k][sign].refitted();
}

template <std::size_t kLevels>
int CodebookSearch<kLevels>::whole(double scale, double d) const noexcept {
  return static_cast<int>(std::lround(std::clamp<double>(scale / d, -top_ - 1, top_)));
}

// The error with d and the codes of the sub-blocks by themselves.
template <std::size_t kLevels>
double CodebookSearch<kLevels>::predict(double d) const noexcept {
  double sum = 0.0;
  for (std::size_t k = 0; k < n_; ++k) {
    double smallest = std::numeric_limits<double>::infinity();
    for (std::size_t sign = 0; sign < 2; ++sign) {
      const CodebookTrial& trial = alone_[k][sign];
      if (!(trial.error < std::numeric_limits<float>::infinity())) continue;
      smallest = std::min(smallest, trial.predict(d * whole(trial.scale, d), refitted_[k][sign]));
    }
    sum += smallest;
  }
  return sum;
}

// The d with the smallest predicted errors: the largest scale becomes one of the highest integers
// or lies between two.
template <std::size_t kLevels>
std::array<double, kTried<kLevels>> CodebookSearch<kLevels>::choose_ds() const noexcept {
  double largest = 0.0;
  for (std::size_t k = 0; k < n_; ++k) {
    const CodebookTrial& best = alone_[k][alone_[k][1].error < alone_[k][0].error ? 1 : 0];
    largest = std::max(largest, std::fabs(double{best.scale}));
  }
  std::array<double, kTried<kLevels>> ds{};
  std::array<double, kTried<kLevels>> errors;
  errors.fill(std::numeric_limits<double>::infinity());
  for (double tops = top_ + 1.5; tops >= 0.55 * top_; tops -= 0.25) {
    const double d = std::min<double>(largest / tops, kF16Max);
    const double error = d > 0.0 ? predict(d) : std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < kTried<kLevels>; ++i) {
      if (!(error < errors[i])) continue;
      std::copy_backward(ds.begin() + static_cast<std::ptrdiff_t>(i), ds.end() - 1, ds.end());
      std::copy_backward(errors.begin() + static_cast<std::ptrdiff_t>(i), errors.end() - 1,
                         errors.end());
      ds[i] = d;
      errors[i] = error;
      break;
    }
  }
  return ds;
}

// Gives every sub-block the best integer scale under d: 4-bit scales are all tried, of 6-bit scales
// the eight nearest to the best one of either sign.
template <std::size_t kLevels>
void CodebookSearch<kLevels>::choose_scales(Candidate& candidate) const noexcept {
  const float d = to_f32(candidate.fields.d);
  candidate.error = 0.0;
  for (std::size_t k = 0; k < n_; ++k) {
    std::array<int, kLanes> scales;
    for (std::size_t i = 0; i < kLanes; ++i) {
      if (2 * (top_ + 1) == kLanes) {
        scales[i] = static_cast<int>(i) - top_ - 1;
        continue;
      }
      const float alone = alone_[k][i % 2].scale;
      const int near = d > 0.0F ? whole(alone, d) : 0;
      scales[i] = std::clamp(near + static_cast<int>(i / 2) - 4, -top_ - 1, top_);
    }
    Trials trials;
    for (std::size_t i = 0; i < kLanes; ++i) trials[i].scale = d * static_cast<float>(scales[i]);
    run_trials(blocks_[k], levels_, trials);
    std::size_t best = 0;
    for (std::size_t i = 1; i < kLanes; ++i) {
      if (is_smaller(trials[i].error, trials[best].error)) best = i;
    }
    candidate.fields.scales[k] = scales[best];
    candidate.trials[k] = trials[best];
    candidate.error += trials[best].error;
  }
}

// The d with the smallest error for the present integer scales and codes.
template <std::size_t kLevels>
double CodebookSearch<kLevels>::refit_d(const Candidate& candidate) const noexcept {
  double w_level = 0.0;
  double level_level = 0.0;
  for (std::size_t k = 0; k < n_; ++k) {
    const double scale = candidate.fields.scales[k];
    w_level += scale * candidate.trials[k].w_level;
    level_level += scale * scale * candidate.trials[k].level_level;
  }
  return level_level > 0.0 ? w_level / level_level : 0.0;
}

template <std::size_t kLevels>
CodebookFields CodebookSearch<kLevels>::run(const CodebookFields& start) noexcept {
  Candidate best;
  best.fields = start;
  for (std::size_t k = 0; k < n_; ++k) {
    Trials same;
    for (CodebookTrial& trial : same) trial.scale = start.scale_of(k);
    run_trials(blocks_[k], levels_, same);
    best.error += same[0].error;
  }
  if (!(best.error > 0.0)) return start;
  for (std::size_t k = 0; k < n_; ++k) search_alone(k);
  for (double d : choose_ds()) {
    for (int turn = 0; turn < kTurns && d > 0.0; ++turn) {
      Candidate candidate;
      candidate.fields.d = to_f16(static_cast<float>(std::min<double>(d, kF16Max)));
      choose_scales(candidate);
      if (is_smaller(candidate.error, best.error)) best = candidate;
      d = refit_d(candidate);
    }
  }
  return best.fields;
}

}  // namespace

CodebookFields search_codebook_block(BlockFormat format, std::span<const float> weights,
                                     const QuantOptions& options,
                                     const CodebookFields& start) noexcept {
  switch (code_bits(format.type)) {
    case 2: return CodebookSearch<4>(format, weights, options).run(start);
    case 3: return CodebookSearch<8>(format, weights, options).run(start);
    default: return CodebookSearch<16>(format, weights, options).run(start);
  }
}

}  // namespace qsf
