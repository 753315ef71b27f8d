// SPDX-License-Identifier: MIT

#include "model/weights.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "format/tensor_rules.h"
#include "model/architecture.h"

namespace qsf {
namespace {

// A kind and an expert as one number, to look up one among thousands.
std::uint32_t tensor_key(TensorKind kind, std::uint16_t expert) noexcept {
  return static_cast<std::uint32_t>(kind) << 16U | expert;
}

// The tensors of a section by kind and expert.
class TensorIndex {
 public:
  explicit TensorIndex(const SectionDirectory& directory) {
    keys_.reserve(directory.tensors.size());
    for (const TensorInfo& tensor : directory.tensors) {
      keys_.emplace_back(tensor_key(tensor.kind, tensor.expert), keys_.size());
    }
    std::sort(keys_.begin(), keys_.end());
  }

  std::optional<std::uint32_t> find(TensorKind kind, std::uint16_t expert = 0) const {
    const std::uint32_t key = tensor_key(kind, expert);
    const auto found = std::lower_bound(keys_.begin(), keys_.end(), std::pair(key, 0U));
    if (found == keys_.end() || found->first != key) return std::nullopt;
    return found->second;
  }

 private:
  std::vector<std::pair<std::uint32_t, std::uint32_t>> keys_;  // and the place in the directory
};

// Holds the directory to the rules: nothing missing, nothing else, every shape as expected.
Status check_section(const QsfReader& reader, const SectionDirectory& directory,
                     const std::vector<TensorRule>& rules) {
  const TensorIndex tensors(directory);
  std::vector<std::uint32_t> known;
  known.reserve(rules.size());
  const std::string where =
      reader.file().path() + ": " + section_label(directory.kind, directory.layer);
  for (const TensorRule& rule : rules) {
    known.push_back(tensor_key(rule.kind, rule.expert));
    const auto index = tensors.find(rule.kind, rule.expert);
    std::string name(tensor_kind_name(rule.kind));
    if (rule.expert != 0) {
      name += (is_expert(rule.kind) ? " of expert " : " number ") + std::to_string(rule.expert);
    }
    if (!index.has_value()) {
      if (!rule.required) continue;
      return corrupt("%s: tensor %s is missing; architecture %s needs it", where.c_str(),
                     name.c_str(), reader.spec().architecture.c_str());
    }
    const TensorInfo& tensor = directory.tensors[*index];
    if (tensor.rows != rule.rows || tensor.cols != rule.cols) {
      return corrupt("%s: tensor %s is %u x %u, expected %u x %u", where.c_str(), name.c_str(),
                     tensor.rows, tensor.cols, rule.rows, rule.cols);
    }
  }
  const bool has_keys =
      directory.kind != SectionKind::kLayer || reader.spec().owns_kv(directory.layer);
  if (has_keys && tensors.find(TensorKind::kQNorm).has_value() !=
                      tensors.find(TensorKind::kKNorm).has_value()) {
    return corrupt("%s: one of the tensors q_norm and k_norm without the other", where.c_str());
  }
  std::sort(known.begin(), known.end());
  for (const TensorInfo& tensor : directory.tensors) {
    const std::uint32_t key = tensor_key(tensor.kind, tensor.expert);
    if (!std::binary_search(known.begin(), known.end(), key)) {
      return unsupported("%s: tensor %s is not part of architecture %s", where.c_str(),
                         std::string(tensor_kind_name(tensor.kind)).c_str(),
                         reader.spec().architecture.c_str());
    }
  }
  return ok_status();
}

// Looks up the tensors of one section. Requires  its directory passed check_section
class SectionBinder {
 public:
  SectionBinder(const QsfReader& reader, const WeightPager& pager, std::uint32_t section)
      : pager_(pager),
        directory_(reader.directories()[section]),
        tensors_(directory_),
        section_(section) {}

  MatrixRef matrix(TensorKind kind, std::uint16_t expert = 0) const {
    const auto index = tensors_.find(kind, expert);
    if (!index.has_value()) return {};
    const TensorInfo& tensor = directory_.tensors[*index];
    return {section_, *index, tensor.rows, tensor.cols};
  }

  std::span<const float> vector(TensorKind kind, std::uint16_t expert = 0) const {
    const auto index = tensors_.find(kind, expert);
    if (!index.has_value()) return {};
    return pager_.vector(section_, *index).value();  // check_section saw one row
  }

