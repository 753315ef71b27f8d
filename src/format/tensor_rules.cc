// SPDX-License-Identifier: MIT

#include "format/tensor_rules.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace qsf {
namespace {

SectionKind home_of(TensorKind kind) noexcept {
  if (kind == TensorKind::kLayerEmbedding || kind == TensorKind::kDenseUp ||
      kind == TensorKind::kDenseDown) {
    return SectionKind::kEmbedding;
  }
  const auto code = static_cast<std::uint32_t>(kind);
  if (code < 31 || code > 38) return SectionKind::kLayer;
  return code < 35 ? SectionKind::kEmbedding : SectionKind::kFinal;
}

// A norm of queries or keys runs over one head or over all of them.
bool is_head_norm_shape(const AttentionShape& attention, const TensorInfo& t) noexcept {
  const std::uint32_t all = t.kind == TensorKind::kQNorm ? attention.q_dim() : attention.kv_dim();
  return t.cols == attention.head_dim || t.cols == all;
}

Status check_shape(const ModelSpec& s, std::uint32_t layer, const TensorInfo& t, const char* name) {
  const TensorShape shape = tensor_shape(s, layer, t.kind);
  const bool head_norm = t.kind == TensorKind::kQNorm || t.kind == TensorKind::kKNorm;
  const bool fits =
      t.rows == shape.rows &&
      (head_norm ? is_head_norm_shape(s.attention_of(layer), t) : t.cols == shape.cols);
  if (fits && t.rows > 0) return ok_status();
  return invalid_argument("%s: shape [%u, %u], expected [%u, %u]", name, t.rows, t.cols, shape.rows,
                          shape.cols);
}

Status check_storage(const TensorInfo& t, const char* name) {
  if (!is_valid(t.format)) {
    return invalid_argument("%s: block size %u does not go with type %s", name, t.format.block,
                            std::string(quant_type_name(t.format.type)).c_str());
  }
  if (t.layout != Layout::kRowMajor && t.layout != Layout::kInterleaved) {
    return invalid_argument("%s: layout %u, expected 0 or 1", name,
                            static_cast<unsigned>(t.layout));
  }
  if (t.rows == 1 && (!is_float_type(t.format.type) || t.layout != Layout::kRowMajor)) {
    return invalid_argument(
        "%s: type %s in layout %u, expected f32, f16 or bf16 in layout 0: it has "
        "one row",
        name, std::string(quant_type_name(t.format.type)).c_str(), static_cast<unsigned>(t.layout));
  }
  return ok_status();
}

// Returns how many tensors of a kind a section may have: of experts, of streams, or one.
std::uint32_t n_of_kind(const ModelSpec& s, TensorKind kind) noexcept {
  if (is_expert(kind)) return s.n_experts;
  return is_of_stream(kind) ? s.n_streams - 1 : 1;
}

Status check_tensor(const ModelSpec& s, SectionKind section, std::uint32_t layer,
                    const TensorInfo& t) {
  const std::string name(tensor_kind_name(t.kind));
  if (!is_tensor_kind(static_cast<std::uint32_t>(t.kind)) || home_of(t.kind) != section) {
    return invalid_argument("tensor %s (%u): does not belong in this section", name.c_str(),
                            static_cast<unsigned>(t.kind));
  }
  const std::uint32_t n = n_of_kind(s, t.kind);
  if (t.expert != 0 && t.expert >= n) {
    return invalid_argument("%s: %s %u, expected 0 to %u", name.c_str(),
                            is_expert(t.kind) ? "expert" : "number", t.expert, std::max(n, 1U) - 1);
  }
  QSF_RETURN_IF_ERROR(check_shape(s, layer, t, name.c_str()));
  return check_storage(t, name.c_str());
}

bool holds(std::span<const TensorInfo> tensors, TensorKind kind) noexcept {
  return std::any_of(tensors.begin(), tensors.end(),
                     [kind](const TensorInfo& t) { return t.kind == kind; });
}

}  // namespace

bool is_expert(TensorKind kind) noexcept {
  return kind == TensorKind::kExpertGate || kind == TensorKind::kExpertUp ||
         kind == TensorKind::kExpertDown || kind == TensorKind::kExpertGateBias ||
         kind == TensorKind::kExpertUpBias || kind == TensorKind::kExpertDownBias;
}

