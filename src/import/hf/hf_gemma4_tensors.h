// SPDX-License-Identifier: MIT
//
// Tensors of the layers of Gemma 4, for the tables of hf_tensors.cc.

#ifndef QSF_IMPORT_HF_HF_GEMMA4_TENSORS_H_
#define QSF_IMPORT_HF_HF_GEMMA4_TENSORS_H_

#include "import/hf/hf_tensors.h"

namespace qsf {

// Gains are stored as they are. Some layers' keys are their values, and experts are beside FFNs.
inline constexpr TensorPlace kGemma4Embedding[] = {
    {TensorKind::kTokenEmbedding, "embed_tokens.weight"},
    {TensorKind::kLayerEmbedding, "embed_tokens_per_layer.weight", Storage::kPlain,
     Presence::kLayerInput}};
inline constexpr TensorPlace kGemma4Layer[] = {
    {TensorKind::kAttnNorm, "input_layernorm.weight"},
    {TensorKind::kAttnQ, "self_attn.q_proj.weight"},
    {TensorKind::kQNorm, "self_attn.q_norm.weight"},
    {TensorKind::kAttnK, "self_attn.k_proj.weight", Storage::kPlain, Presence::kOwnKeys},
    {TensorKind::kKNorm, "self_attn.k_norm.weight", Storage::kPlain, Presence::kOwnKeys},
    {TensorKind::kAttnV, "self_attn.v_proj.weight", Storage::kPlain, Presence::kOwnValues},
    {TensorKind::kAttnO, "self_attn.o_proj.weight"},
    {TensorKind::kAttnPostNorm, "post_attention_layernorm.weight"},
    {TensorKind::kRouterNorm, "router.scale", Storage::kPlain, Presence::kExperts},
    {TensorKind::kRouter, "router.proj.weight", Storage::kPlain, Presence::kExperts},
    {TensorKind::kExpertScales, "router.per_expert_scale", Storage::kPlain, Presence::kExperts},
    {TensorKind::kFfnNorm, "pre_feedforward_layernorm.weight"},
    {TensorKind::kFfnGate, "mlp.gate_proj.weight"},
    {TensorKind::kFfnUp, "mlp.up_proj.weight"},
    {TensorKind::kFfnDown, "mlp.down_proj.weight"},
    {TensorKind::kDensePostNorm, "post_feedforward_layernorm_1.weight", Storage::kPlain,
     Presence::kExperts},
    {TensorKind::kExpertNorm, "pre_feedforward_layernorm_2.weight", Storage::kPlain,
     Presence::kExperts},
    {TensorKind::kExpertPostNorm, "post_feedforward_layernorm_2.weight", Storage::kPlain,
     Presence::kExperts},
    {TensorKind::kFfnPostNorm, "post_feedforward_layernorm.weight"},
    {TensorKind::kLayerInput, "per_layer_model_projection.weight", Storage::kPlain,
     Presence::kLayerInput, false, true},
    {TensorKind::kLayerInputNorm, "per_layer_projection_norm.weight", Storage::kPlain,
     Presence::kLayerInput, false, true},
    {TensorKind::kLayerInputGate, "per_layer_input_gate.weight", Storage::kPlain,
     Presence::kLayerInput},
    {TensorKind::kLayerInputOut, "per_layer_projection.weight", Storage::kPlain,
     Presence::kLayerInput},
    {TensorKind::kLayerInputPostNorm, "post_per_layer_input_norm.weight", Storage::kPlain,
     Presence::kLayerInput},
    {TensorKind::kLayerScale, "layer_scalar"}};
inline constexpr TensorPlace kGemma4Experts[] = {
    {TensorKind::kExpertGate, "experts.gate_up_proj", Storage::kStackedGateUp},
    {TensorKind::kExpertUp, "experts.gate_up_proj", Storage::kStackedGateUp},
    {TensorKind::kExpertDown, "experts.down_proj", Storage::kStacked}};

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_GEMMA4_TENSORS_H_
