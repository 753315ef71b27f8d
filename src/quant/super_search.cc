// SPDX-License-Identifier: MIT

#include "quant/super_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "quant/affine.h"
#include "quant/codec.h"

namespace qsf {
namespace {

// Half the smallest f16: a smaller scale becomes 0.
constexpr float kSmallestScale = 0x1p-25F;

// Which whole numbers the largest scale and the largest min may become: so far below the top.
constexpr int kTopsTried = 12;

// Turns of whole numbers and f16 fields.
constexpr int kTurns = 2;

// Sub-blocks by themselves may have any scale, but no min above 0.
Fields round_to_sub_block(const CodeGrid& grid, Fields fields) noexcept {
  if (grid.has_min) fields.scale = std::max(fields.scale, 0.0F);
  if (std::fabs(fields.scale) < kSmallestScale) fields.scale = 0.0F;
  fields.min = grid.has_min ? std::min(fields.min, 0.0F) : grid.tied_min(fields.scale);
  return fields;
}

// What try_near() tries beside the whole numbers that a sub-block has, which come first.
constexpr SubFields kNear[] = {{0, 0}, {-1, 0}, {1, 0},  {0, -1}, {0, 1}, {-1, -1},
                               {1, 1}, {-1, 1}, {1, -1}, {-2, 0}, {2, 0}, {0, 2}};
constexpr SubFields kNearTied[] = {{0, 0}, {-1, 0}, {1, 0}, {-2, 0}};

int round_to_whole(double value, int lowest, int highest) noexcept {
  return static_cast<int>(std::lround(std::clamp<double>(value, lowest, highest)));
}

class SuperSearch {
 public:
  SuperSearch(const SuperGrid& grid, std::span<const float> weights, std::uint32_t block,
              const QuantOptions& options) noexcept
      : grid_(grid) {
    const float unit = largest_cost(options);
    for (std::size_t first = 0; first < weights.size(); first += block) {
      const std::size_t n = std::min<std::size_t>(block, weights.size() - first);
      blocks_[n_++].emplace(weights.subspan(first, n), options_of_columns(options, first, n), unit);
    }
  }

  SuperFields run(const SuperFields& start) noexcept;

 private:
  // Fields and what they lead to.
  struct Candidate {
    SuperFields fields;
    std::array<Trial, kMaxSubBlocks> trials;
    double error = 0.0;
  };

  const CostedWeights& block(std::size_t k) const noexcept { return *blocks_[k]; }
  Candidate evaluate(const SuperFields& fields) const noexcept;
  double choose_scales(SuperFields& fields) const noexcept;
  double choose_mins(SuperFields& fields) const noexcept;
  SuperFields choose_tops() const noexcept;
  void try_near(Candidate& candidate) const noexcept;
  void refit_tops(Candidate& candidate) const noexcept;