bool is_matrix(TensorKind kind) noexcept {
  switch (kind) {
    case TensorKind::kAttnQ:
    case TensorKind::kAttnK:
    case TensorKind::kAttnV:
    case TensorKind::kAttnO:
    case TensorKind::kFfnGate:
    case TensorKind::kFfnUp:
    case TensorKind::kFfnDown:
    case TensorKind::kRouter:
    case TensorKind::kMixerIn:
    case TensorKind::kMixerOut:
    case TensorKind::kLatentQuery:
    case TensorKind::kLatentKeys:
    case TensorKind::kLatentValues:
    case TensorKind::kMixerGate:
    case TensorKind::kDeltaRate:
    case TensorKind::kDeltaStep:
    case TensorKind::kAttnGate:
    case TensorKind::kExpertGate:
    case TensorKind::kExpertUp:
    case TensorKind::kExpertDown:
    case TensorKind::kSharedGate:
    case TensorKind::kSharedUp:
    case TensorKind::kSharedDown:
    case TensorKind::kTokenEmbedding:
    case TensorKind::kLayerEmbedding:
    case TensorKind::kLayerInput:
    case TensorKind::kLayerInputGate:
    case TensorKind::kLayerInputOut:
    case TensorKind::kDenseUp:
    case TensorKind::kDenseDown:
    case TensorKind::kStreamIn:
    case TensorKind::kStreamOut:
    case TensorKind::kLaurelLeft:
    case TensorKind::kLaurelRight:
    case TensorKind::kMtpProjection:
    case TensorKind::kPositionEmbedding:
    case TensorKind::kHead: return true;
    default: return false;
  }
}

bool is_of_stream(TensorKind kind) noexcept {
  return kind == TensorKind::kStreamIn || kind == TensorKind::kStreamOut;
}

namespace {

// Whether a kind is a vector with a value for each column of the residual stream.
bool is_stream_vector(TensorKind kind) noexcept {
  switch (kind) {
    case TensorKind::kAttnNorm:
    case TensorKind::kFfnNorm:
    case TensorKind::kAttnOBias:
    case TensorKind::kFfnDownBias:
    case TensorKind::kExpertDownBias:
    case TensorKind::kAttnNormBias:
    case TensorKind::kFfnNormBias:
    case TensorKind::kAttnPostNorm:
    case TensorKind::kFfnPostNorm:
    case TensorKind::kSharedWeight:
    case TensorKind::kEmbeddingNorm:
    case TensorKind::kEmbeddingNormBias:
    case TensorKind::kFinalNorm:
    case TensorKind::kMixerOutBias:
    case TensorKind::kLayerInputPostNorm:
    case TensorKind::kRouterNorm:
    case TensorKind::kExpertNorm:
    case TensorKind::kDensePostNorm:
    case TensorKind::kExpertPostNorm:
    case TensorKind::kStreamScale:
    case TensorKind::kLaurelNorm:
    case TensorKind::kMtpTokenNorm:
    case TensorKind::kMtpHiddenNorm:
    case TensorKind::kFinalNormBias: return true;
    default: return false;
  }
}

}  // namespace

