// SPDX-License-Identifier: MIT

#include "import/gguf/gguf_arch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "import/gguf/gguf_fields.h"
#include "import/gguf/gguf_rope.h"

namespace qsf {
namespace {

// Architectures with states have an array: 0 heads in layers without attention.
void read_kv_heads(GgufFields& fields, const GgufArchitecture& architecture, ModelSpec& spec) {
  const char* key = "attention.head_count_kv";
  if (architecture.heads_by_layer && fields.is_array(key)) {
    const std::vector<std::uint32_t> heads = fields.u32_array(key, spec.n_layers, 1U << 16);
    if (!heads.empty()) spec.n_kv_heads = *std::max_element(heads.begin(), heads.end());
    return;
  }
  if (architecture.state == LayerMixer::kAttention || !fields.is_array(key)) {
    spec.n_kv_heads = fields.u32_or(key, spec.n_heads, 1, 1U << 16);
    return;
  }
  const std::vector<std::uint32_t> heads = fields.u32_array(key, spec.n_layers, 1U << 16);
  for (const std::uint32_t n : heads) {
    const LayerMixer mixer = n == 0 ? architecture.state : LayerMixer::kAttention;
    spec.layer_mixers.push_back(static_cast<std::uint32_t>(mixer));
    if (n == 0 || n == spec.n_kv_heads) continue;
    if (spec.n_kv_heads != 0) {
      fields.fail(unsupported("GGUF: key \"%s\": layers of %u and of %u heads are not supported",
                              key, spec.n_kv_heads, n));
    }
    spec.n_kv_heads = n;
  }
  if (fields.status().ok() && spec.n_kv_heads == 0) {
    fields.fail(unsupported("GGUF: key \"%s\": no layer with attention is not supported", key));
  }
  if (!spec.has_state()) spec.layer_mixers.clear();
}

// Arrays of heads of keys and of FFN rows: of one that is not 0 a layer, it attends or is an FFN,
// of none it has a state. Blocks that predict further tokens come behind the layers.
void read_sublayers(GgufFields& fields, const GgufArchitecture& architecture, ModelSpec& spec) {
  const std::uint32_t n_blocks = spec.n_layers;
  if (!fields.status().ok()) return;
  spec.n_layers -= fields.u32_or("nextn_predict_layers", 0, 0, n_blocks - 1);
  const char* kv_key = "attention.head_count_kv";
  const char* ffn_key = "feed_forward_length";
  const std::vector<std::uint32_t> heads = fields.u32_array(kv_key, n_blocks, 1U << 16);
  const std::vector<std::uint32_t> widths = fields.u32_array(ffn_key, n_blocks, 1U << 24);
  if (!fields.status().ok()) return;
  const auto take = [&](const char* key, std::uint32_t value, std::uint32_t& to) {
    if (to != 0 && to != value) {
      fields.fail(unsupported("GGUF: key \"%s\": layers of %u and of %u are not supported", key, to,
                              value));
    }
    to = value;
  };
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    LayerMixer mixer = architecture.state;
    if (heads[layer] != 0 && widths[layer] != 0) {
      fields.fail(
          unsupported("GGUF: layer %u has both attention and an FFN, expected one of them", layer));
    }
    if (heads[layer] != 0) {
      mixer = LayerMixer::kAttention;
      take(kv_key, heads[layer], spec.n_kv_heads);
    } else if (widths[layer] != 0) {
      mixer = LayerMixer::kNone;
      take(ffn_key, widths[layer], spec.ffn);
    }
    spec.layer_mixers.push_back(static_cast<std::uint32_t>(mixer));
    spec.ffn_layers.push_back(mixer == LayerMixer::kNone ? 1 : 0);
  }
  if (!fields.status().ok() || (spec.n_kv_heads != 0 && spec.ffn != 0)) return;
  fields.fail(unsupported("GGUF: no layer with attention, or none with an FFN: not supported"));
}

// The width of FFNs, which layers of some architectures have of their own. A mixture of experts
// alone may not say how wide an FFN would be.
void read_ffn(GgufFields& fields, const GgufArchitecture& architecture, ModelSpec& spec) {
  const char* key = "feed_forward_length";
  const bool experts = !gguf_tensor_table(architecture).experts.empty();
  if (!architecture.heads_by_layer || !fields.is_array(key)) {
    spec.ffn =
        fields.u32(experts && !fields.has(key) ? "expert_feed_forward_length" : key, 1, 1U << 24);
    return;
  }
  std::vector<std::uint32_t> widths = fields.u32_array(key, spec.n_layers, 1U << 24);
  if (fields.status().ok()) set_layer_ffn(std::move(widths), spec);
}

// Sizes, norm and vocabulary.
Status read_sizes(const GgufFile& file, const GgufArchitecture& architecture, GgufFields& fields,
                  ModelSpec& spec) {
  spec.hidden = fields.u32("embedding_length", 1, 1U << 20);
  spec.n_layers = fields.u32("block_count", 1, 4096);
  spec.n_heads = fields.u32("attention.head_count", 1, 1U << 16);
  spec.max_positions = fields.u32("context_length", 1, 1U << 24);
  if (architecture.single_sublayers) {
    read_sublayers(fields, architecture, spec);
  } else {
    read_kv_heads(fields, architecture, spec);
    read_ffn(fields, architecture, spec);
  }
  // Of a LayerNorm that llama.cpp takes for the other. Nemotron-H may have the key of either.
  const bool rms =
      (spec.norm == NormType::kRmsNorm || architecture.family == "phimoe") &&
      !(architecture.single_sublayers && !fields.has("attention.layer_norm_rms_epsilon"));
  spec.norm_epsilon = fields.positive(
      rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon", std::nullopt);
  spec.head_dim = fields.u32_or("attention.key_length", 0, 1, 1U << 16);
  QSF_RETURN_IF_ERROR(fields.status());
  if (spec.head_dim == 0) {
    if (spec.hidden % spec.n_heads != 0) {
      return corrupt(
          "GGUF: %u columns are not a multiple of %u heads, and attention.key_length "
          "is missing",
          spec.hidden, spec.n_heads);
    }
    spec.head_dim = spec.hidden / spec.n_heads;
  }
  const std::uint32_t value_length =
      fields.u32_or("attention.value_length", spec.head_dim, 1, 1U << 16);
  if (fields.status().ok() && value_length != spec.head_dim && !architecture.latent) {
    return unsupported("GGUF: values of %u columns a head and keys of %u are not supported",
                       value_length, spec.head_dim);
  }
  const GgufFile::Entry* embedding = file.find("token_embd.weight");
  if (embedding == nullptr) {
    return corrupt("GGUF: tensor \"token_embd.weight\" is missing: no %s without it",
                   std::string(architecture.name).c_str());
  }
  if (embedding->tensor->dims[1] > (1U << 24)) {
    return corrupt("GGUF: tensor \"token_embd.weight\": %llu rows, expected at most 2^24",
                   static_cast<unsigned long long>(embedding->tensor->dims[1]));
  }
  spec.n_vocab = static_cast<std::uint32_t>(embedding->tensor->dims[1]);
  return fields.status();
}

// What changes the mathematics of a model and is not run; some of it is, for the architectures that
// have read it.
Status refuse_other_keys(const GgufArchitecture& architecture, GgufFields& fields) {
  if (gguf_tensor_table(architecture).experts.empty() &&
      fields.u32_or("expert_count", 0, 0, 1U << 20) > 0) {
    return unsupported("GGUF: a %s with a mixture of experts is not supported",
                       std::string(architecture.name).c_str());
  }
  fields.refuse_unread("attention.causal", 1.0);
  fields.refuse_unread("attention.scale", 0.0);
  fields.refuse_unread("attention.clamp_kqv", 0.0);
  fields.refuse_unread("attention.temperature_scale", 0.0);
  fields.refuse_unread("attention.sliding_window", 0.0);
  fields.refuse_unread("embedding_scale", 1.0);
  fields.refuse_unread("residual_scale", 1.0);
  fields.refuse_unread("logit_scale", 1.0);
  fields.refuse_unread("attn_logit_softcapping", 0.0);
  fields.refuse_unread("final_logit_softcapping", 0.0);
  fields.refuse_unread("rope.scaling.attn_factor", 1.0);
  fields.refuse_unread("nextn_predict_layers", 0.0);
  fields.refuse_unread("tensor_data_layout", 0.0);
  fields.refuse_unread("moe_latent_size", 0.0);
  return fields.status();
}

// llama.cpp's numbers; 0 is none. A file of rank, 4, gives scores, not embeddings.
void read_pooling(GgufFields& fields, ModelSpec& spec) {
  constexpr Pooling kPoolings[] = {Pooling::kMean, Pooling::kFirst, Pooling::kLast};
  const char* key = "pooling_type";
  const std::uint32_t type = fields.u32_or(key, 0, 0, UINT32_MAX);
  if (type >= 1 && type <= 3) spec.pooling = kPoolings[type - 1];
  if (type <= 3) return;
  fields.fail(unsupported(
      "GGUF: key \"%s\" is %u; expected 0 (none), 1 (mean), 2 (first) or 3 (last)", key, type));
}

using K = TensorKind;
constexpr GgufKindName kKindNames[] = {
    {K::kTokenEmbedding, "token_embd.weight"},
    {K::kPositionEmbedding, "position_embd.weight"},
    {K::kLayerEmbedding, "per_layer_token_embd.weight"},
    {K::kLayerInput, "per_layer_model_proj.weight"},
    {K::kLayerInputNorm, "per_layer_proj_norm.weight"},
    {K::kDenseUp, "dense_2.weight"},
    {K::kDenseDown, "dense_3.weight"},
    {K::kStreamIn, "altup_proj.weight"},
    {K::kStreamOut, "altup_unembd_proj.weight"},
    {K::kEmbeddingNorm, "token_embd_norm.weight"},
    {K::kEmbeddingNormBias, "token_embd_norm.bias"},
    {K::kFinalNorm, "output_norm.weight"},
    {K::kFinalNormBias, "output_norm.bias"},
    {K::kHead, "output.weight"},
    {K::kHeadBias, "output.bias"},
};
constexpr GgufKindName kLayerNames[] = {
    {K::kAttnQ, "attn_q.weight"},
    {K::kAttnK, "attn_k.weight"},
    {K::kAttnV, "attn_v.weight"},
    {K::kAttnO, "attn_output.weight"},
    {K::kFfnGate, "ffn_gate.weight"},
    {K::kFfnUp, "ffn_up.weight"},
    {K::kFfnDown, "ffn_down.weight"},
    {K::kAttnNorm, "attn_norm.weight"},
    {K::kFfnNorm, "ffn_norm.weight"},
    {K::kAttnQBias, "attn_q.bias"},
    {K::kAttnKBias, "attn_k.bias"},
    {K::kAttnVBias, "attn_v.bias"},
    {K::kAttnOBias, "attn_output.bias"},
    {K::kFfnUpBias, "ffn_up.bias"},
    {K::kFfnDownBias, "ffn_down.bias"},
    {K::kFfnGateBias, "ffn_gate.bias"},
    {K::kAttnNormBias, "attn_norm.bias"},
    {K::kFfnNormBias, "ffn_norm.bias"},
    {K::kQNorm, "attn_q_norm.weight"},
    {K::kKNorm, "attn_k_norm.weight"},
    {K::kAttnSubNorm, "attn_sub_norm.weight"},
    {K::kFfnSubNorm, "ffn_sub_norm.weight"},
    {K::kMixerIn, "shortconv.in_proj.weight"},
    {K::kMixerInBias, "shortconv.in_proj.bias"},
    {K::kConvTaps, "shortconv.conv.weight"},
    {K::kConvBias, "shortconv.conv.bias"},
    {K::kMixerOut, "shortconv.out_proj.weight"},
    {K::kMixerOutBias, "shortconv.out_proj.bias"},
    {K::kRouter, "ffn_gate_inp.weight"},
    {K::kExpertGate, "ffn_gate_exps.weight"},
    {K::kExpertUp, "ffn_up_exps.weight"},
    {K::kExpertDown, "ffn_down_exps.weight"},
    {K::kRouterBias, "ffn_gate_inp.bias"},
    {K::kExpertGateBias, "ffn_gate_exps.bias"},
    {K::kExpertUpBias, "ffn_up_exps.bias"},
    {K::kExpertDownBias, "ffn_down_exps.bias"},
    {K::kAttnSinks, "attn_sinks.weight"},
    {K::kRouterCorrection, "exp_probs_b.bias"},
    {K::kSharedWeight, "ffn_gate_inp_shexp.weight"},
    {K::kSharedGate, "ffn_gate_shexp.weight"},
    {K::kSharedUp, "ffn_up_shexp.weight"},
    {K::kSharedDown, "ffn_down_shexp.weight"},
    {K::kLatentQuery, "attn_q_a.weight"},
    {K::kLatentQueryNorm, "attn_q_a_norm.weight"},
    {K::kLatentNorm, "attn_kv_a_norm.weight"},
    {K::kLatentKeys, "attn_k_b.weight"},
    {K::kLatentValues, "attn_v_b.weight"},
    {K::kAttnPostNorm, "post_attention_norm.weight"},
    {K::kFfnPostNorm, "post_ffw_norm.weight"},
    {K::kLayerScale, "layer_output_scale.weight"},
    {K::kLayerInputGate, "inp_gate.weight"},
    {K::kLayerInputOut, "proj.weight"},
    {K::kLayerInputPostNorm, "post_norm.weight"},
    {K::kStreamRouter, "altup_router.weight"},
    {K::kStreamPredict, "altup_predict_coef.weight"},
    {K::kStreamCorrect, "altup_correct_coef.weight"},
    {K::kStreamScale, "altup_correct_scale.weight"},
    {K::kLaurelLeft, "laurel_l.weight"},
    {K::kLaurelRight, "laurel_r.weight"},
    {K::kLaurelNorm, "laurel_post_norm.weight"},
    {K::kMtpProjection, "nextn.eh_proj.weight"},
    {K::kMtpTokenNorm, "nextn.enorm.weight"},
    {K::kMtpHiddenNorm, "nextn.hnorm.weight"},
    {K::kRouterNorm, "ffn_gate_inp.scale"},
    {K::kExpertScales, "ffn_down_exps.scale"},
    {K::kExpertNorm, "pre_ffw_norm_2.weight"},
    {K::kDensePostNorm, "post_ffw_norm_1.weight"},
    {K::kExpertPostNorm, "post_ffw_norm_2.weight"},
};

// Returns the name of a kind in a list, null where it has none.
const char* find_name(std::span<const GgufKindName> names, TensorKind kind) noexcept {
  for (const GgufKindName& entry : names) {
    if (entry.kind == kind) return entry.name;
  }
  return nullptr;
}

}  // namespace

const TensorTable& gguf_tensor_table(const GgufArchitecture& architecture) {
  return architecture.table != nullptr ? *architecture.table : tensor_table(architecture.family);
}

Result<ModelSpec> gguf_model_spec(const GgufFile& file, const GgufArchitecture& architecture) {
  GgufFields fields(file.keys(), architecture.name);
  ModelSpec spec;
  spec.architecture = architecture.family;
  spec.norm = architecture.norm;
  spec.activation = architecture.activation;
  spec.gated_ffn = architecture.gated_ffn;
  spec.positions = architecture.positions;
  spec.parallel_block = architecture.parallel_block;
  spec.source = "GGUF " + std::string(architecture.name);
  QSF_RETURN_IF_ERROR(read_sizes(file, architecture, fields, spec));
  if (spec.positions == PositionEncoding::kRope) {
    QSF_RETURN_IF_ERROR(read_gguf_rope(file, fields, spec));
  }
  if (architecture.finish != nullptr) QSF_RETURN_IF_ERROR(architecture.finish(file, fields, spec));
  read_pooling(fields, spec);
  QSF_RETURN_IF_ERROR(refuse_other_keys(architecture, fields));
  return spec;
}

std::string gguf_tensor_name(const GgufArchitecture& architecture, TensorKind kind,
                             std::uint32_t layer) {
  const char* name = find_name(architecture.names, kind);
  if (const char* common = find_name(kKindNames, kind); common != nullptr) {
    return name != nullptr ? name : common;
  }
  if (name == nullptr) name = find_name(kLayerNames, kind);
  return name == nullptr ? std::string() : "blk." + std::to_string(layer) + "." + name;
}

}  // namespace qsf
