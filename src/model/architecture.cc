// SPDX-License-Identifier: MIT

#include "model/architecture.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "ops/backend.h"

namespace qsf {
namespace {

constexpr std::array<std::string_view, 4> kArchitectures = {"gpt2", "llama", "mistral", "qwen2"};

Status unsupported_feature(const char* feature) {
  return unsupported("this version cannot run a model with %s", feature);
}

}  // namespace

Status check_supported(const ModelSpec& spec) {
  if (std::find(kArchitectures.begin(), kArchitectures.end(), spec.architecture) ==
      kArchitectures.end()) {
    return unsupported("architecture \"%s\": this version runs gpt2, llama, mistral and qwen2",
                       spec.architecture.c_str());
  }
  if (spec.head_dim > kMaxHeadDim) {
    return unsupported("heads of %u columns: this version runs at most %u", spec.head_dim,
                       kMaxHeadDim);
  }
  if (std::min({spec.hidden, spec.q_dim(), spec.kv_dim(), spec.ffn, spec.n_vocab}) < 2) {
    return unsupported_feature("a weight matrix of one row");
  }
  if (spec.positions == PositionEncoding::kAlibi) return unsupported_feature("ALiBi positions");
  if (spec.activation == Activation::kReluSquared) return unsupported_feature("squared ReLU");
  if (spec.parallel_block) return unsupported_feature("parallel attention and FFN");
  if (spec.n_experts != 0) return unsupported_feature("experts");
  if (spec.attention_soft_cap != 0.0F || spec.logit_soft_cap != 0.0F) {
    return unsupported_feature("soft-capped scores or logits");
  }
  if (spec.logit_scale != 1.0F || spec.embedding_scale != 1.0F || spec.residual_scale != 1.0F) {
    return unsupported_feature("scaled embeddings, residuals or logits");
  }
  return ok_status();
}

std::vector<TensorRule> embedding_rules(const ModelSpec& spec) {
  std::vector<TensorRule> rules = {{TensorKind::kTokenEmbedding, spec.n_vocab, spec.hidden, true}};
  if (spec.positions == PositionEncoding::kLearned) {
    rules.push_back({TensorKind::kPositionEmbedding, spec.max_positions, spec.hidden, true});
  }
  return rules;
}

std::vector<TensorRule> layer_rules(const ModelSpec& spec) {
  const bool layer_norm = spec.norm == NormType::kLayerNorm;
  std::vector<TensorRule> rules = {
      {TensorKind::kAttnNorm, 1, spec.hidden, true},
      {TensorKind::kAttnQ, spec.q_dim(), spec.hidden, true},
      {TensorKind::kAttnQBias, 1, spec.q_dim(), false},
      {TensorKind::kAttnK, spec.kv_dim(), spec.hidden, true},
      {TensorKind::kAttnKBias, 1, spec.kv_dim(), false},
      {TensorKind::kAttnV, spec.kv_dim(), spec.hidden, true},
      {TensorKind::kAttnVBias, 1, spec.kv_dim(), false},
      {TensorKind::kAttnO, spec.hidden, spec.q_dim(), true},
      {TensorKind::kAttnOBias, 1, spec.hidden, false},
      {TensorKind::kFfnNorm, 1, spec.hidden, true},
      {TensorKind::kFfnUp, spec.ffn, spec.hidden, true},
      {TensorKind::kFfnUpBias, 1, spec.ffn, false},
      {TensorKind::kFfnDown, spec.hidden, spec.ffn, true},
      {TensorKind::kFfnDownBias, 1, spec.hidden, false},
  };
  if (layer_norm) {
    rules.push_back({TensorKind::kAttnNormBias, 1, spec.hidden, true});
    rules.push_back({TensorKind::kFfnNormBias, 1, spec.hidden, true});
  }
  if (spec.gated_ffn) {
    rules.push_back({TensorKind::kFfnGate, spec.ffn, spec.hidden, true});
    rules.push_back({TensorKind::kFfnGateBias, 1, spec.ffn, false});
  }
  return rules;
}

std::vector<TensorRule> final_rules(const ModelSpec& spec) {
  std::vector<TensorRule> rules = {{TensorKind::kFinalNorm, 1, spec.hidden, true}};
  if (spec.norm == NormType::kLayerNorm) {
    rules.push_back({TensorKind::kFinalNormBias, 1, spec.hidden, true});
  }
  if (!spec.tied_head) rules.push_back({TensorKind::kHead, spec.n_vocab, spec.hidden, true});
  return rules;
}

}  // namespace qsf