TensorShape tensor_shape(const ModelSpec& s, std::uint32_t layer, TensorKind kind) noexcept {
  if (is_stream_vector(kind)) return {1, s.hidden};
  const AttentionShape attention = s.attention_of(layer);
  switch (kind) {
    case TensorKind::kAttnQ: return {s.n_heads * attention.query_dim, s.query_in()};
    case TensorKind::kAttnK:
    case TensorKind::kAttnV: return {attention.kv_dim(), s.hidden};
    case TensorKind::kAttnO: return {s.hidden, s.n_heads * attention.value_dim};
    case TensorKind::kFfnGate:
    case TensorKind::kFfnUp: return {s.ffn_of(layer), s.hidden};
    case TensorKind::kFfnDown: return {s.hidden, s.ffn_of(layer)};
    case TensorKind::kAttnQBias:
    case TensorKind::kAttnSubNorm: return {1, attention.q_dim()};
    case TensorKind::kAttnKBias:
    case TensorKind::kAttnVBias: return {1, attention.kv_dim()};
    case TensorKind::kFfnBiases: return {1, s.ffn + s.hidden};
    case TensorKind::kFfnUpBias:
    case TensorKind::kFfnGateBias:
    case TensorKind::kFfnSubNorm: return {1, s.ffn_of(layer)};
    case TensorKind::kQNorm:
    case TensorKind::kKNorm: return {1, attention.head_dim};
    case TensorKind::kRouter: return {s.n_experts, s.hidden};
    case TensorKind::kDenseUp: return {s.embedding_dense, s.hidden};
    case TensorKind::kDenseDown: return {s.hidden, s.embedding_dense};
    case TensorKind::kLayerEmbedding: return {s.layer_table_rows(), s.n_layers * s.layer_input_dim};
    case TensorKind::kLayerInput:
    case TensorKind::kLayerInputGate: return {s.layer_input_dim, s.hidden};
    case TensorKind::kLayerInputNorm: return {1, s.layer_input_dim};
    case TensorKind::kLayerInputOut: return {s.hidden, s.layer_input_dim};
    case TensorKind::kStreamIn:
    case TensorKind::kStreamOut: return {s.hidden, s.hidden};
    case TensorKind::kStreamRouter: return {1, s.n_streams * s.hidden};
    case TensorKind::kStreamPredict: return {1, s.n_streams * s.n_streams * s.n_streams};
    case TensorKind::kStreamCorrect: return {1, s.n_streams * s.n_streams};
    case TensorKind::kLaurelLeft: return {s.laurel_dim, s.hidden};
    case TensorKind::kLaurelRight: return {s.hidden, s.laurel_dim};
    case TensorKind::kMtpProjection: return {s.hidden, 2 * s.hidden};
    case TensorKind::kRouterBias:
    case TensorKind::kExpertScales:
    case TensorKind::kRouterCorrection: return {1, s.n_experts};
    case TensorKind::kExpertGate:
    case TensorKind::kExpertUp: return {s.expert_ffn, s.hidden};
    case TensorKind::kExpertDown: return {s.hidden, s.expert_ffn};
    case TensorKind::kSharedGate:
    case TensorKind::kSharedUp: return {s.shared_ffn, s.hidden};
    case TensorKind::kSharedDown: return {s.hidden, s.shared_ffn};
    case TensorKind::kTokenEmbedding:
    case TensorKind::kHead: return {s.n_vocab, s.hidden};
    case TensorKind::kPositionEmbedding: return {s.max_positions, s.hidden};
    case TensorKind::kHeadBias: return {1, s.n_vocab};
    case TensorKind::kLayerScale: return {1, 1};
    case TensorKind::kAttnSinks: return {1, s.n_heads};
    case TensorKind::kExpertGateBias:
    case TensorKind::kExpertUpBias: return {1, s.expert_ffn};
    case TensorKind::kMixerIn: return {s.mixer_in(), s.hidden};
    case TensorKind::kMixerInBias: return {1, s.mixer_in()};
    case TensorKind::kMixerOut: return {s.hidden, s.mixer_out()};
    case TensorKind::kConvTaps: return {1, s.conv_taps * s.conv_channels()};
    case TensorKind::kConvBias: return {1, s.conv_channels()};
    case TensorKind::kScanDecay:
    case TensorKind::kScanBias:
    case TensorKind::kScanSkip: return {1, s.mixer_heads};
    case TensorKind::kScanNorm: return {1, s.mixer_out()};
    case TensorKind::kLatentQuery: return {s.latent_query_dim, s.hidden};
    case TensorKind::kLatentQueryNorm: return {1, s.latent_query_dim};
    case TensorKind::kLatentNorm: return {1, s.latent_dim};
    case TensorKind::kLatentKeys: return {s.n_heads * s.latent_dim, s.latent_key_dim};
    case TensorKind::kLatentValues: return {s.n_heads * s.value_dim(), s.latent_dim};
    case TensorKind::kMixerGate: return {s.mixer_out(), s.hidden};
    case TensorKind::kDeltaRate:
    case TensorKind::kDeltaStep: return {s.mixer_heads, s.hidden};
    case TensorKind::kDeltaNorm: return {1, s.mixer_head_dim};
    case TensorKind::kAttnGate: return {attention.q_dim(), s.hidden};
    default: return {};
  }
}

Status check_tensors(const ModelSpec& spec, SectionKind section, std::uint32_t layer,
                     std::span<const TensorInfo> tensors) {
  if (tensors.empty() || tensors.size() > UINT16_MAX) {
    return invalid_argument("%zu tensors, expected 1 to 65535", tensors.size());
  }
  std::vector<std::uint64_t> identities;
  identities.reserve(tensors.size());
  for (const TensorInfo& t : tensors) {
    QSF_RETURN_IF_ERROR(check_tensor(spec, section, layer, t));
    identities.push_back(static_cast<std::uint64_t>(t.kind) << 16 | t.expert);
  }
  std::sort(identities.begin(), identities.end());
  const auto twice = std::adjacent_find(identities.begin(), identities.end());
  if (twice != identities.end()) {
    return invalid_argument(
        "tensor %s of expert %u occurs twice",
        std::string(tensor_kind_name(static_cast<TensorKind>(*twice >> 16))).c_str(),
        static_cast<unsigned>(*twice & 0xFFFF));
  }
  if (section == SectionKind::kEmbedding) {
    if (!holds(tensors, TensorKind::kTokenEmbedding)) {
      return invalid_argument("tensor token_embedding is missing");
    }
    const bool learned = spec.positions == PositionEncoding::kLearned;
    if (holds(tensors, TensorKind::kPositionEmbedding) != learned) {
      return invalid_argument("tensor position_embedding: %s in a model of %s positions",
                              learned ? "missing" : "present",
                              std::string(position_encoding_name(spec.positions)).c_str());
    }
  }
  if (section == SectionKind::kFinal && holds(tensors, TensorKind::kHead) == spec.tied_head) {
    return invalid_argument("tensor head: %s, but the head is %s",
                            spec.tied_head ? "present" : "missing",
                            spec.tied_head ? "tied to the embedding" : "not tied");
  }
  return ok_status();
}

std::uint8_t common_type(std::span<const TensorInfo> tensors) noexcept {
  std::uint8_t common = kMixedType;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.rows == 1) continue;
    const auto type = static_cast<std::uint8_t>(tensor.format.type);
    if (common != kMixedType && common != type) return kMixedType;
    common = type;
  }
  return common;
}

}  // namespace qsf
