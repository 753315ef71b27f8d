// SPDX-License-Identifier: MIT

#include "model/architecture.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "ops/backend.h"

namespace qsf {
namespace {

// The tensors of an architecture that most others do not have. All other differences are in the
// spec.
struct Architecture {
  std::string_view name;
  bool head_norms = false;      // of every head of queries and keys
  bool sub_norms = false;       // of what the attention output and the down projection take
  bool post_norms = false;      // of what attention and FFN give to the residual stream
  bool embedding_norm = false;  // of the embedded tokens
  bool head_bias = false;       // of the output head
};

constexpr Architecture kArchitectures[] = {
    {.name = "gpt2"},
    {.name = "llama"},
    {.name = "mistral"},
    {.name = "qwen2"},
    {.name = "qwen3", .head_norms = true},
    {.name = "phi2", .head_bias = true},
    {.name = "phi3"},
    {.name = "opt"},
    {.name = "bloom", .embedding_norm = true},
    {.name = "gemma"},
    {.name = "gemma2", .post_norms = true},
    {.name = "stablelm"},
    {.name = "bitnet", .sub_norms = true},
    {.name = "bitnet-25", .sub_norms = true},
    {.name = "bitnet-b1.58", .sub_norms = true},
};

// Returns the row of that name, null when there is none.
const Architecture* find_architecture(std::string_view name) noexcept {
  const auto* const found = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                         [name](const Architecture& a) { return a.name == name; });
  return found == std::end(kArchitectures) ? nullptr : found;
}

// "gpt2, llama, ... and bitnet-b1.58"
std::string architecture_names() {
  std::string names;
  for (const Architecture& a : kArchitectures) {
    if (&a != std::begin(kArchitectures)) {
      names += &a + 1 == std::end(kArchitectures) ? " and " : ", ";
    }
    names += a.name;
  }
  return names;
}

Status unsupported_feature(const char* feature) {
  return unsupported("this version cannot run a model with %s", feature);
}

// Adds a norm of hidden rows, with its bias where norms have one.
void add_norm(const ModelSpec& spec, TensorKind gain, TensorKind bias,
              std::vector<TensorRule>& rules) {
  rules.push_back({gain, 1, spec.hidden, true});
  if (spec.norm == NormType::kLayerNorm) rules.push_back({bias, 1, spec.hidden, true});
}

}  // namespace

Status check_supported(const ModelSpec& spec) {
  if (find_architecture(spec.architecture) == nullptr) {
    return unsupported("architecture \"%s\": this version runs %s", spec.architecture.c_str(),
                       architecture_names().c_str());
  }
  if (spec.head_dim > kMaxHeadDim) {
    return unsupported("heads of %u columns: this version runs at most %u", spec.head_dim,
                       kMaxHeadDim);
  }
  if (std::min({spec.hidden, spec.q_dim(), spec.kv_dim(), spec.ffn, spec.n_vocab}) < 2) {
    return unsupported_feature("a weight matrix of one row");
  }
  if (spec.n_experts != 0) return unsupported_feature("experts");
  if (spec.logit_scale != 1.0F || spec.residual_scale != 1.0F) {
    return unsupported_feature("scaled residuals or logits");
  }
  return ok_status();
}

std::vector<TensorRule> embedding_rules(const ModelSpec& spec) {
  std::vector<TensorRule> rules = {{TensorKind::kTokenEmbedding, spec.n_vocab, spec.hidden, true}};
  if (spec.positions == PositionEncoding::kLearned) {
    rules.push_back({TensorKind::kPositionEmbedding, spec.max_positions, spec.hidden, true});
  }
  if (find_architecture(spec.architecture)->embedding_norm) {
    add_norm(spec, TensorKind::kEmbeddingNorm, TensorKind::kEmbeddingNormBias, rules);
  }
  return rules;
}

std::vector<TensorRule> layer_rules(const ModelSpec& spec) {
  const Architecture& architecture = *find_architecture(spec.architecture);
  std::vector<TensorRule> rules = {
      {TensorKind::kAttnQ, spec.q_dim(), spec.hidden, true},
      {TensorKind::kAttnQBias, 1, spec.q_dim(), false},
      {TensorKind::kAttnK, spec.kv_dim(), spec.hidden, true},
      {TensorKind::kAttnKBias, 1, spec.kv_dim(), false},
      {TensorKind::kAttnV, spec.kv_dim(), spec.hidden, true},
      {TensorKind::kAttnVBias, 1, spec.kv_dim(), false},
      {TensorKind::kAttnO, spec.hidden, spec.q_dim(), true},
      {TensorKind::kAttnOBias, 1, spec.hidden, false},
      {TensorKind::kFfnUp, spec.ffn, spec.hidden, true},
      {TensorKind::kFfnUpBias, 1, spec.ffn, false},
      {TensorKind::kFfnDown, spec.hidden, spec.ffn, true},
      {TensorKind::kFfnDownBias, 1, spec.hidden, false},
  };
  add_norm(spec, TensorKind::kAttnNorm, TensorKind::kAttnNormBias, rules);
  // In a parallel block the FFN reads what attention reads.
  if (!spec.parallel_block) {
    add_norm(spec, TensorKind::kFfnNorm, TensorKind::kFfnNormBias, rules);
  }
  if (architecture.head_norms) {
    rules.push_back({TensorKind::kQNorm, 1, spec.head_dim, true});
    rules.push_back({TensorKind::kKNorm, 1, spec.head_dim, true});
  }
  if (architecture.sub_norms) {
    rules.push_back({TensorKind::kAttnSubNorm, 1, spec.q_dim(), true});
    rules.push_back({TensorKind::kFfnSubNorm, 1, spec.ffn, true});
  }
  if (architecture.post_norms) {
    rules.push_back({TensorKind::kAttnPostNorm, 1, spec.hidden, true});
    rules.push_back({TensorKind::kFfnPostNorm, 1, spec.hidden, true});
  }
  if (spec.gated_ffn) {
    rules.push_back({TensorKind::kFfnGate, spec.ffn, spec.hidden, true});
    rules.push_back({TensorKind::kFfnGateBias, 1, spec.ffn, false});
  }
  return rules;
}

std::vector<TensorRule> final_rules(const ModelSpec& spec) {
  std::vector<TensorRule> rules;
  add_norm(spec, TensorKind::kFinalNorm, TensorKind::kFinalNormBias, rules);
  if (find_architecture(spec.architecture)->head_bias) {
    rules.push_back({TensorKind::kHeadBias, 1, spec.n_vocab, true});
  }
  if (!spec.tied_head) rules.push_back({TensorKind::kHead, spec.n_vocab, spec.hidden, true});
  return rules;
}

}  // namespace qsf
