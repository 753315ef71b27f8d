// SPDX-License-Identifier: MIT
//
// Tensors of layers with attention and scans, for the tables of hf_tensors.cc. A layer of
// Nemotron-H attends, scans or is an FFN, dense or of experts; one of Falcon-H1 does all of that.

#ifndef QSF_IMPORT_HF_HF_HYBRID_TENSORS_H_
#define QSF_IMPORT_HF_HF_HYBRID_TENSORS_H_

#include "import/hf/hf_tensors.h"

namespace qsf {

inline constexpr TensorPlace kNemotronEmbedding[] = {
    {TensorKind::kTokenEmbedding, "embeddings.weight"}};
inline constexpr TensorPlace kNemotronFinal[] = {{TensorKind::kFinalNorm, "norm_f.weight"}};
inline constexpr TensorPlace kNemotronLayer[] = {
    {TensorKind::kAttnNorm, "norm.weight"},
    {TensorKind::kAttnQ, "mixer.q_proj.weight"},
    {TensorKind::kAttnQBias, "mixer.q_proj.bias", Storage::kPlain, Presence::kQkvBias},
    {TensorKind::kAttnK, "mixer.k_proj.weight"},
    {TensorKind::kAttnKBias, "mixer.k_proj.bias", Storage::kPlain, Presence::kQkvBias},
    {TensorKind::kAttnV, "mixer.v_proj.weight"},
    {TensorKind::kAttnVBias, "mixer.v_proj.bias", Storage::kPlain, Presence::kQkvBias},
    {TensorKind::kAttnO, "mixer.o_proj.weight"},
    {TensorKind::kAttnOBias, "mixer.o_proj.bias", Storage::kPlain, Presence::kAttnOutBias}};
inline constexpr TensorPlace kNemotronStateLayer[] = {
    {TensorKind::kAttnNorm, "norm.weight"},
    {TensorKind::kMixerIn, "mixer.in_proj.weight"},
    {TensorKind::kMixerInBias, "mixer.in_proj.bias", Storage::kPlain, Presence::kMixerBias},
    {TensorKind::kConvTaps, "mixer.conv1d.weight", Storage::kConvTaps},
    {TensorKind::kConvBias, "mixer.conv1d.bias", Storage::kPlain, Presence::kConvBias},
    {TensorKind::kScanDecay, "mixer.A_log", Storage::kDecayLog},
    {TensorKind::kScanBias, "mixer.dt_bias"},
    {TensorKind::kScanSkip, "mixer.D"},
    {TensorKind::kScanNorm, "mixer.norm.weight"},
    {TensorKind::kMixerOut, "mixer.out_proj.weight"},
    {TensorKind::kMixerOutBias, "mixer.out_proj.bias", Storage::kPlain, Presence::kMixerBias}};
inline constexpr TensorPlace kNemotronFfnLayer[] = {
    {TensorKind::kFfnNorm, "norm.weight"},
    {TensorKind::kFfnUp, "mixer.up_proj.weight", Storage::kPlain, Presence::kDense},
    {TensorKind::kFfnUpBias, "mixer.up_proj.bias", Storage::kPlain, Presence::kFfnBias},
    {TensorKind::kFfnDown, "mixer.down_proj.weight", Storage::kPlain, Presence::kDense},
    {TensorKind::kFfnDownBias, "mixer.down_proj.bias", Storage::kPlain, Presence::kFfnBias},
    {TensorKind::kRouter, "mixer.gate.weight", Storage::kPlain, Presence::kExperts},
    {TensorKind::kRouterCorrection, "mixer.gate.e_score_correction_bias", Storage::kPlain,
     Presence::kRouterCorrection},
    {TensorKind::kSharedUp, "mixer.shared_experts.up_proj.weight", Storage::kPlain,
     Presence::kShared},
    {TensorKind::kSharedDown, "mixer.shared_experts.down_proj.weight", Storage::kPlain,
     Presence::kShared}};
inline constexpr TensorPlace kNemotronExperts[] = {
    {TensorKind::kExpertUp, "mixer.experts.*.up_proj.weight"},
    {TensorKind::kExpertDown, "mixer.experts.*.down_proj.weight"}};
inline constexpr TensorPlace kNemotronStackedExperts[] = {
    {TensorKind::kExpertUp, "mixer.experts.up_proj", Storage::kStacked},
    {TensorKind::kExpertDown, "mixer.experts.down_proj", Storage::kStacked}};

inline constexpr TensorPlace kFalconH1Final[] = {
    {TensorKind::kFinalNorm, "final_layernorm.weight"}};
inline constexpr TensorPlace kFalconH1Layer[] = {
    {TensorKind::kAttnNorm, "input_layernorm.weight"},
    {TensorKind::kMixerIn, "mamba.in_proj.weight"},
    {TensorKind::kConvTaps, "mamba.conv1d.weight", Storage::kConvTaps},
    {TensorKind::kConvBias, "mamba.conv1d.bias", Storage::kPlain, Presence::kConvBias},
    {TensorKind::kScanDecay, "mamba.A_log", Storage::kDecayLog},
    {TensorKind::kScanBias, "mamba.dt_bias"},
    {TensorKind::kScanSkip, "mamba.D"},
    {TensorKind::kScanNorm, "mamba.norm.weight", Storage::kPlain, Presence::kScanNorm},
    {TensorKind::kMixerOut, "mamba.out_proj.weight"},
    {TensorKind::kAttnQ, "self_attn.q_proj.weight"},
    {TensorKind::kAttnK, "self_attn.k_proj.weight"},
    {TensorKind::kAttnV, "self_attn.v_proj.weight"},
    {TensorKind::kAttnO, "self_attn.o_proj.weight"},
    {TensorKind::kFfnNorm, "pre_ff_layernorm.weight"},
    {TensorKind::kFfnGate, "feed_forward.gate_proj.weight"},
    {TensorKind::kFfnUp, "feed_forward.up_proj.weight"},
    {TensorKind::kFfnDown, "feed_forward.down_proj.weight"}};

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_HYBRID_TENSORS_H_
