// SPDX-License-Identifier: MIT

#include "format/qsf_layout.h"

#include "base/bytes.h"
#include "base/check.h"

namespace qsf {

namespace {

struct KindName {
  TensorKind kind;
  std::string_view name;
};
constexpr KindName kKindNames[] = {
    {TensorKind::kAttnQ, "attn_q"},
    {TensorKind::kAttnK, "attn_k"},
    {TensorKind::kAttnV, "attn_v"},
    {TensorKind::kAttnO, "attn_o"},
    {TensorKind::kFfnGate, "ffn_gate"},
    {TensorKind::kFfnUp, "ffn_up"},
    {TensorKind::kFfnDown, "ffn_down"},
    {TensorKind::kAttnNorm, "attn_norm"},
    {TensorKind::kFfnNorm, "ffn_norm"},
    {TensorKind::kAttnQBias, "attn_q_bias"},
    {TensorKind::kAttnKBias, "attn_k_bias"},
    {TensorKind::kAttnVBias, "attn_v_bias"},
    {TensorKind::kAttnOBias, "attn_o_bias"},
    {TensorKind::kFfnBiases, "ffn_biases"},
    {TensorKind::kFfnUpBias, "ffn_up_bias"},
    {TensorKind::kFfnDownBias, "ffn_down_bias"},
    {TensorKind::kFfnGateBias, "ffn_gate_bias"},
    {TensorKind::kAttnNormBias, "attn_norm_bias"},
    {TensorKind::kFfnNormBias, "ffn_norm_bias"},
    {TensorKind::kQNorm, "q_norm"},
    {TensorKind::kKNorm, "k_norm"},
    {TensorKind::kAttnSubNorm, "attn_sub_norm"},
    {TensorKind::kFfnSubNorm, "ffn_sub_norm"},
    {TensorKind::kRouter, "router"},
    {TensorKind::kExpertGate, "expert_gate"},
    {TensorKind::kExpertUp, "expert_up"},
    {TensorKind::kExpertDown, "expert_down"},
    {TensorKind::kAttnPostNorm, "attn_post_norm"},
    {TensorKind::kFfnPostNorm, "ffn_post_norm"},
    {TensorKind::kTokenEmbedding, "token_embedding"},
    {TensorKind::kPositionEmbedding, "position_embedding"},
    {TensorKind::kEmbeddingNorm, "embedding_norm"},
    {TensorKind::kEmbeddingNormBias, "embedding_norm_bias"},
    {TensorKind::kFinalNorm, "final_norm"},
    {TensorKind::kFinalNormBias, "final_norm_bias"},
    {TensorKind::kHead, "head"},
    {TensorKind::kHeadBias, "head_bias"},
    {TensorKind::kSharedGate, "shared_gate"},
    {TensorKind::kSharedUp, "shared_up"},
    {TensorKind::kSharedDown, "shared_down"},
    {TensorKind::kSharedWeight, "shared_weight"},
    {TensorKind::kAttnSinks, "attn_sinks"},
    {TensorKind::kRouterBias, "router_bias"},
    {TensorKind::kExpertGateBias, "expert_gate_bias"},
    {TensorKind::kExpertUpBias, "expert_up_bias"},
    {TensorKind::kExpertDownBias, "expert_down_bias"},
    {TensorKind::kRouterCorrection, "router_correction"},
    {TensorKind::kMixerIn, "mixer_in"},
    {TensorKind::kMixerInBias, "mixer_in_bias"},
    {TensorKind::kMixerOut, "mixer_out"},
    {TensorKind::kMixerOutBias, "mixer_out_bias"},
    {TensorKind::kConvTaps, "conv_taps"},
    {TensorKind::kConvBias, "conv_bias"},
    {TensorKind::kScanDecay, "scan_decay"},
    {TensorKind::kScanBias, "scan_bias"},
    {TensorKind::kScanSkip, "scan_skip"},
    {TensorKind::kScanNorm, "scan_norm"},
    {TensorKind::kLatentQuery, "latent_query"},
    {TensorKind::kLatentQueryNorm, "latent_query_norm"},
    {TensorKind::kLatentNorm, "latent_norm"},
    {TensorKind::kLatentKeys, "latent_keys"},
    {TensorKind::kLatentValues, "latent_values"},
    {TensorKind::kDenseUp, "dense_up"},
    {TensorKind::kDenseDown, "dense_down"},
    {TensorKind::kMixerGate, "mixer_gate"},
    {TensorKind::kDeltaRate, "delta_rate"},
    {TensorKind::kDeltaStep, "delta_step"},
    {TensorKind::kDeltaNorm, "delta_norm"},
    {TensorKind::kAttnGate, "attn_gate"},
    {TensorKind::kLayerScale, "layer_scale"},
    {TensorKind::kRouterNorm, "router_norm"},
    {TensorKind::kExpertScales, "expert_scales"},
    {TensorKind::kExpertNorm, "expert_norm"},
    {TensorKind::kDensePostNorm, "dense_post_norm"},
    {TensorKind::kExpertPostNorm, "expert_post_norm"},
    {TensorKind::kLayerEmbedding, "layer_embedding"},
    {TensorKind::kLayerInput, "layer_input"},
    {TensorKind::kLayerInputNorm, "layer_input_norm"},
    {TensorKind::kLayerInputGate, "layer_input_gate"},
    {TensorKind::kLayerInputOut, "layer_input_out"},
    {TensorKind::kLayerInputPostNorm, "layer_input_post_norm"},
    {TensorKind::kStreamIn, "stream_in"},
    {TensorKind::kStreamOut, "stream_out"},
    {TensorKind::kStreamRouter, "stream_router"},
    {TensorKind::kStreamPredict, "stream_predict"},
    {TensorKind::kStreamCorrect, "stream_correct"},
    {TensorKind::kStreamScale, "stream_scale"},
    {TensorKind::kLaurelLeft, "laurel_left"},
    {TensorKind::kLaurelRight, "laurel_right"},
    {TensorKind::kMtpProjection, "mtp_projection"},
    {TensorKind::kMtpTokenNorm, "mtp_token_norm"},
    {TensorKind::kMtpHiddenNorm, "mtp_hidden_norm"},
    {TensorKind::kLaurelNorm, "laurel_norm"},
};

}  // namespace

std::string_view tensor_kind_name(TensorKind kind) noexcept {
  for (const KindName& known : kKindNames) {
    if (known.kind == kind) return known.name;
  }
  return "unknown";
}

std::string_view compression_name(Compression compression) noexcept {
  switch (compression) {
    case Compression::kNone: return "none";
    case Compression::kLz4: return "lz4";
    case Compression::kLz4Hc: return "lz4hc";
    case Compression::kZstd: return "zstd";
  }
  return "unknown";
}

std::optional<std::uint32_t> SectionDirectory::find(TensorKind wanted,
                                                    std::uint16_t expert) const noexcept {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].kind == wanted && tensors[i].expert == expert) {
      return static_cast<std::uint32_t>(i);
    }
  }
  return std::nullopt;
}

std::string section_label(SectionKind kind, std::uint32_t layer) {
  switch (kind) {
    case SectionKind::kEmbedding: return "embedding";
    case SectionKind::kFinal: return "final";
    case SectionKind::kLayer: break;
  }
  return "layer " + std::to_string(layer);
}

std::uint64_t one_row_offset(std::span<const TensorInfo> tensors, std::size_t index) noexcept {
  QSF_DCHECK(index < tensors.size() && tensors[index].rows == 1);
  return one_row_tile_bytes(tensors.first(index));
}

std::uint64_t one_row_tile_bytes(std::span<const TensorInfo> tensors) noexcept {
  std::uint64_t bytes = 0;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.rows == 1) bytes += align_up(tile_bytes(tensor, 1), kOneRowAlign);
  }
  return bytes;
}

}  // namespace qsf
