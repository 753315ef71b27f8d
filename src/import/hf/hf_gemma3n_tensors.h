// SPDX-License-Identifier: MIT
//
// Tensors of the layers of Gemma 3n, for the tables of hf_tensors.cc.

#ifndef QSF_IMPORT_HF_HF_GEMMA3N_TENSORS_H_
#define QSF_IMPORT_HF_HF_GEMMA3N_TENSORS_H_

#include "import/hf/hf_tensors.h"

namespace qsf {

// Gains are stored as they are. A '*' is the number of a residual stream less one.
inline constexpr TensorPlace kGemma3nLayer[] = {
    {TensorKind::kStreamIn, "altup_projections.*.weight", Storage::kPlain, Presence::kFirstStreams,
     false, true},
    {TensorKind::kRouterNorm, "altup.router_norm.weight"},
    {TensorKind::kStreamRouter, "altup.modality_router.weight", Storage::kFlat},
    {TensorKind::kStreamPredict, "altup.prediction_coefs.weight", Storage::kFlat},
    {TensorKind::kStreamCorrect, "altup.correction_coefs.weight", Storage::kFlat},
    {TensorKind::kStreamScale, "altup.correct_output_scale"},
    {TensorKind::kAttnNorm, "input_layernorm.weight"},
    {TensorKind::kAttnQ, "self_attn.q_proj.weight"},
    {TensorKind::kQNorm, "self_attn.q_norm.weight"},
    {TensorKind::kAttnK, "self_attn.k_proj.weight", Storage::kPlain, Presence::kOwnKeys},
    {TensorKind::kKNorm, "self_attn.k_norm.weight", Storage::kPlain, Presence::kOwnKeys},
    {TensorKind::kAttnV, "self_attn.v_proj.weight", Storage::kPlain, Presence::kOwnValues},
    {TensorKind::kAttnO, "self_attn.o_proj.weight"},
    {TensorKind::kAttnPostNorm, "post_attention_layernorm.weight"},
    {TensorKind::kLaurelLeft, "laurel.linear_left.weight"},
    {TensorKind::kLaurelRight, "laurel.linear_right.weight"},
    {TensorKind::kLaurelNorm, "laurel.post_laurel_norm.weight"},
    {TensorKind::kFfnNorm, "pre_feedforward_layernorm.weight"},
    {TensorKind::kFfnGate, "mlp.gate_proj.weight"},
    {TensorKind::kFfnUp, "mlp.up_proj.weight"},
    {TensorKind::kFfnDown, "mlp.down_proj.weight"},
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
    {TensorKind::kStreamOut, "altup_unembed_projections.*.weight", Storage::kPlain,
     Presence::kLastStreams, false, true}};

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_GEMMA3N_TENSORS_H_
