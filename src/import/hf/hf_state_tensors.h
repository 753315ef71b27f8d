// SPDX-License-Identifier: MIT
//
// Tensors of the layers of Granite 4 H and LFM2, for the tables of hf_tensors.cc.
//
// Some layers attend, the others have a selective scan or a convolution.

#ifndef QSF_IMPORT_HF_HF_STATE_TENSORS_H_
#define QSF_IMPORT_HF_HF_STATE_TENSORS_H_

#include "import/hf/hf_tensors.h"

namespace qsf {

// Granite 4 H: a selective scan in place of attention, with or without experts.
inline constexpr TensorPlace kGranite4StateLayer[] = {
    {TensorKind::kAttnNorm, "input_layernorm.weight"},
    {TensorKind::kMixerIn, "mamba.in_proj.weight"},
    {TensorKind::kMixerInBias, "mamba.in_proj.bias", Storage::kPlain, Presence::kMixerBias},
    {TensorKind::kConvTaps, "mamba.conv1d.weight", Storage::kConvTaps},
    {TensorKind::kConvBias, "mamba.conv1d.bias", Storage::kPlain, Presence::kConvBias},
    {TensorKind::kScanDecay, "mamba.A_log", Storage::kDecayLog},
    {TensorKind::kScanBias, "mamba.dt_bias"},
    {TensorKind::kScanSkip, "mamba.D"},
    {TensorKind::kScanNorm, "mamba.norm.weight"},
    {TensorKind::kMixerOut, "mamba.out_proj.weight"},
    {TensorKind::kMixerOutBias, "mamba.out_proj.bias", Storage::kPlain, Presence::kMixerBias},
    {TensorKind::kFfnNorm, "post_attention_layernorm.weight"},
    {TensorKind::kFfnGate, "shared_mlp.input_linear.weight", Storage::kFusedGateUp,
     Presence::kDense},
    {TensorKind::kFfnUp, "shared_mlp.input_linear.weight", Storage::kFusedGateUp, Presence::kDense},
    {TensorKind::kFfnDown, "shared_mlp.output_linear.weight", Storage::kPlain, Presence::kDense},
    {TensorKind::kRouter, "block_sparse_moe.router.layer.weight", Storage::kPlain,
     Presence::kExperts},
    {TensorKind::kSharedGate, "shared_mlp.input_linear.weight", Storage::kFusedGateUp,
     Presence::kShared},
    {TensorKind::kSharedUp, "shared_mlp.input_linear.weight", Storage::kFusedGateUp,
     Presence::kShared},
    {TensorKind::kSharedDown, "shared_mlp.output_linear.weight", Storage::kPlain,
     Presence::kShared}};

// LFM2: some layers attend, the others have a convolution; some have experts.
inline constexpr TensorPlace kLfm2Layer[] = {
    {TensorKind::kAttnNorm, "operator_norm.weight"},
    {TensorKind::kAttnQ, "self_attn.q_proj.weight"},
    {TensorKind::kQNorm, "self_attn.q_layernorm.weight"},
    {TensorKind::kAttnK, "self_attn.k_proj.weight"},
    {TensorKind::kKNorm, "self_attn.k_layernorm.weight"},
    {TensorKind::kAttnV, "self_attn.v_proj.weight"},
    {TensorKind::kAttnO, "self_attn.out_proj.weight"},
    {TensorKind::kFfnNorm, "ffn_norm.weight"},
    {TensorKind::kFfnGate, "feed_forward.w1.weight", Storage::kPlain, Presence::kDense},
    {TensorKind::kFfnUp, "feed_forward.w3.weight", Storage::kPlain, Presence::kDense},
    {TensorKind::kFfnDown, "feed_forward.w2.weight", Storage::kPlain, Presence::kDense},
    {TensorKind::kRouter, "feed_forward.gate.weight", Storage::kPlain, Presence::kExperts},
    {TensorKind::kRouterCorrection, "feed_forward.expert_bias", Storage::kPlain,
     Presence::kRouterCorrection}};
inline constexpr TensorPlace kLfm2StateLayer[] = {
    {TensorKind::kAttnNorm, "operator_norm.weight"},
    {TensorKind::kMixerIn, "conv.in_proj.weight"},
    {TensorKind::kMixerInBias, "conv.in_proj.bias", Storage::kPlain, Presence::kMixerBias},
    {TensorKind::kConvTaps, "conv.conv.weight", Storage::kConvTaps},
    {TensorKind::kConvBias, "conv.conv.bias", Storage::kPlain, Presence::kConvBias},
    {TensorKind::kMixerOut, "conv.out_proj.weight"},
    {TensorKind::kMixerOutBias, "conv.out_proj.bias", Storage::kPlain, Presence::kMixerBias},
    {TensorKind::kFfnNorm, "ffn_norm.weight"},
    {TensorKind::kFfnGate, "feed_forward.w1.weight", Storage::kPlain, Presence::kDense},
    {TensorKind::kFfnUp, "feed_forward.w3.weight", Storage::kPlain, Presence::kDense},
    {TensorKind::kFfnDown, "feed_forward.w2.weight", Storage::kPlain, Presence::kDense},
    {TensorKind::kRouter, "feed_forward.gate.weight", Storage::kPlain, Presence::kExperts},
    {TensorKind::kRouterCorrection, "feed_forward.expert_bias", Storage::kPlain,
     Presence::kRouterCorrection}};
inline constexpr TensorPlace kLfm2Experts[] = {
    {TensorKind::kExpertGate, "feed_forward.experts.*.w1.weight"},
    {TensorKind::kExpertUp, "feed_forward.experts.*.w3.weight"},
    {TensorKind::kExpertDown, "feed_forward.experts.*.w2.weight"}};
inline constexpr TensorPlace kLfm2StackedExperts[] = {
    {TensorKind::kExpertGate, "feed_forward.experts.gate_up_proj", Storage::kStackedGateUp},
    {TensorKind::kExpertUp, "feed_forward.experts.gate_up_proj", Storage::kStackedGateUp},
    {TensorKind::kExpertDown, "feed_forward.experts.down_proj", Storage::kStacked}};
inline constexpr TensorPlace kLfm2Final[] = {{TensorKind::kFinalNorm, "embedding_norm.weight"}};

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_STATE_TENSORS_H_
