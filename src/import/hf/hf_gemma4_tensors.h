// SPDX-License-Identifier: MIT
//
// Tensors of the layers of Gemma 4, for the tables of hf_tensors.cc.

#ifndef QSF_IMPORT_HF_HF_GEMMA4_TENSORS_H_
#define QSF_IMPORT_HF_HF_GEMMA4_TENSORS_H_

#include "import/hf/hf_tensors.h"

namespace qsf {

// Gains are stored as they are. Some layers' keys are their values.
inline constexpr TensorPlace kGemma4Layer[] = {
    {TensorKind::kAttnNorm, "input_layernorm.weight"},
    {TensorKind::kAttnQ, "self_attn.q_proj.weight"},
    {TensorKind::kQNorm, "self_attn.q_norm.weight"},
    {TensorKind::kAttnK, "self_attn.k_proj.weight"},
    {TensorKind::kKNorm, "self_attn.k_norm.weight"},
    {TensorKind::kAttnV, "self_attn.v_proj.weight", Storage::kPlain, Presence::kOwnValues},
    {TensorKind::kAttnO, "self_attn.o_proj.weight"},
    {TensorKind::kAttnPostNorm, "post_attention_layernorm.weight"},
    {TensorKind::kFfnNorm, "pre_feedforward_layernorm.weight"},
    {TensorKind::kFfnGate, "mlp.gate_proj.weight"},
    {TensorKind::kFfnUp, "mlp.up_proj.weight"},
    {TensorKind::kFfnDown, "mlp.down_proj.weight"},
    {TensorKind::kFfnPostNorm, "post_feedforward_layernorm.weight"},
    {TensorKind::kLayerScale, "layer_scalar"}};

// The same with experts beside the FFN.
inline constexpr TensorPlace kGemma4MoeLayer[] = {
    {TensorKind::kAttnNorm, "input_layernorm.weight"},
    {TensorKind::kAttnQ, "self_attn.q_proj.weight"},
    {TensorKind::kQNorm, "self_attn.q_norm.weight"},
    {TensorKind::kAttnK, "self_attn.k_proj.weight"},
    {TensorKind::kKNorm, "self_attn.k_norm.weight"},
    {TensorKind::kAttnV, "self_attn.v_proj.weight", Storage::kPlain, Presence::kOwnValues},
    {TensorKind::kAttnO, "self_attn.o_proj.weight"},
    {TensorKind::kAttnPostNorm, "post_attention_layernorm.weight"},
    {TensorKind::kRouterNorm, "router.scale"},
    {TensorKind::kRouter, "router.proj.weight"},
    {TensorKind::kExpertScales, "router.per_expert_scale"},
    {TensorKind::kFfnNorm, "pre_feedforward_layernorm.weight"},
    {TensorKind::kFfnGate, "mlp.gate_proj.weight"},
    {TensorKind::kFfnUp, "mlp.up_proj.weight"},
    {TensorKind::kFfnDown, "mlp.down_proj.weight"},
    {TensorKind::kDensePostNorm, "post_feedforward_layernorm_1.weight"},
    {TensorKind::kExpertNorm, "pre_feedforward_layernorm_2.weight"},
    {TensorKind::kExpertPostNorm, "post_feedforward_layernorm_2.weight"},
    {TensorKind::kFfnPostNorm, "post_feedforward_layernorm.weight"},
    {TensorKind::kLayerScale, "layer_scalar"}};
inline constexpr TensorPlace kGemma4Experts[] = {
    {TensorKind::kExpertGate, "experts.gate_up_proj", Storage::kStackedGateUp},
    {TensorKind::kExpertUp, "experts.gate_up_proj", Storage::kStackedGateUp},
    {TensorKind::kExpertDown, "experts.down_proj", Storage::kStacked}};

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_GEMMA4_TENSORS_H_
