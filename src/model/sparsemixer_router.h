// SPDX-License-Identifier: MIT
//
// The choice of two experts whose weights tell how clear the choice was.

#ifndef QSF_MODEL_SPARSEMIXER_ROUTER_H_
#define QSF_MODEL_SPARSEMIXER_ROUTER_H_

#include <span>

#include "model/expert_router.h"

namespace qsf {

// Chooses the expert with the largest score, the first of equal ones; then the same without it.
// A weight is the expert's part of a softmax over those scores that are not below the largest by
// more than 2 * margin of the greater of it and their own magnitude: 1 where no other is near.
// Shapes    scores [n_experts], at least 2; chosen [2]
// Based on: Liu et al., "GRIN: gradient-informed MoE", 2024.
void choose_by_sparsemixer(std::span<const float> scores, float margin,
                           std::span<ExpertChoice> chosen) noexcept;

}  // namespace qsf

#endif  // QSF_MODEL_SPARSEMIXER_ROUTER_H_
