// SPDX-License-Identifier: MIT
//
// The choice of experts by sigmoids of their scores, of which a correction is told apart that
// balances how often each is chosen.

#ifndef QSF_MODEL_SIGMOID_ROUTER_H_
#define QSF_MODEL_SIGMOID_ROUTER_H_

#include <span>

#include "format/model_spec.h"
#include "model/expert_router.h"

namespace qsf {

// Ranks the experts by the sum of sigmoid(score) and correction; those outside the groups whose two
// largest sums have the largest sums are kNeverChosen.
// Shapes    scores, corrections or none, ranks [n_experts]
// Requires  validate(spec) is OK
// Based on: DeepSeek-AI, "DeepSeek-V3 technical report", 2024.
void rank_by_sigmoid(const ModelSpec& spec, std::span<const float> corrections,
                     std::span<const float> scores, std::span<float> ranks) noexcept;

// Weighs chosen experts by their sigmoids alone, over their sum and an epsilon where the spec
// renormalises them.
void weigh_by_sigmoid(const ModelSpec& spec, std::span<const float> scores,
                      std::span<ExpertChoice> chosen) noexcept;

// Chooses the experts with the largest ranks, the first of equal ones before the second, and
// weighs them.
// Shapes  as rank_by_sigmoid, ranks are overwritten; chosen [n_experts_used]
void choose_by_sigmoid(const ModelSpec& spec, std::span<const float> corrections,
                       std::span<const float> scores, std::span<float> ranks,
                       std::span<ExpertChoice> chosen) noexcept;

}  // namespace qsf

#endif  // QSF_MODEL_SIGMOID_ROUTER_H_
