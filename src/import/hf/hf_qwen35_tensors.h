// SPDX-License-Identifier: MIT
//
// Tensors of the layers of Qwen 3.5 and Qwen3-Next, for the tables of hf_tensors.cc.
//
// Some layers attend, the others have a delta rule. Either has a dense FFN or experts.

#ifndef QSF_IMPORT_HF_HF_QWEN35_TENSORS_H_
#define QSF_IMPORT_HF_HF_QWEN35_TENSORS_H_

#include "import/hf/hf_tensors.h"

namespace qsf {

inline constexpr TensorPlace kQwen35Layer[] = {
    {TensorKind::kAttnNorm, "input_layernorm.weight", Storage::kLessOne},
    {TensorKind::kAttnQ, "self_attn.q_proj.weight", Storage::kGatedQueries},
    {TensorKind::kAttnGate, "self_attn.q_proj.weight", Storage::kGatedQueries},
    {TensorKind::kQNorm, "self_attn.q_norm.weight", Storage::kLessOne},
    {TensorKind::kAttnK, "self_attn.k_proj.weight"},
    {TensorKind::kKNorm, "self_attn.k_norm.weight", Storage::kLessOne},
    {TensorKind::kAttnV, "self_attn.v_proj.weight"},
    {TensorKind::kAttnO, "self_attn.o_proj.weight"},
    {TensorKind::kFfnNorm, "post_attention_layernorm.weight", Storage::kLessOne},
    {TensorKind::kFfnGate, "mlp.gate_proj.weight", Storage::kPlain, Presence::kDense},
    {TensorKind::kFfnUp, "mlp.up_proj.weight", Storage::kPlain, Presence::kDense},
    {TensorKind::kFfnDown, "mlp.down_proj.weight", Storage::kPlain, Presence::kDense},
    {TensorKind::kRouter, "mlp.gate.weight", Storage::kPlain, Presence::kExperts},
    {TensorKind::kSharedWeight, "mlp.shared_expert_gate.weight", Storage::kPlain,
     Presence::kShared},
    {TensorKind::kSharedGate, "mlp.shared_expert.gate_proj.weight", Storage::kPlain,
     Presence::kShared},
    {TensorKind::kSharedUp, "mlp.shared_expert.up_proj.weight", Storage::kPlain, Presence::kShared},
    {TensorKind::kSharedDown, "mlp.shared_expert.down_proj.weight", Storage::kPlain,
     Presence::kShared}};
inline constexpr TensorPlace kQwen35StateLayer[] = {
    {TensorKind::kAttnNorm, "input_layernorm.weight", Storage::kLessOne},
    {TensorKind::kMixerIn, "linear_attn.in_proj_qkv.weight"},
    {TensorKind::kMixerGate, "linear_attn.in_proj_z.weight"},
    {TensorKind::kDeltaRate, "linear_attn.in_proj_b.weight"},
    {TensorKind::kDeltaStep, "linear_attn.in_proj_a.weight"},
    {TensorKind::kConvTaps, "linear_attn.conv1d.weight", Storage::kConvTaps},
    {TensorKind::kScanDecay, "linear_attn.A_log", Storage::kDecayLog},
    {TensorKind::kScanBias, "linear_attn.dt_bias"},
    {TensorKind::kDeltaNorm, "linear_attn.norm.weight"},
    {TensorKind::kMixerOut, "linear_attn.out_proj.weight"},
    {TensorKind::kFfnNorm, "post_attention_layernorm.weight", Storage::kLessOne},
    {TensorKind::kFfnGate, "mlp.gate_proj.weight", Storage::kPlain, Presence::kDense},
    {TensorKind::kFfnUp, "mlp.up_proj.weight", Storage::kPlain, Presence::kDense},
    {TensorKind::kFfnDown, "mlp.down_proj.weight", Storage::kPlain, Presence::kDense},
    {TensorKind::kRouter, "mlp.gate.weight", Storage::kPlain, Presence::kExperts},
    {TensorKind::kSharedWeight, "mlp.shared_expert_gate.weight", Storage::kPlain,
     Presence::kShared},
    {TensorKind::kSharedGate, "mlp.shared_expert.gate_proj.weight", Storage::kPlain,
     Presence::kShared},
    {TensorKind::kSharedUp, "mlp.shared_expert.up_proj.weight", Storage::kPlain, Presence::kShared},
    {TensorKind::kSharedDown, "mlp.shared_expert.down_proj.weight", Storage::kPlain,
     Presence::kShared}};
inline constexpr TensorPlace kQwen3NextStateLayer[] = {
    {TensorKind::kAttnNorm, "input_layernorm.weight", Storage::kLessOne},
    {TensorKind::kMixerIn, "linear_attn.in_proj_qkvz.weight", Storage::kByKeyGroup},
    {TensorKind::kMixerGate, "linear_attn.in_proj_qkvz.weight", Storage::kByKeyGroup},
    {TensorKind::kDeltaRate, "linear_attn.in_proj_ba.weight", Storage::kByKeyGroup},
    {TensorKind::kDeltaStep, "linear_attn.in_proj_ba.weight", Storage::kByKeyGroup},
    {TensorKind::kConvTaps, "linear_attn.conv1d.weight", Storage::kConvTaps},
    {TensorKind::kScanDecay, "linear_attn.A_log", Storage::kDecayLog},
    {TensorKind::kScanBias, "linear_attn.dt_bias"},
    {TensorKind::kDeltaNorm, "linear_attn.norm.weight"},
    {TensorKind::kMixerOut, "linear_attn.out_proj.weight"},
    {TensorKind::kFfnNorm, "post_attention_layernorm.weight", Storage::kLessOne},
    {TensorKind::kFfnGate, "mlp.gate_proj.weight", Storage::kPlain, Presence::kDense},
    {TensorKind::kFfnUp, "mlp.up_proj.weight", Storage::kPlain, Presence::kDense},
    {TensorKind::kFfnDown, "mlp.down_proj.weight", Storage::kPlain, Presence::kDense},
    {TensorKind::kRouter, "mlp.gate.weight", Storage::kPlain, Presence::kExperts},
    {TensorKind::kSharedWeight, "mlp.shared_expert_gate.weight", Storage::kPlain,
     Presence::kShared},
    {TensorKind::kSharedGate, "mlp.shared_expert.gate_proj.weight", Storage::kPlain,
     Presence::kShared},
    {TensorKind::kSharedUp, "mlp.shared_expert.up_proj.weight", Storage::kPlain, Presence::kShared},
    {TensorKind::kSharedDown, "mlp.shared_expert.down_proj.weight", Storage::kPlain,
     Presence::kShared}};

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_QWEN35_TENSORS_H_
