// SPDX-License-Identifier: MIT
//
// The text model of Llama 4: layers that attend by chunks and rotate, layers that do neither, and
// experts whose weight multiplies what they take.

#include <string>
#include <vector>

#include "import/hf/hf_families.h"

namespace qsf {
namespace {

constexpr std::uint32_t kMostChunk = 1U << 30;

// Reads which layers attend by chunks: those that layer_types names, or all that rotate.
Status parse_chunks(ConfigFields& fields, ModelSpec& spec) {
  if (fields.is_null("attention_chunk_size")) {
    return unsupported("attention_chunk_size: null, expected a length");
  }
  const std::uint32_t chunk = fields.u32_or("attention_chunk_size", 8192, 1, kMostChunk);
  QSF_RETURN_IF_ERROR(fields.status());
  std::vector<bool> chunked;
  const JsonValue* types = fields.find("layer_types");
  if (types != nullptr && (!types->is_array() || types->size() != spec.n_layers)) {
    return corrupt("layer_types: expected a list of %u, one a layer", spec.n_layers);
  }
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    chunked.push_back(spec.rope_of(layer) != LayerRope::kNone);
    if (types == nullptr) continue;
    const JsonValue& type = types->elements()[layer];
    if (type.text() != "full_attention" && type.text() != "chunked_attention") {
      return unsupported("layer_types: %s is not supported", type.shown().c_str());
    }
    chunked.back() = type.text() == "chunked_attention";
  }
  set_local_windows(chunked, chunk, spec);
  spec.chunked_windows = true;
  return ok_status();
}

// Reads how layers without rotation scale their queries. The switch is a number in some files.
Status parse_temperature(ConfigFields& fields, ModelSpec& spec) {
  const char* key = "attn_temperature_tuning";
  const JsonValue* value = fields.find(key);
  const std::optional<std::uint64_t> number =
      value != nullptr ? value->unsigned_integer() : std::nullopt;
  const bool scaled = number ? *number != 0 : fields.boolean(key, true);
  const float scale = fields.positive("attn_scale", 0.1F);
  const std::uint32_t step = fields.u32_or("floor_scale", 8192, 1, kMostChunk);
  QSF_RETURN_IF_ERROR(fields.status());
  if (!scaled) return ok_status();
  spec.query_position_scale = scale;
  spec.query_position_step = step;
  return ok_status();
}

// Reads which layers have experts: those that moe_layers lists, or every n-th.
Status parse_moe_layers(ConfigFields& fields, ModelSpec& spec) {
  const std::uint32_t step = fields.u32_or("interleave_moe_layer_step", 1, 1, 4096);
  QSF_RETURN_IF_ERROR(fields.status());
  std::uint32_t n_sparse = 0;
  std::vector<std::uint32_t> sparse(spec.n_layers);
  const JsonValue* list = fields.find("moe_layers");
  if (list == nullptr) {
    for (std::uint32_t layer = step - 1; layer < spec.n_layers; layer += step) sparse[layer] = 1;
  } else if (!list->is_array()) {
    return corrupt("moe_layers: expected a list of layers");
  } else {
    for (const JsonValue& value : list->elements()) {
      const auto layer = value.unsigned_integer();
      if (!layer) return corrupt("moe_layers: %s, expected a layer", value.shown().c_str());
      if (*layer < spec.n_layers) sparse[*layer] = 1;
    }
  }
  for (const std::uint32_t here : sparse) n_sparse += here;
  if (n_sparse == 0) {
    return unsupported("moe_layers: no layer has experts, which is not supported");
  }
  if (n_sparse != spec.n_layers) spec.expert_layers = std::move(sparse);
  return ok_status();
}

}  // namespace

Status parse_llama4(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  const std::string type = fields.text("model_type", "llama4_text");
  if (type != "llama4_text") {
    return unsupported("model_type: \"%s\" is not supported; expected llama4_text",
                       type.substr(0, 64).c_str());
  }
  spec.architecture = "llama4";
  QSF_RETURN_IF_ERROR(parse_decoder(fields,
                                    {.epsilon = 1e-5F,
                                     .n_heads = 40,
                                     .max_positions = 131072,
                                     .n_kv_heads = 8,
                                     .head_dim = 128,
                                     .ffn_key = "intermediate_size_mlp",
                                     .rope_theta = 500000.0F},
                                    spec));
  QSF_RETURN_IF_ERROR(parse_silu(fields, spec));
  QSF_RETURN_IF_ERROR(parse_no_rope_layers(fields, spec));
  QSF_RETURN_IF_ERROR(parse_chunks(fields, spec));
  QSF_RETURN_IF_ERROR(parse_temperature(fields, spec));
  spec.unit_head_norms = fields.boolean("use_qk_norm", true);
  config.qkv_bias = fields.boolean("attention_bias", false);
  config.attn_out_bias = config.qkv_bias;
  spec.n_experts = fields.u32_or("num_local_experts", 16, 2, 1024);
  QSF_RETURN_IF_ERROR(fields.status());
  spec.n_experts_used = fields.u32_or("num_experts_per_tok", 1, 1, spec.n_experts);
  spec.expert_ffn = fields.u32("intermediate_size", 1, 1U << 24);
  QSF_RETURN_IF_ERROR(fields.status());
  spec.shared_ffn = spec.expert_ffn;
  spec.expert_scoring = ExpertScoring::kSigmoid;
  spec.weighs_expert_inputs = true;
  return parse_moe_layers(fields, spec);
}

}  // namespace qsf