  const SuperGrid& grid_;
  std::size_t n_ = 0;
  std::array<std::optional<CostedWeights>, kMaxSubBlocks> blocks_;
  std::array<Trial, kMaxSubBlocks> alone_;  // the best of every sub-block by itself
};

SuperSearch::Candidate SuperSearch::evaluate(const SuperFields& fields) const noexcept {
  Candidate candidate;
  candidate.fields = fields;
  for (std::size_t k = 0; k < n_; ++k) {
    std::array<Trial, 4> same;
    for (Trial& trial : same) trial.fields = fields.fields_of(grid_.codes, k);
    run_trials(block(k), grid_.codes, same);
    candidate.trials[k] = same[0];
    candidate.error += same[0].error;
  }
  return candidate;
}

// Chooses the scales under d that come nearest to what every sub-block has by itself, mins left as
// they are. Returns the sum of errors that this would lead to.
double SuperSearch::choose_scales(SuperFields& fields) const noexcept {
  const double d = to_f32(fields.d);
  double sum = 0.0;
  for (std::size_t k = 0; k < n_; ++k) {
    const Fields& alone = alone_[k].fields;
    fields.subs[k].scale =
        d > 0.0 ? round_to_whole(alone.scale / d, grid_.lowest_scale, grid_.highest_scale) : 0;
    const float scale = fields.fields_of(grid_.codes, k).scale;
    const float min = grid_.codes.has_min ? alone.min : grid_.codes.tied_min(scale);
    sum += predict_error(block(k), alone_[k], {scale, min});
  }
  return sum;
}

// Chooses the mins under dmin that come nearest to the best ones for the scales.
double SuperSearch::choose_mins(SuperFields& fields) const noexcept {
  const double dmin = to_f32(fields.dmin);
  double sum = 0.0;
  for (std::size_t k = 0; k < n_; ++k) {
    const Trial& alone = alone_[k];
    const double scale = fields.fields_of(grid_.codes, k).scale;
    double min = alone.fields.min;
    if (block(k).total_cost() > 0.0F) {
      min += (alone.r - (scale - alone.fields.scale) * alone.code) / block(k).total_cost();
    }
    fields.subs[k].min = dmin < 0.0 ? round_to_whole(min / dmin, 0, grid_.highest_min) : 0;
    sum += predict_error(block(k), alone, fields.fields_of(grid_.codes, k));
  }
  return sum;
}

// Tries which whole numbers the largest scale and then the largest min shall be.
SuperFields SuperSearch::choose_tops() const noexcept {
  float scale = 0.0F;
  float min = 0.0F;
  for (std::size_t k = 0; k < n_; ++k) {
    scale = std::max(scale, std::fabs(alone_[k].fields.scale));
    min = std::min(min, alone_[k].fields.min);
  }
  SuperFields best;
  const auto try_tops = [&](float value, int top, F16 SuperFields::*field, auto choose) {
    double smallest = std::numeric_limits<double>::infinity();
    const SuperFields other = best;
    for (int below = 0; below < kTopsTried && below < top; ++below) {
      SuperFields fields = other;
      const float step = std::clamp(value / static_cast<float>(top - below), -kF16Max, kF16Max);
      fields.*field = to_f16(step);
      const double error = (this->*choose)(fields);
      if (error < smallest) {
        smallest = error;
        best = fields;
      }
    }
  };
  try_tops(scale, grid_.highest_scale, &SuperFields::d, &SuperSearch::choose_scales);
  try_tops(min, grid_.highest_min, &SuperFields::dmin, &SuperSearch::choose_mins);
  return best;
}

// Gives every sub-block the best whole numbers near those that it has, with codes chosen again.
void SuperSearch::try_near(Candidate& candidate) const noexcept {
  const std::span<const SubFields> near = grid_.codes.has_min
                                              ? std::span<const SubFields>(kNear)
                                              : std::span<const SubFields>(kNearTied);
  candidate.error = 0.0;
  for (std::size_t k = 0; k < n_; ++k) {
    std::array<Trial, std::size(kNear)> trials;
    std::array<SubFields, std::size(kNear)> subs;
    SuperFields& fields = candidate.fields;
    const SubFields now = fields.subs[k];
    for (std::size_t i = 0; i < near.size(); ++i) {
      subs[i].scale =
          std::clamp(now.scale + near[i].scale, grid_.lowest_scale, grid_.highest_scale);
      subs[i].min = std::clamp(now.min + near[i].min, 0, grid_.highest_min);
      fields.subs[k] = subs[i];
      trials[i].fields = fields.fields_of(grid_.codes, k);
    }
    run_trials(block(k), grid_.codes, std::span(trials).first(near.size()));
    std::size_t best = 0;
    for (std::size_t i = 1; i < near.size(); ++i) {
      if (is_smaller(trials[i].error, trials[best].error)) best = i;
    }
    fields.subs[k] = subs[best];
    candidate.trials[k] = trials[best];
    candidate.error += trials[best].error;
  }
}

// Moves d and dmin to the lowest point of the error for the whole numbers and codes as they are.
void SuperSearch::refit_tops(Candidate& candidate) const noexcept {
  double scale_scale = 0.0;
  double scale_min = 0.0;
  double min_min = 0.0;
  double scale_r = 0.0;
  double min_r = 0.0;
  const double zero = grid_.codes.zero;
  for (std::size_t k = 0; k < n_; ++k) {
    const Trial& trial = candidate.trials[k];
    const double n = block(k).total_cost();
    const double scale = candidate.fields.subs[k].scale;
    const double min = candidate.fields.subs[k].min;
    scale_scale += scale * scale * (trial.code_code - 2.0 * zero * trial.code + zero * zero * n);
    scale_r += scale * (trial.r_code - zero * trial.r);
    scale_min += scale * min * trial.code;
    min_min += min * min * n;
    min_r += min * trial.r;
  }
  SuperFields& fields = candidate.fields;
  double d = to_f32(fields.d);
  double dmin = to_f32(fields.dmin);
  const double determinant = scale_scale * min_min - scale_min * scale_min;
  if (min_min > 0.0 && determinant > 1e-6 * scale_scale * min_min) {
    d += (min_min * scale_r - scale_min * min_r) / determinant;
    dmin += (scale_scale * min_r - scale_min * scale_r) / determinant;
  } else if (scale_scale > 0.0) {
    d += scale_r / scale_scale;
  }
  fields.d = to_f16(static_cast<float>(std::clamp<double>(d, 0.0, kF16Max)));
  fields.dmin = to_f16(static_cast<float>(std::clamp<double>(dmin, -kF16Max, 0.0)));
}

SuperFields SuperSearch::run(const SuperFields& start) noexcept {
  Candidate best = evaluate(start);
  if (!(best.error > 0.0)) return start;
  for (std::size_t k = 0; k < n_; ++k) {
    alone_[k] = search_block(block(k), grid_.codes, best.trials[k].fields, round_to_sub_block);
  }
  Candidate candidate;
  candidate.fields = choose_tops();
  for (int turn = 0; turn < kTurns; ++turn) {
    if (turn > 0) refit_tops(candidate);
    try_near(candidate);
    if (is_smaller(candidate.error, best.error)) best = candidate;
  }
  return best.fields;
}

}  // namespace

Fields SuperFields::fields_of(const CodeGrid& codes, std::size_t k) const noexcept {
  const float scale = to_f32(d) * static_cast<float>(subs[k].scale);
  return {scale,
          codes.has_min ? to_f32(dmin) * static_cast<float>(subs[k].min) : codes.tied_min(scale)};
}

void pack_sub_blocks(BlockFormat format, const CodeGrid& grid, const SuperFields& fields,
                     std::span<const float> weights, MutableByteSpan out) {
  std::array<std::uint8_t, kMaxBlock> codes;
  for (std::size_t first = 0; first < weights.size(); first += format.block) {
    const std::size_t k = first / format.block;
    const auto part =
        weights.subspan(first, std::min<std::size_t>(format.block, weights.size() - first));
    const Fields sub = fields.fields_of(grid, k);
    codes.fill(0);
    choose_affine_codes(part, sub.scale, sub.min, static_cast<std::uint32_t>(grid.top),
                        codes.data());
    if (sub.scale == 0.0F) std::fill_n(codes.begin(), part.size(), code_zero(format.type));
    block_codec(format.type)
        .pack(codes.data(), format.block, static_cast<std::uint32_t>(part.size()),
              out.data() + locate_in_row(format, k).codes);
  }
}

SuperFields search_super_block(const SuperGrid& grid, std::span<const float> weights,
                               std::uint32_t block, const QuantOptions& options,
                               const SuperFields& start) noexcept {
  return SuperSearch(grid, weights, block, options).run(start);
}

}  // namespace qsf
