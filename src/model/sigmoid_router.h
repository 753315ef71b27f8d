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

// Chooses the experts with the largest sum of sigmoid(score) and correction, out of the groups
// whose two largest sums have the largest sums, the first of equal ones before the second. Weights
// are sigmoids alone, over their sum and an epsilon where the spec renormalises them.
// Shapes    scores, corrections or none, sums [n_experts]: the last is overwritten;
//           chosen [n_experts_used]
// Requires  validate(spec) is OK
// Based on: DeepSeek-AI, "DeepSeek-V3 technical report", 2024.
void choose_by_sigmoid(const ModelSpec& spec, std::span<const float> corrections,
                       std::span<const float> scores, std::span<float> sums,
                       std::span<ExpertChoice> chosen) noexcept;

}  // namespace qsf

#endif  // QSF_MODEL_SIGMOID_ROUTER_H_
