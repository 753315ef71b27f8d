// SPDX-License-Identifier: MIT

#include "format/qsf_layout.h"

#include "base/bytes.h"
#include "base/check.h"

namespace qsf {

std::string_view tensor_kind_name(TensorKind kind) noexcept {
  switch (kind) {
    case TensorKind::kAttnQ: return "attn_q";
    case TensorKind::kAttnK: return "attn_k";
    case TensorKind::kAttnV: return "attn_v";
    case TensorKind::kAttnO: return "attn_o";
    case TensorKind::kFfnGate: return "ffn_gate";
    case TensorKind::kFfnUp: return "ffn_up";
    case TensorKind::kFfnDown: return "ffn_down";
    case TensorKind::kAttnNorm: return "attn_norm";
    case TensorKind::kFfnNorm: return "ffn_norm";
    case TensorKind::kAttnQBias: return "attn_q_bias";
    case TensorKind::kAttnKBias: return "attn_k_bias";
    case TensorKind::kAttnVBias: return "attn_v_bias";
    case TensorKind::kAttnOBias: return "attn_o_bias";
    case TensorKind::kFfnBiases: return "ffn_biases";
    case TensorKind::kFfnUpBias: return "ffn_up_bias";
    case TensorKind::kFfnDownBias: return "ffn_down_bias";
    case TensorKind::kFfnGateBias: return "ffn_gate_bias";
    case TensorKind::kAttnNormBias: return "attn_norm_bias";
    case TensorKind::kFfnNormBias: return "ffn_norm_bias";
    case TensorKind::kQNorm: return "q_norm";
    case TensorKind::kKNorm: return "k_norm";
    case TensorKind::kAttnSubNorm: return "attn_sub_norm";
    case TensorKind::kFfnSubNorm: return "ffn_sub_norm";
    case TensorKind::kRouter: return "router";
    case TensorKind::kExpertGate: return "expert_gate";
    case TensorKind::kExpertUp: return "expert_up";
    case TensorKind::kExpertDown: return "expert_down";
    case TensorKind::kAttnPostNorm: return "attn_post_norm";
    case TensorKind::kFfnPostNorm: return "ffn_post_norm";
    case TensorKind::kTokenEmbedding: return "token_embedding";
    case TensorKind::kPositionEmbedding: return "position_embedding";
    case TensorKind::kEmbeddingNorm: return "embedding_norm";
    case TensorKind::kEmbeddingNormBias: return "embedding_norm_bias";
    case TensorKind::kFinalNorm: return "final_norm";
    case TensorKind::kFinalNormBias: return "final_norm_bias";
    case TensorKind::kHead: return "head";
    case TensorKind::kHeadBias: return "head_bias";
    case TensorKind::kSharedGate: return "shared_gate";
    case TensorKind::kSharedUp: return "shared_up";
    case TensorKind::kSharedDown: return "shared_down";
    case TensorKind::kSharedWeight: return "shared_weight";
    case TensorKind::kAttnSinks: return "attn_sinks";
    case TensorKind::kRouterBias: return "router_bias";
    case TensorKind::kExpertGateBias: return "expert_gate_bias";
    case TensorKind::kExpertUpBias: return "expert_up_bias";
    case TensorKind::kExpertDownBias: return "expert_down_bias";
    case TensorKind::kRouterCorrection: return "router_correction";
    case TensorKind::kMixerIn: return "mixer_in";
    case TensorKind::kMixerInBias: return "mixer_in_bias";
    case TensorKind::kMixerOut: return "mixer_out";
    case TensorKind::kMixerOutBias: return "mixer_out_bias";
    case TensorKind::kConvTaps: return "conv_taps";
    case TensorKind::kConvBias: return "conv_bias";
    case TensorKind::kScanDecay: return "scan_decay";
    case TensorKind::kScanBias: return "scan_bias";
    case TensorKind::kScanSkip: return "scan_skip";
    case TensorKind::kScanNorm: return "scan_norm";
    case TensorKind::kLatentQuery: return "latent_query";
    case TensorKind::kLatentQueryNorm: return "latent_query_norm";
    case TensorKind::kLatentNorm: return "latent_norm";
    case TensorKind::kLatentKeys: return "latent_keys";
    case TensorKind::kLatentValues: return "latent_values";
    case TensorKind::kMixerGate: return "mixer_gate";
    case TensorKind::kDeltaRate: return "delta_rate";
    case TensorKind::kDeltaStep: return "delta_step";
    case TensorKind::kDeltaNorm: return "delta_norm";
    case TensorKind::kAttnGate: return "attn_gate";
    case TensorKind::kLayerScale: return "layer_scale";
    case TensorKind::kRouterNorm: return "router_norm";
    case TensorKind::kExpertScales: return "expert_scales";
    case TensorKind::kExpertNorm: return "expert_norm";
    case TensorKind::kDensePostNorm: return "dense_post_norm";
    case TensorKind::kExpertPostNorm: return "expert_post_norm";
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
