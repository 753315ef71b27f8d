// SPDX-License-Identifier: MIT

#include "quant/search/super_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "quant/block_encoders.h"
#include "quant/codec.h"
#include "quant/search/batched_scale_search.h"

namespace qsf {
namespace {

typedef float Quad __attribute__((vector_size(16)));

// Half the smallest f16: a smaller scale becomes 0.
constexpr float kSmallestSuperScale = 0x1p-25F;

// The largest scale and the largest min may become the top integer or one up to this far below it.
constexpr int kTopsTried = 12;

// Offsets from the integer fields of a sub-block that are tried; the fields themselves come first.
constexpr SubFields kNear[] = {{0, 0},   {-1, 0}, {1, 0},  {0, -1}, {0, 1},
                               {-1, -1}, {1, 1},  {-1, 1}, {1, -1}};
constexpr SubFields kNearTied[] = {{0, 0}, {-1, 0}, {1, 0}, {-2, 0}};
static_assert(std::size(kNear) <= kTrials && std::size(kNearTied) <= kTrials);

// Sub-blocks by themselves may have any scale, but no min above 0.
Fields round_to_sub_block(const CodeGrid& grid, Fields fields) noexcept {
  if (grid.has_min) fields.scale = std::max(fields.scale, 0.0F);
  if (std::fabs(fields.scale) < kSmallestSuperScale) fields.scale = 0.0F;
  fields.min = grid.has_min ? std::min(fields.min, 0.0F) : grid.tied_min(fields.scale);
  return fields;
}

// The fields that a sub-block is decoded with.
Fields decoded_fields(const CodeGrid& codes, float d, float dmin, SubFields sub) noexcept {
  const float scale = d * static_cast<float>(sub.scale);
  return {scale, codes.has_min ? dmin * static_cast<float>(sub.min) : codes.tied_min(scale)};
}

Quad round_to_integers(Quad value, int lowest, int highest) noexcept {
  const Quad low = Quad{} + static_cast<float>(lowest);
  const Quad high = Quad{} + static_cast<float>(highest);
  value = value > low ? value : low;
  value = value < high ? value : high;
  constexpr float kWhole = 0x1.8p23F;  // beyond it there are no fractions
  return (value + kWhole) - kWhole;
}

double add_up(Quad sums) noexcept {
  return double{sums[0]} + sums[1] + sums[2] + sums[3];
}

class SuperSearch {
 public:
  SuperSearch(const SuperGrid& grid, std::span<const float> weights, std::uint32_t block,
              const QuantOptions& options) noexcept
      : grid_(grid),
        weights_(weights),
        block_(block),
        options_(options),
        cost_unit_(largest_cost(options)),
        n_((weights.size() + block - 1) / block) {}

  SuperFields run(const SuperFields& start) noexcept;

 private:
  static constexpr std::size_t kQuads = kMaxSubBlocks / 4;
  using Row = std::array<Trial, kMaxSubBlocks>;  // one per sub-block
  using RowFields = std::array<Fields, kMaxSubBlocks>;

  // Fields and their trials.
  struct Candidate {
    SuperFields fields;
    Row trials;
    double error = 0.0;
  };

  // The parabolas of the sub-blocks by themselves: the error grows by
  //   weight * (scale - best_scale)^2       while the min stays, or follows the scale,
  //   n * (min - best_min)^2                with best_min = min0 + (r - code * moved) / n
  struct Alone {
    std::array<Quad, kQuads> scale, best_scale, weight;
    std::array<Quad, kQuads> min, r, code, n, inverse_n;
  };

  bool load_batches() noexcept;
  void load_blocks() noexcept;
  QuantOptions options_of(std::size_t k) const noexcept {
    return options_of_columns(options_, k * block_, weights_of_block(weights_, block_, k).size());
  }
  double total_cost(std::size_t k) const noexcept {
    return in_integers_ ? batches_[k / kBlocksPerBatch]->total_cost(k % kBlocksPerBatch)
                        : double{blocks_[k]->total_cost()};
  }
  Candidate search_alone(const SuperFields& start) noexcept;
  Candidate choose_near(const SuperFields& fields, std::span<const SubFields> near) noexcept;
  Row choose(std::span<const RowFields> trials,
             std::array<std::size_t, kMaxSubBlocks>& best) noexcept;
  double choose_scales(float d, std::array<Quad, kQuads>& scales) const noexcept;
  double choose_mins(float dmin, const std::array<Quad, kQuads>& targets,
                     std::array<Quad, kQuads>& mins) const noexcept;
  SuperFields choose_tops() const noexcept;
  void refit_tops(Candidate& candidate) const noexcept;
  bool is_sure(const Candidate& found, const Candidate& start) const noexcept;

