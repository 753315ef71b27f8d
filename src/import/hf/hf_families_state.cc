// SPDX-License-Identifier: MIT
//
// Models of which some layers have a state in place of attention.

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "import/hf/hf_families.h"

namespace qsf {
namespace {

constexpr std::uint32_t kMostFfn = 1U << 24;
constexpr std::uint32_t kMostExperts = 1024;  // that check_supported() takes

// LFM2. Older files list the layers that attend; without that all do.
Status set_lfm2_mixers(const ConfigFields& fields, ModelSpec& spec) {
  if (const JsonValue* types = fields.find("layer_types"); types != nullptr) {
    return set_mixers(*types, "conv", LayerMixer::kShortConv, spec);
  }
  const JsonValue* attending = fields.find("full_attn_idxs");
  if (attending == nullptr) return ok_status();
  if (!attending->is_array()) {
    return corrupt("full_attn_idxs: %s, expected a list of layers", attending->shown().c_str());
  }
  spec.layer_mixers.assign(spec.n_layers, static_cast<std::uint32_t>(LayerMixer::kShortConv));
  for (const JsonValue& index : attending->elements()) {
    const auto layer = index.unsigned_integer();
    if (!layer || *layer >= spec.n_layers) {
      return corrupt("full_attn_idxs: %s, expected a layer below %u", index.shown().c_str(),
                     spec.n_layers);
    }
    spec.layer_mixers[*layer] = static_cast<std::uint32_t>(LayerMixer::kAttention);
  }
  return ok_status();
}

// The width in the file is that before a gate, and is rounded.
Status set_lfm2_ffn(ConfigFields& fields, ModelSpec& spec) {
  const double factor =
      fields.is_null("block_ffn_dim_multiplier")
          ? 0.0
          : static_cast<double>(fields.positive("block_ffn_dim_multiplier", 1.0F));
  const std::uint32_t multiple = fields.u32_or("block_multiple_of", 256, 1, kMostFfn);
  const bool adjusts = fields.boolean("block_auto_adjust_ff_dim", true);
  QSF_RETURN_IF_ERROR(fields.status());
  if (!adjusts) return ok_status();
  double width = static_cast<double>(2 * std::uint64_t{spec.ffn} / 3);
  if (factor != 0.0) {
    const auto scaled = static_cast<std::uint64_t>(std::min(factor * width, 2.0 * kMostFfn));
    width = static_cast<double>((scaled + multiple - 1) / multiple * multiple);
  }
  if (width < 1.0 || width > kMostFfn) {
    return corrupt("block_ff_dim: the FFN would have %.0f rows, expected 1 to %u", width, kMostFfn);
  }
  spec.ffn = static_cast<std::uint32_t>(width);
  return ok_status();
}

}  // namespace

// The limits of time steps hold in one of the two forms of the computation alone.
Status refuse_time_step_limits(const ConfigFields& fields) {
  const char* key = "time_step_limit";
  const JsonValue* limits = fields.find(key);
  if (limits == nullptr) return ok_status();
  if (limits->is_array() && limits->size() == 2 && limits->elements()[0].number() == 0.0 &&
      (limits->elements()[1].text() == "Infinity" ||
       limits->elements()[1].text("__float__") == "Infinity")) {
    return ok_status();
  }
  return unsupported("%s: %s, expected 0 and infinity", key, limits->shown().c_str());
}

Status set_mixers(const JsonValue& types, std::string_view state_name, LayerMixer state,
                  ModelSpec& spec) {
  if (!types.is_array() || types.size() != spec.n_layers) {
    return corrupt("layer_types: expected a list of %u, one a layer", spec.n_layers);
  }
  for (const JsonValue& type : types.elements()) {
    if (type.text() != "full_attention" && type.text() != state_name) {
      return unsupported("layer_types: %s is not supported", type.shown().c_str());
    }
    const LayerMixer mixer = type.text() == state_name ? state : LayerMixer::kAttention;
    spec.layer_mixers.push_back(static_cast<std::uint32_t>(mixer));
  }
  return ok_status();
}

namespace {

// What both have: `ffn_key` is that of dense layers.
Status parse_lfm2_decoder(ConfigFields& fields, const char* ffn_key, HfConfig& config) {
  ModelSpec& spec = config.spec;
  QSF_RETURN_IF_ERROR(parse_decoder(fields,
                                    {.epsilon_key = "norm_eps",
                                     .epsilon = 1e-5F,
                                     .tied_head = true,
                                     .n_kv_heads = 8,
                                     .ffn_key = ffn_key,
                                     .rope_theta = 1000000.0F},
                                    spec));
  spec.tied_head = fields.boolean("tie_embedding", spec.tied_head);
  spec.activation = Activation::kSilu;
  config.mixer_bias = config.conv_bias = fields.boolean("conv_bias", false);
  const std::uint32_t n_taps = fields.u32_or("conv_L_cache", 3, 2, 16);
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_RETURN_IF_ERROR(set_lfm2_mixers(fields, spec));
  if (!spec.has_state()) {
    spec.layer_mixers.clear();
    return ok_status();
  }
  spec.conv_taps = n_taps;
  if (spec.n_attention_layers() != 0) return ok_status();
  return unsupported("layer_types: no layer is full_attention, which is not supported");
}

}  // namespace

Status parse_lfm2(ConfigFields& fields, HfConfig& config) {
  config.spec.architecture = "lfm2";
  const char* ffn_key = fields.either("block_ff_dim", "intermediate_size");
  QSF_RETURN_IF_ERROR(parse_lfm2_decoder(fields, ffn_key, config));
  return set_lfm2_ffn(fields, config.spec);
}

// The first layers have an FFN, the others experts in its place.
Status parse_lfm2moe(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "lfm2moe";
  if (fields.find("layer_types") == nullptr) return corrupt("layer_types: missing");
  QSF_RETURN_IF_ERROR(parse_lfm2_decoder(fields, "intermediate_size", config));
  spec.n_experts = fields.u32_or("num_experts", 32, 2, kMostExperts);
  spec.expert_ffn = fields.u32_or("moe_intermediate_size", 1792, 1, kMostFfn);
  QSF_RETURN_IF_ERROR(fields.status());
  spec.n_experts_used = fields.u32_or("num_experts_per_tok", 4, 1, spec.n_experts);
  const std::uint32_t n_dense = fields.u32_or("num_dense_layers", 2, 0, spec.n_layers - 1);
  spec.expert_scale = fields.positive("routed_scaling_factor", 1.0F);
  spec.expert_renormalised = fields.boolean("norm_topk_prob", true);
  config.router_correction = fields.boolean("use_expert_bias", true);
  QSF_RETURN_IF_ERROR(fields.status());
  if (spec.n_experts_used > spec.n_experts || n_dense >= spec.n_layers) {
    return corrupt("num_experts_per_tok, num_dense_layers: the defaults, %u and %u, are too large",
                   spec.n_experts_used, n_dense);
  }
  spec.expert_scoring = ExpertScoring::kSigmoid;
  if (spec.expert_renormalised) spec.expert_epsilon = 1e-6F;
  if (n_dense == 0) return ok_status();
  spec.expert_layers.assign(spec.n_layers, 1);
  std::fill_n(spec.expert_layers.begin(), n_dense, 0);
  return ok_status();
}

// The text model of a vision model.
Status parse_lfm2_vl(ConfigFields& fields, HfConfig& config) {
  const std::string type = fields.text("model_type", "lfm2");
  QSF_RETURN_IF_ERROR(fields.status());
  if (type == "lfm2") return parse_lfm2(fields, config);
  if (type == "lfm2_moe") return parse_lfm2moe(fields, config);
  return unsupported("model_type: \"%s\" is not supported; expected lfm2 or lfm2_moe",
                     type.substr(0, 64).c_str());
}

}  // namespace qsf