 private:
  const WeightPager& pager_;
  const SectionDirectory& directory_;
  TensorIndex tensors_;
  std::uint32_t section_;
};

void bind_streams(const SectionBinder& section, std::uint32_t n_streams, LayerWeights& layer) {
  for (std::uint32_t i = 0; i + 1 < n_streams; ++i) {
    const auto number = static_cast<std::uint16_t>(i);
    layer.stream_in.push_back(section.matrix(TensorKind::kStreamIn, number));
    layer.stream_out.push_back(section.matrix(TensorKind::kStreamOut, number));
  }
  layer.stream_router = section.vector(TensorKind::kStreamRouter);
  layer.stream_predict = section.vector(TensorKind::kStreamPredict);
  layer.stream_correct = section.vector(TensorKind::kStreamCorrect);
  layer.stream_scale = section.vector(TensorKind::kStreamScale);
  layer.laurel_left = section.matrix(TensorKind::kLaurelLeft);
  layer.laurel_right = section.matrix(TensorKind::kLaurelRight);
  layer.laurel_norm = section.vector(TensorKind::kLaurelNorm);
}

LayerWeights bind_layer(const SectionBinder& section, std::uint32_t n_experts) {
  LayerWeights layer;
  layer.attn_norm = section.vector(TensorKind::kAttnNorm);
  layer.attn_norm_bias = section.vector(TensorKind::kAttnNormBias);
  layer.q_norm = section.vector(TensorKind::kQNorm);
  layer.k_norm = section.vector(TensorKind::kKNorm);
  layer.attn_sub_norm = section.vector(TensorKind::kAttnSubNorm);
  layer.attn_post_norm = section.vector(TensorKind::kAttnPostNorm);
  layer.q = section.matrix(TensorKind::kAttnQ);
  layer.k = section.matrix(TensorKind::kAttnK);
  layer.v = section.matrix(TensorKind::kAttnV);
  layer.o = section.matrix(TensorKind::kAttnO);
  layer.attn_gate = section.matrix(TensorKind::kAttnGate);
  layer.q_bias = section.vector(TensorKind::kAttnQBias);
  layer.k_bias = section.vector(TensorKind::kAttnKBias);
  layer.v_bias = section.vector(TensorKind::kAttnVBias);
  layer.o_bias = section.vector(TensorKind::kAttnOBias);
  layer.latent_query = section.matrix(TensorKind::kLatentQuery);
  layer.latent_query_norm = section.vector(TensorKind::kLatentQueryNorm);
  layer.latent_norm = section.vector(TensorKind::kLatentNorm);
  layer.latent_keys = section.matrix(TensorKind::kLatentKeys);
  layer.latent_values = section.matrix(TensorKind::kLatentValues);
  layer.mixer_in = section.matrix(TensorKind::kMixerIn);
  layer.mixer_out = section.matrix(TensorKind::kMixerOut);
  layer.mixer_gate = section.matrix(TensorKind::kMixerGate);
  layer.delta_rate = section.matrix(TensorKind::kDeltaRate);
  layer.delta_step = section.matrix(TensorKind::kDeltaStep);
  layer.delta_norm = section.vector(TensorKind::kDeltaNorm);
  layer.mixer_in_bias = section.vector(TensorKind::kMixerInBias);
  layer.mixer_out_bias = section.vector(TensorKind::kMixerOutBias);
  layer.conv_taps = section.vector(TensorKind::kConvTaps);
  layer.conv_bias = section.vector(TensorKind::kConvBias);
  layer.scan_decay = section.vector(TensorKind::kScanDecay);
  layer.scan_bias = section.vector(TensorKind::kScanBias);
  layer.scan_skip = section.vector(TensorKind::kScanSkip);
  layer.scan_norm = section.vector(TensorKind::kScanNorm);
  layer.ffn_norm = section.vector(TensorKind::kFfnNorm);
  layer.ffn_norm_bias = section.vector(TensorKind::kFfnNormBias);
  layer.ffn_sub_norm = section.vector(TensorKind::kFfnSubNorm);
  layer.ffn_post_norm = section.vector(TensorKind::kFfnPostNorm);
  layer.gate = section.matrix(TensorKind::kFfnGate);
  layer.up = section.matrix(TensorKind::kFfnUp);
  layer.down = section.matrix(TensorKind::kFfnDown);
  layer.router = section.matrix(TensorKind::kRouter);
  layer.router_correction = section.vector(TensorKind::kRouterCorrection);
  layer.shared_weight = section.vector(TensorKind::kSharedWeight);
  layer.shared_gate = section.matrix(TensorKind::kSharedGate);
  layer.shared_up = section.matrix(TensorKind::kSharedUp);
  layer.shared_down = section.matrix(TensorKind::kSharedDown);
  layer.experts.reserve(n_experts);
  for (std::uint32_t i = 0; i < n_experts; ++i) {
    const auto expert = static_cast<std::uint16_t>(i);
    layer.experts.push_back({section.matrix(TensorKind::kExpertGate, expert),
                             section.matrix(TensorKind::kExpertUp, expert),
                             section.matrix(TensorKind::kExpertDown, expert),
                             section.vector(TensorKind::kExpertGateBias, expert),
                             section.vector(TensorKind::kExpertUpBias, expert),
                             section.vector(TensorKind::kExpertDownBias, expert)});
  }
  layer.router_bias = section.vector(TensorKind::kRouterBias);
  layer.attn_sinks = section.vector(TensorKind::kAttnSinks);
  layer.layer_input = section.matrix(TensorKind::kLayerInput);
  layer.layer_input_gate = section.matrix(TensorKind::kLayerInputGate);
  layer.layer_input_out = section.matrix(TensorKind::kLayerInputOut);
  layer.layer_input_norm = section.vector(TensorKind::kLayerInputNorm);
  layer.layer_input_post_norm = section.vector(TensorKind::kLayerInputPostNorm);
  layer.layer_scale = section.vector(TensorKind::kLayerScale);
  layer.router_norm = section.vector(TensorKind::kRouterNorm);
  layer.expert_norm = section.vector(TensorKind::kExpertNorm);
  layer.dense_post_norm = section.vector(TensorKind::kDensePostNorm);
  layer.expert_post_norm = section.vector(TensorKind::kExpertPostNorm);
  layer.expert_scales = section.vector(TensorKind::kExpertScales);
  layer.mtp_projection = section.matrix(TensorKind::kMtpProjection);
  layer.mtp_token_norm = section.vector(TensorKind::kMtpTokenNorm);
  layer.mtp_hidden_norm = section.vector(TensorKind::kMtpHiddenNorm);
  layer.gate_bias = section.vector(TensorKind::kFfnGateBias);
  layer.up_bias = section.vector(TensorKind::kFfnUpBias);
  layer.down_bias = section.vector(TensorKind::kFfnDownBias);
  return layer;
}

}  // namespace

Status check_tensors(const QsfReader& reader) {
  const ModelSpec& spec = reader.spec();
  QSF_RETURN_IF_ERROR(check_supported(spec).with_context(reader.file().path()));
  QSF_RETURN_IF_ERROR(check_section(reader, reader.embedding(), embedding_rules(spec)));
  for (std::uint32_t i = 0; i < spec.n_layers; ++i) {
    QSF_RETURN_IF_ERROR(check_section(reader, reader.layer(i), layer_rules(spec, i)));
  }
  return check_section(reader, reader.final_section(), final_rules(spec));
}

ModelWeights ModelWeights::bind(const QsfReader& reader, const WeightPager& pager) {
  const ModelSpec& spec = reader.spec();
  ModelWeights weights;
  const SectionBinder embedding(reader, pager, embedding_section());
  weights.token_embedding = embedding.matrix(TensorKind::kTokenEmbedding);
  weights.layer_embedding = embedding.matrix(TensorKind::kLayerEmbedding);
  weights.position_embedding = embedding.matrix(TensorKind::kPositionEmbedding);
  weights.dense_up = embedding.matrix(TensorKind::kDenseUp);
  weights.dense_down = embedding.matrix(TensorKind::kDenseDown);
  weights.embedding_norm = embedding.vector(TensorKind::kEmbeddingNorm);
  weights.embedding_norm_bias = embedding.vector(TensorKind::kEmbeddingNormBias);

  weights.layers.reserve(spec.n_layers);
  for (std::uint32_t i = 0; i < spec.n_layers; ++i) {
    const SectionBinder section(reader, pager, layer_section(i));
    weights.layers.push_back(bind_layer(section, spec.has_experts(i) ? spec.n_experts : 0));
    bind_streams(section, spec.n_streams, weights.layers.back());
  }

  const SectionBinder last(reader, pager, final_section(spec.n_layers));
  weights.final_norm = last.vector(TensorKind::kFinalNorm);
  weights.final_norm_bias = last.vector(TensorKind::kFinalNormBias);
  weights.head = spec.tied_head ? weights.token_embedding : last.matrix(TensorKind::kHead);
  weights.head_bias = last.vector(TensorKind::kHeadBias);
  return weights;
}

}  // namespace qsf
