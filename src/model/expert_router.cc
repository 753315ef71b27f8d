// SPDX-License-Identifier: MIT

#include "model/expert_router.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/portable_math.h"
#include "base/ranges.h"
#include "model/expert_groups.h"
#include "model/sigmoid_router.h"
#include "model/sparsemixer_router.h"

namespace qsf {
namespace {

// A score that is not a number is chosen last.
float comparable(float score) noexcept {
  return std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
}

// Weighs chosen experts, best first, by their parts of a softmax over all, or over the chosen ones.
void weigh_by_softmax(std::span<const float> scores, bool renormalise,
                      std::span<ExpertChoice> chosen) noexcept {
  const double most = comparable(scores[chosen[0].expert]);
  double total = 0.0;
  for (std::size_t e = 0; e < (renormalise ? chosen.size() : scores.size()); ++e) {
    total += portable::exp(comparable(scores[renormalise ? chosen[e].expert : e]) - most);
  }
  for (ExpertChoice& choice : chosen) {
    choice.weight =
        static_cast<float>(portable::exp(comparable(scores[choice.expert]) - most) / total);
  }
}

// Ranks are scores, those of other groups than the best kNeverChosen.
void rank_in_groups(const ModelSpec& spec, std::span<const float> scores,
                    std::span<float> ranks) noexcept {
  // A score that is not a number stays above those of other groups.
  for (std::size_t e = 0; e < scores.size(); ++e) {
    ranks[e] = std::max(comparable(scores[e]), std::numeric_limits<float>::lowest());
  }
  if (spec.expert_groups == 1) return;
  mask_groups(GroupRank::kLargest, spec.expert_groups, spec.expert_groups_used, ranks);
}

// The heat of a prompt's rows, from its last one back.
constexpr float kPromptHeatDecay = 0.9F;
constexpr float kLeastHeat = 0.05F;

}  // namespace

void choose_experts(std::span<const float> scores, bool renormalise,
                    std::span<ExpertChoice> chosen) noexcept {
  QSF_DCHECK(chosen.size() <= scores.size());
  if (chosen.empty()) return;
  // The best so far, best first; of equal ones the first.
  auto end = chosen.begin();
  for (std::uint32_t e = 0; e < scores.size(); ++e) {
    const auto place = std::upper_bound(chosen.begin(), end, comparable(scores[e]),
                                        [&](float score, const ExpertChoice& choice) {
                                          return score > comparable(scores[choice.expert]);
                                        });
    if (place == chosen.end()) continue;
    if (end != chosen.end()) ++end;
    std::move_backward(place, end - 1, end);
    place->expert = e;
  }
  weigh_by_softmax(scores, renormalise, chosen);
}

void choose_in_groups(const ModelSpec& spec, std::span<const float> scores, std::span<float> masked,
                      std::span<ExpertChoice> chosen) noexcept {
  QSF_DCHECK(masked.size() == scores.size() && !spec.expert_renormalised);
  if (chosen.empty()) return;
  rank_in_groups(spec, scores, masked);
  choose_experts(masked, false, chosen);
  weigh_by_softmax(scores, false, chosen);
}

Status check_expert_preference(float margin, const ModelSpec& spec) {
  if (margin == 0.0F) return ok_status();
  if (!(margin > 0.0F && std::isfinite(margin))) {
    return invalid_argument("margin of experts: %g, expected a finite number >= 0",
                            static_cast<double>(margin));
  }
  if (spec.n_experts == 0) {
    return unsupported("margin of experts: the model has none; leave the option out");
  }
  if (spec.expert_scoring == ExpertScoring::kSparsemixer) {
    return unsupported(
        "margin of experts: the router of this model chooses all of a row together; leave the "
        "option out");
  }
  if (spec.n_experts_used > kKeptChoices) return ok_status();
  return unsupported(
      "margin of experts: a row takes %u, and the best %u are always kept; leave the option out",
      spec.n_experts_used, kKeptChoices);
}

ExpertRows::ExpertRows(const ModelSpec& spec, std::uint32_t max_rows)
    : spec_(spec),
      scale_(spec.residual_scale * spec.expert_scale),
      n_used_(spec.n_experts_used),
      ends_(std::size_t{spec.n_experts} + 1) {
  const std::size_t most = std::size_t{max_rows} * n_used_;
  choices_.reserve(most);
  rows_.resize(most);
  weights_.resize(most);
  heats_.resize(spec.n_experts == 0 ? 0 : max_rows);
  uses_.reserve(spec.n_experts);
  guesses_.reserve(std::size_t{kMostGuessedRows} * n_used_);
  ranked_guesses_.reserve(std::size_t{kMostGuessedRows} * n_used_);
  ranks_.resize(spec.n_experts);
}

std::uint64_t ExpertRows::heap_bytes(const ModelSpec& spec, std::uint32_t max_rows) noexcept {
  if (spec.n_experts == 0) return 0;
  const std::uint64_t most = std::uint64_t{max_rows} * spec.n_experts_used;
  return most * (sizeof(ExpertChoice) + sizeof(std::uint32_t) + sizeof(float)) +
         std::uint64_t{kMostGuessedRows} * spec.n_experts_used *
             (sizeof(ExpertChoice) + sizeof(ExpertGuess)) +
         max_rows * sizeof(float) + spec.n_experts * (sizeof(std::uint32_t) + sizeof(ExpertUse)) +
         sizeof(std::uint32_t) + spec.n_experts * sizeof(float);
}

void ExpertRows::clear() noexcept {
  choices_.clear();
}

std::span<ExpertChoice> ExpertRows::add(std::span<const float> scores,
                                        std::span<const float> corrections) {
  QSF_DCHECK(choices_.size() + n_used_ <= rows_.size());
  choices_.resize(choices_.size() + n_used_);
  const std::span<ExpertChoice> chosen = std::span(choices_).last(n_used_);
  choose(scores, corrections, chosen);
  return chosen;
}

std::span<ExpertChoice> ExpertRows::add_guess(std::span<const float> scores,
                                              std::span<const float> corrections) {
  QSF_DCHECK(guesses_.size() + n_used_ <= guesses_.capacity());
  guesses_.resize(guesses_.size() + n_used_);
  const std::span<ExpertChoice> guessed = std::span(guesses_).last(n_used_);
  choose(scores, corrections, guessed);
  return guessed;
}

std::span<const ExpertGuess> ExpertRows::rank_guesses() {
  ranked_guesses_.clear();
  for (std::uint32_t rank = 0; rank < n_used_; ++rank) {
    for (std::size_t i = rank; i < guesses_.size(); i += n_used_) {
      const std::uint32_t expert = guesses_[i].expert;
      const bool known =
          ranges::find(ranked_guesses_, expert, &ExpertGuess::expert) != ranked_guesses_.end();
      if (!known) ranked_guesses_.push_back({expert, rank});
    }
  }
  return ranked_guesses_;
}

void ExpertRows::choose(std::span<const float> scores, std::span<const float> corrections,
                        std::span<ExpertChoice> chosen) {
  switch (spec_.expert_scoring) {
    case ExpertScoring::kSoftmax:
      if (spec_.expert_groups > 1) {
        choose_in_groups(spec_, scores, ranks_, chosen);
      } else {
        choose_experts(scores, spec_.expert_renormalised, chosen);
      }
      break;
    case ExpertScoring::kSigmoid:
      choose_by_sigmoid(spec_, corrections, scores, ranks_, chosen);
      break;
    case ExpertScoring::kSparsemixer:
      choose_by_sparsemixer(scores, spec_.expert_margin, chosen);
      break;
  }
}

std::span<ExpertChoice> ExpertRows::prefer(std::span<const float> scores,
                                           std::span<const float> corrections,
                                           std::span<const std::uint8_t> in_memory, float margin) {
  const bool sigmoid = spec_.expert_scoring == ExpertScoring::kSigmoid;
  const std::span<ExpertChoice> chosen = std::span(choices_).last(n_used_);
  QSF_DCHECK(n_used_ > kKeptChoices && spec_.expert_scoring != ExpertScoring::kSparsemixer);
  if (sigmoid) {
    rank_by_sigmoid(spec_, corrections, scores, ranks_);
  } else {
    rank_in_groups(spec_, scores, ranks_);
  }
  for (const ExpertChoice& kept : chosen.first(kKeptChoices)) ranks_[kept.expert] = kNeverChosen;
  for (ExpertChoice& choice : chosen.subspan(kKeptChoices)) {
    // In double, in which a large margin does not make two ranks equal.
    double best = -std::numeric_limits<double>::infinity();
    for (std::uint32_t e = 0; e < ranks_.size(); ++e) {
      const double rank = double{ranks_[e]} + (in_memory[e] != 0 ? double{margin} : 0.0);
      if (rank <= best) continue;
      best = rank;
      choice.expert = e;
    }
    ranks_[choice.expert] = kNeverChosen;
  }
  if (sigmoid) {
    weigh_by_sigmoid(spec_, scores, chosen);
  } else {
    weigh_by_softmax(scores, spec_.expert_renormalised, chosen);
  }
  return chosen;
}

void ExpertRows::sort(std::span<const Row> rows) {
  std::fill(ends_.begin(), ends_.end(), 0);
  for (const ExpertChoice& choice : choices_) ++ends_[choice.expert + 1];
  for (std::size_t e = 1; e < ends_.size(); ++e) ends_[e] += ends_[e - 1];
  // Rows are placed from the last one on, each at the end of its expert's part, which moves to the
  // part's start.
  for (std::size_t i = choices_.size(); i > 0; --i) {
    const ExpertChoice& choice = choices_[i - 1];
    const std::uint32_t at = --ends_[choice.expert + 1];
    rows_[at] = static_cast<std::uint32_t>((i - 1) / n_used_);
    weights_[at] = choice.weight * scale_;
  }
  // Now ends_[e + 1] is the start of expert e.
  std::rotate(ends_.begin(), ends_.begin() + 1, ends_.end());
  ends_.back() = static_cast<std::uint32_t>(choices_.size());
  list_uses(rows);
}

// Lists the experts with rows. What the last rows of a prompt chose is likely to be chosen again.
void ExpertRows::list_uses(std::span<const Row> rows) {
  float heat = 0.0F;
  for (std::size_t i = rows.size(); i > 0; --i) {
    const Row& row = rows[i - 1];
    const bool goes_on =
        i < rows.size() && rows[i].role == RowRole::kPrompt && rows[i].sequence == row.sequence;
    heat = row.role != RowRole::kPrompt || !goes_on ? 1.0F : heat * kPromptHeatDecay;
    heats_[i - 1] = heat < kLeastHeat ? 0.0F : heat;
  }
  uses_.clear();
  for (std::uint32_t expert = 0; expert + 1 < ends_.size(); ++expert) {
    if (rows_of(expert).empty()) continue;
    ExpertUse use = {.expert = expert};
    for (const std::uint32_t row : rows_of(expert)) {
      use.heat += heats_[row];
      use.generates = use.generates || rows[row].role != RowRole::kPrompt;
    }
    uses_.push_back(use);
  }
}

std::span<const std::uint32_t> ExpertRows::rows_of(std::uint32_t expert) const noexcept {
  return std::span(rows_).subspan(ends_[expert], ends_[expert + 1] - ends_[expert]);
}

std::span<const float> ExpertRows::weights_of(std::uint32_t expert) const noexcept {
  return std::span(weights_).subspan(ends_[expert], ends_[expert + 1] - ends_[expert]);
}

}  // namespace qsf
