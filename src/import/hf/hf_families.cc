// SPDX-License-Identifier: MIT

#include "import/hf/hf_families.h"

#include <nlohmann/json.hpp>

namespace qsf {
namespace {

// Without the key a family's class has a number of its own; null means as many as heads.
Status parse_kv_heads(ConfigFields& fields, std::uint32_t class_default, ModelSpec& spec) {
  const char* key = "num_key_value_heads";
  if (class_default == 0 || fields.has(key)) {
    spec.n_kv_heads = fields.u32_or(key, spec.n_heads, 1, spec.n_heads);
    return fields.status();
  }
  spec.n_kv_heads = class_default;
  if (spec.n_heads % class_default == 0) return ok_status();
  return corrupt("%s: missing, and the default of a %s, %u, does not divide the %u heads", key,
                 spec.architecture.c_str(), class_default, spec.n_heads);
}

}  // namespace

Result<Activation> parse_activation(const char* key, const std::string& name) {
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") {
    return Activation::kGeluTanh;
  }
  if (name == "gelu") return Activation::kGeluErf;
  if (name == "relu") return Activation::kRelu;
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "relu2") return Activation::kReluSquared;
  return unsupported("%s: \"%s\" is not known to this version", key, name.substr(0, 64).c_str());
}

Status parse_plain_activation(ConfigFields& fields, const char* key, std::string_view fallback,
                              ModelSpec& spec) {
  const std::string name = fields.text(key, fallback);
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_ASSIGN_OR_RETURN(spec.activation, parse_activation(key, name));
  if (spec.activation != Activation::kSilu) return ok_status();
  return unsupported("%s: \"%s\", expected gelu_new, gelu, gelu_pytorch_tanh or relu", key,
                     name.c_str());
}

Status parse_silu(ConfigFields& fields, ModelSpec& spec) {
  const std::string name = fields.text("hidden_act", "silu");
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_ASSIGN_OR_RETURN(spec.activation, parse_activation("hidden_act", name));
  if (spec.activation == Activation::kSilu) return ok_status();
  return unsupported("hidden_act: \"%s\", expected silu", name.c_str());
}

Status set_windows(const ConfigFields& fields, std::uint32_t window, ModelSpec& spec) {
  const nlohmann::json* types = fields.find("layer_types");
  if (types == nullptr) {
    spec.sliding_window = {window};
    return ok_status();
  }
  if (!types->is_array() || types->size() != spec.n_layers) {
    return corrupt("layer_types: expected a list of %u, one a layer", spec.n_layers);
  }
  for (const nlohmann::json& type : *types) {
    if (type == "full_attention") {
      spec.sliding_window.push_back(0);
    } else if (type == "sliding_attention") {
      spec.sliding_window.push_back(window);
    } else {
      return unsupported("layer_types: %s is not known to this version",
                         ConfigFields::shown(type).c_str());
    }
  }
  return ok_status();
}

Status refuse(ConfigFields& fields, const char* key, bool refused_value) {
  if (fields.boolean(key, !refused_value) != refused_value) return fields.status();
  return unsupported("%s: %s is not known to this version", key, refused_value ? "true" : "false");
}

Status divide_heads(const char* hidden_key, const char* heads_key, ModelSpec& spec) {
  if (spec.hidden % spec.n_heads != 0) {
    return corrupt("%s: %u is not a multiple of %s, %u, and there is no head_dim", hidden_key,
                   spec.hidden, heads_key, spec.n_heads);
  }
  spec.head_dim = spec.hidden / spec.n_heads;
  return ok_status();
}

Status parse_decoder(ConfigFields& fields, const DecoderDefaults& defaults, ModelSpec& spec) {
  spec.hidden = fields.u32("hidden_size", 1, 1U << 20);
  spec.n_layers = fields.u32("num_hidden_layers", 1, 4096);
  spec.n_heads = fields.u32("num_attention_heads", 1, 1U << 16);
  spec.max_positions = fields.u32("max_position_embeddings", 1, 1U << 24);
  spec.ffn = fields.u32("intermediate_size", 1, 1U << 24);
  spec.norm = defaults.norm;
  spec.norm_epsilon = fields.positive(defaults.epsilon_key, defaults.epsilon);
  spec.positions = PositionEncoding::kRope;
  spec.gated_ffn = defaults.gated_ffn;
  spec.tied_head = fields.boolean("tie_word_embeddings", defaults.tied_head);
  spec.head_dim = fields.u32_or("head_dim", defaults.head_dim, 1, 1U << 16);
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_RETURN_IF_ERROR(parse_kv_heads(fields, defaults.n_kv_heads, spec));
  if (spec.head_dim == 0) {
    QSF_RETURN_IF_ERROR(divide_heads("hidden_size", "num_attention_heads", spec));
  }
  return parse_rope(fields, defaults, spec);
}

}  // namespace qsf