  const SuperGrid& grid_;
  const std::span<const float> weights_;
  const std::size_t block_;
  const QuantOptions options_;
  const float cost_unit_;
  const std::size_t n_;
  bool in_integers_ = true;  // searched in 16-bit integers
  std::array<std::optional<BatchedScaleSearch>, kMaxSubBlocks / kBlocksPerBatch> batches_;
  std::array<std::optional<CostedWeights>, kMaxSubBlocks> blocks_;
  Alone alone_ = {};
};

bool SuperSearch::load_batches() noexcept {
  for (std::size_t first = 0; first < n_; first += kBlocksPerBatch) {
    BatchedScaleSearch& batch =
        batches_[first / kBlocksPerBatch].emplace(grid_.codes, block_, grid_.codes.has_min);
    for (std::size_t k = first; k < first + kBlocksPerBatch; ++k) {
      if (k >= n_) {
        batch.clear(k - first);
      } else if (!batch.load(k - first, weights_of_block(weights_, block_, k),
                             options_of(k).importance, cost_unit_)) {
        return false;
      }
    }
    batch.finish();
  }
  return true;
}

void SuperSearch::load_blocks() noexcept {
  for (std::size_t k = 0; k < n_; ++k) {
    blocks_[k].emplace(weights_of_block(weights_, block_, k), options_of(k), cost_unit_);
  }
}

// Returns the best trial of each sub-block and the index of its fields.
SuperSearch::Row SuperSearch::choose(std::span<const RowFields> trials,
                                     std::array<std::size_t, kMaxSubBlocks>& best) noexcept {
  Row row;
  if (in_integers_) {
    for (std::size_t first = 0; first < n_; first += kBlocksPerBatch) {
      std::array<BatchedScaleSearch::BatchFields, kTrials> fields;
      for (std::size_t i = 0; i < trials.size(); ++i) {
        std::copy_n(trials[i].begin() + static_cast<std::ptrdiff_t>(first), kBlocksPerBatch,
                    fields[i].begin());
      }
      std::array<std::size_t, kBlocksPerBatch> which;
      const auto found =
          batches_[first / kBlocksPerBatch]->choose(std::span(fields).first(trials.size()), which);
      std::copy(found.begin(), found.end(), row.begin() + static_cast<std::ptrdiff_t>(first));
      std::copy(which.begin(), which.end(), best.begin() + static_cast<std::ptrdiff_t>(first));
    }
    return row;
  }
  for (std::size_t k = 0; k < n_; ++k) {
    std::array<Trial, kTrials> tried;
    const std::size_t n_tried = (trials.size() + 3) / 4 * 4;
    for (std::size_t i = 0; i < n_tried; ++i) {
      tried[i].fields = trials[std::min(i, trials.size() - 1)][k];
    }
    run_trials(*blocks_[k], grid_.codes, std::span(tried).first(n_tried));
    best[k] = 0;
    for (std::size_t i = 1; i < trials.size(); ++i) {
      if (is_smaller(tried[i].error, tried[best[k]].error)) best[k] = i;
    }
    row[k] = tried[best[k]];
  }
  return row;
}

// Gives every sub-block the best integer fields near its present ones; codes are chosen again.
SuperSearch::Candidate SuperSearch::choose_near(const SuperFields& fields,
                                                std::span<const SubFields> near) noexcept {
  std::array<RowFields, std::size(kNear)> trials;
  std::array<std::array<SubFields, kMaxSubBlocks>, std::size(kNear)> subs;
  const float d = to_f32(fields.d);
  const float dmin = to_f32(fields.dmin);
  Candidate candidate;
  candidate.fields = fields;
  for (std::size_t i = 0; i < near.size(); ++i) {
    SuperFields moved = fields;
    for (std::size_t k = 0; k < n_; ++k) {
      SubFields& sub = moved.subs[k];
      sub.scale = std::clamp(sub.scale + near[i].scale, grid_.lowest_scale, grid_.highest_scale);
      sub.min = std::clamp(sub.min + near[i].min, 0, grid_.highest_min);
    }
    for (std::size_t k = 0; k < kMaxSubBlocks; ++k) {
      trials[i][k] = decoded_fields(grid_.codes, d, dmin, moved.subs[k]);
    }
    subs[i] = moved.subs;
  }
  std::array<std::size_t, kMaxSubBlocks> best;
  candidate.trials = choose(std::span(trials).first(near.size()), best);
  for (std::size_t k = 0; k < n_; ++k) {
    candidate.fields.subs[k] = subs[best[k]][k];
    candidate.error += candidate.trials[k].error;
  }
  return candidate;
}

// Searches every sub-block by itself. Returns the trials of the start.
SuperSearch::Candidate SuperSearch::search_alone(const SuperFields& start) noexcept {
  Candidate of_start;
  of_start.fields = start;
  Row found;
  for (std::size_t first = 0; in_integers_ && first < n_; first += kBlocksPerBatch) {
    BatchedScaleSearch::BatchFields fields;
    for (std::size_t lane = 0; lane < kBlocksPerBatch; ++lane) {
      fields[lane] = start.fields_of(grid_.codes, first + lane);
    }
    BatchedScaleSearch::BatchTrials trials;
    const auto best = batches_[first / kBlocksPerBatch]->search(&fields, &trials);
    std::copy(trials.begin(), trials.end(),
              of_start.trials.begin() + static_cast<std::ptrdiff_t>(first));
    std::copy(best.begin(), best.end(), found.begin() + static_cast<std::ptrdiff_t>(first));
  }
  if (!in_integers_) {
    const SubFields as_it_is[] = {{0, 0}};
    of_start.trials = choose_near(start, as_it_is).trials;
    for (std::size_t k = 0; k < n_; ++k) {
      found[k] =
          search_block(*blocks_[k], grid_.codes, of_start.trials[k].fields, round_to_sub_block);
    }
  }
  const float zero = grid_.codes.zero;
  for (std::size_t k = 0; k < n_; ++k) {
    const Trial& trial = found[k];
    const auto n = static_cast<float>(total_cost(k));
    const float weight = trial.code_code - 2.0F * zero * trial.code + zero * zero * n;
    const float to_best = weight > 0.0F ? (trial.r_code - zero * trial.r) / weight : 0.0F;
    of_start.error += of_start.trials[k].error;
    alone_.scale[k / 4][k % 4] = trial.fields.scale;
    alone_.best_scale[k / 4][k % 4] = trial.fields.scale + to_best;
    alone_.weight[k / 4][k % 4] = weight;
    alone_.min[k / 4][k % 4] = trial.fields.min;
    alone_.r[k / 4][k % 4] = trial.r;
    alone_.code[k / 4][k % 4] = trial.code;
    alone_.n[k / 4][k % 4] = n;
    alone_.inverse_n[k / 4][k % 4] = n > 0.0F ? 1.0F / n : 0.0F;
  }
  return of_start;
}

// Chooses the scales under d nearest to the optimum of every sub-block. Returns the growth of the
// error.
double SuperSearch::choose_scales(float d, std::array<Quad, kQuads>& scales) const noexcept {
  const float inverse = d > 0.0F ? 1.0F / d : 0.0F;
  Quad sums = {};
  for (std::size_t q = 0; q < kQuads; ++q) {
    scales[q] =
        round_to_integers(alone_.best_scale[q] * inverse, grid_.lowest_scale, grid_.highest_scale);
    const Quad off = d * scales[q] - alone_.best_scale[q];
    sums += alone_.weight[q] * off * off;
  }
  return add_up(sums);
}

// The same for mins under dmin; the targets are the optima for the scales.
double SuperSearch::choose_mins(float dmin, const std::array<Quad, kQuads>& targets,
                                std::array<Quad, kQuads>& mins) const noexcept {
  const float inverse = dmin < 0.0F ? 1.0F / dmin : 0.0F;
  Quad sums = {};
  for (std::size_t q = 0; q < kQuads; ++q) {
    mins[q] = round_to_integers(targets[q] * inverse, 0, grid_.highest_min);
    const Quad off = dmin * mins[q] - targets[q];
    sums += alone_.n[q] * off * off;
  }
  return add_up(sums);
}

// Tries integers for the largest scale, then for the largest min, by the parabolas of the
// sub-blocks.
SuperFields SuperSearch::choose_tops() const noexcept {
  const auto try_tops = [](float value, int top, std::array<Quad, kQuads>& best,
                           auto choose_fields) {
    F16 field{0};
    double smallest = std::numeric_limits<double>::infinity();
    for (int below = 0; below < kTopsTried && below < top; ++below) {
      const float step = std::clamp(value / static_cast<float>(top - below), -kF16Max, kF16Max);
      std::array<Quad, kQuads> chosen;
      const double error = choose_fields(to_f32(to_f16(step)), chosen);
      if (error < smallest) {
        smallest = error;
        best = chosen;
        field = to_f16(step);
      }
    }
    return field;
  };
  float scale = 0.0F;
  for (std::size_t k = 0; k < n_; ++k)
    scale = std::max(scale, std::fabs(alone_.best_scale[k / 4][k % 4]));
  SuperFields fields;
  std::array<Quad, kQuads> scales = {};
  std::array<Quad, kQuads> mins = {};
  fields.d = try_tops(scale, grid_.highest_scale, scales,
                      [this](float d, auto& chosen) { return choose_scales(d, chosen); });
  if (grid_.codes.has_min) {
    std::array<Quad, kQuads> targets;
    float min = 0.0F;
    for (std::size_t q = 0; q < kQuads; ++q) {
      const Quad moved = to_f32(fields.d) * scales[q] - alone_.scale[q];
      targets[q] = alone_.min[q] + (alone_.r[q] - alone_.code[q] * moved) * alone_.inverse_n[q];
      for (std::size_t i = 0; i < 4; ++i) min = std::min(min, targets[q][i]);
    }
    fields.dmin = try_tops(min, grid_.highest_min, mins, [&](float dmin, auto& chosen) {
      return choose_mins(dmin, targets, chosen);
    });
  }
  for (std::size_t k = 0; k < n_; ++k) {
    fields.subs[k] = {static_cast<int>(scales[k / 4][k % 4]), static_cast<int>(mins[k / 4][k % 4])};
  }
  return fields;
}

// Moves d and dmin to the minimum of the error for the present integer fields and codes.
void SuperSearch::refit_tops(Candidate& candidate) const noexcept {
  double scale_scale = 0.0;
  double scale_min = 0.0;
  double min_min = 0.0;
  double scale_r = 0.0;
  double min_r = 0.0;
  const double zero = grid_.codes.zero;
  for (std::size_t k = 0; k < n_; ++k) {
    const Trial& trial = candidate.trials[k];
    const double n = total_cost(k);
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

// Whether integer sums prove that the result is better than the start.
bool SuperSearch::is_sure(const Candidate& found, const Candidate& start) const noexcept {
  double unsure = 0.0;
  for (std::size_t k = 0; k < n_; ++k) {
    unsure += batches_[k / kBlocksPerBatch]->unsure_error(k % kBlocksPerBatch);
  }
  return found.error < kSureShare * start.error && found.error > unsure;
}

SuperFields SuperSearch::run(const SuperFields& start) noexcept {
  in_integers_ = load_batches();
  if (!in_integers_) load_blocks();
  Candidate of_start = search_alone(start);
  constexpr SubFields kAsItIs[] = {{0, 0}};
  const std::span<const SubFields> near = grid_.codes.has_min
                                              ? std::span<const SubFields>(kNear)
                                              : std::span<const SubFields>(kNearTied);
  Candidate first = choose_near(choose_tops(), near);
  refit_tops(first);
  const Candidate second = choose_near(first.fields, near);
  if (in_integers_ && is_sure(second, of_start)) return second.fields;
  if (in_integers_) {
    in_integers_ = false;
    load_blocks();
    of_start = choose_near(start, kAsItIs);
  }
  return is_smaller(choose_near(second.fields, kAsItIs).error, of_start.error) ? second.fields
                                                                               : start;
}

}  // namespace

Fields SuperFields::fields_of(const CodeGrid& codes, std::size_t k) const noexcept {
  return decoded_fields(codes, to_f32(d), to_f32(dmin), subs[k]);
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
