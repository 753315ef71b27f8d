// SPDX-License-Identifier: MIT
//
// The choice of experts in a mixture of experts: which ones take a row, with which weights, and the
// rows of a pass by expert.

#ifndef QSF_MODEL_EXPERT_ROUTER_H_
#define QSF_MODEL_EXPERT_ROUTER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "format/model_spec.h"
#include "kv/row.h"
#include "stream/expert_cache.h"
#include "stream/expert_prefetch.h"

namespace qsf {

struct ExpertChoice {
  std::uint32_t expert = 0;
  float weight = 0.0F;
};

// Sees which experts each row chose, and may put others in their place: for benchmarks that record
// routings, and for those that run random weights with the routings of real texts.
class RoutingHook {
 public:
  RoutingHook() = default;
  RoutingHook(const RoutingHook&) = delete;
  RoutingHook& operator=(const RoutingHook&) = delete;
  virtual ~RoutingHook() = default;
  // Shapes     scores [n_experts] of the router, chosen [n_experts_used] in the order of their
  // scores Guarantees to be kept  every choice is an expert of the model, none twice Threads    the
  // one that runs passes
  virtual void routed(std::uint32_t layer, const Row& row, std::span<const float> scores,
                      std::span<ExpertChoice> chosen) = 0;
  // Sees what is guessed of a layer before it runs: for the rows of the pass in their order, or for
  // none. It may put other guesses in their place, the surest first, none twice.
  // Shapes  guessed [n_experts_used]
  virtual void guessed(std::uint32_t layer, const Row& row, std::span<ExpertChoice> guessed) {
    static_cast<void>(layer), static_cast<void>(row), static_cast<void>(guessed);
  }
};

// Chooses the experts with the largest scores, the first of equal ones before the second. Weights
// are the softmax over all scores, and their sum is 1 with `renormalise`.
// Shapes    scores [n_experts], chosen [n_experts_used] in the order of their scores
// Requires  chosen.size() <= scores.size()
// Based on: Fedus, Zoph and Shazeer, "Switch transformers", 2022; Jiang et al., "Mixtral of
// experts", 2024.
void choose_experts(std::span<const float> scores, bool renormalise,
                    std::span<ExpertChoice> chosen) noexcept;

// The same out of the spec's groups with the largest scores. Weights are the softmax over all.
// Shapes    masked [n_experts], overwritten
// Requires  no renormalisation
// Based on: DeepSeek-AI, "DeepSeek-V2", 2024, section 2.2.2.
void choose_in_groups(const ModelSpec& spec, std::span<const float> scores, std::span<float> masked,
                      std::span<ExpertChoice> chosen) noexcept;

// Checks a margin for ExpertRows::prefer(); 0 needs no experts.
// Fails  kInvalidArgument; kUnsupported where the model has no experts to prefer
Status check_expert_preference(float margin, const ModelSpec& spec);

// Of a row's experts the first ones, which prefer() keeps.
inline constexpr std::uint32_t kKeptChoices = 2;

// The rows of a pass by expert.
// Threads  one at a time
class ExpertRows {
 public:
  // Allocates for passes of `max_rows` rows; nothing else does. Requires  spec outlives the rows
  ExpertRows(const ModelSpec& spec, std::uint32_t max_rows);

  static std::uint64_t heap_bytes(const ModelSpec& spec, std::uint32_t max_rows) noexcept;

  // Starts a pass.
  void clear() noexcept;
  // Chooses the experts of the next row, and returns them in the order of their scores.
  // Shapes  scores, corrections or none [n_experts]
  std::span<ExpertChoice> add(std::span<const float> scores,
                              std::span<const float> corrections = {});
  // Chooses those of the last row again. The first kKeptChoices stay; the others are chosen as if
  // an expert in memory had a score larger by `margin`, in units of what the router ranks: scores,
  // or their sigmoids where those are corrected or in groups. Weights are of the scores as before.
  // Shapes    as add(); in_memory [n_experts]
  // Requires  more than kKeptChoices experts a row; no sparsemixer
  // Based on: Skliar et al., "Mixture of cache-conditional experts for efficient mobile device
  // inference", 2024.
  std::span<ExpertChoice> prefer(std::span<const float> scores, std::span<const float> corrections,
                                 std::span<const std::uint8_t> in_memory, float margin);
  // Guesses of another layer's experts, of kMostGuessedRows rows at most.
  void clear_guesses() noexcept { guesses_.clear(); }
  // Chooses the experts of the next row as add() does, and counts them among the guesses alone.
  std::span<ExpertChoice> add_guess(std::span<const float> scores,
                                    std::span<const float> corrections);
  // The guesses of all rows by rank, each expert once.
  std::span<const ExpertGuess> rank_guesses();

  // Sorts the rows by expert. Requires  every row of the pass was added
  void sort(std::span<const Row> rows);

  // The experts that have rows, ascending. Requires  sort()
  std::span<const ExpertUse> uses() const noexcept { return uses_; }

  // The rows that an expert takes, ascending, and its weight in each. Requires  sort()
  std::span<const std::uint32_t> rows_of(std::uint32_t expert) const noexcept;
  std::span<const float> weights_of(std::uint32_t expert) const noexcept;

 private:
  void choose(std::span<const float> scores, std::span<const float> corrections,
              std::span<ExpertChoice> chosen);
  void list_uses(std::span<const Row> rows);

  const ModelSpec& spec_;
  float scale_;  // of all weights
  std::uint32_t n_used_;
  std::vector<float> ranks_;           // [n_experts]
  std::vector<ExpertChoice> choices_;  // [rows, n_used_]
  std::vector<std::uint32_t> ends_;  // [n_experts + 1]; rows of expert e: [ends_[e], ends_[e + 1])
  std::vector<std::uint32_t> rows_;
  std::vector<float> weights_;
  std::vector<float> heats_;  // [rows]
  std::vector<ExpertUse> uses_;
  std::vector<ExpertChoice> guesses_;  // [rows, n_used_]
  std::vector<ExpertGuess> ranked_guesses_;
};

}  // namespace qsf

#endif  // QSF_MODEL_EXPERT_ROUTER_H_
