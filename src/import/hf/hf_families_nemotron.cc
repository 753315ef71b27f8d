// SPDX-License-Identifier: MIT
//
// Nemotron-H, with experts and without: every layer scans, attends or is an FFN, and has one norm.

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "import/hf/hf_families.h"

namespace qsf {
namespace {

constexpr std::uint32_t kMostLayers = 4096;
constexpr std::uint32_t kMostNemotronExperts = 1024;  // that check_supported() takes
constexpr std::uint32_t kMostNemotronFfn = 1U << 24;

enum class Sublayer : std::uint8_t { kScan, kAttention, kFfn, kExperts };

std::optional<Sublayer> sublayer_of(char letter) noexcept {
  switch (letter) {
    case 'M': return Sublayer::kScan;
    case '*': return Sublayer::kAttention;
    case '-': return Sublayer::kFfn;
    case 'E': return Sublayer::kExperts;
    default: return std::nullopt;
  }
}

// Two kinds have two names each, of older and newer versions of transformers.
std::optional<Sublayer> sublayer_of(std::string_view name) noexcept {
  if (name == "linear_attention" || name == "mamba") return Sublayer::kScan;
  if (name == "full_attention" || name == "attention") return Sublayer::kAttention;
  if (name == "mlp") return Sublayer::kFfn;
  if (name == "moe") return Sublayer::kExperts;
  return std::nullopt;
}

// Published files have a letter a layer, files of newer versions of transformers a list of names.
Result<std::vector<Sublayer>> parse_sublayers(ConfigFields& fields) {
  const char* list = "layers_block_type";
  const char* letters = "hybrid_override_pattern";
  std::vector<Sublayer> layers;
  const JsonValue* names = fields.find(list);
  if (names == nullptr) {
    const std::string pattern = fields.text(letters, "");
    QSF_RETURN_IF_ERROR(fields.status());
    for (const char letter : pattern) {
      const auto sublayer = sublayer_of(letter);
      if (!sublayer) return unsupported("%s: \"%c\", expected M, *, - or E", letters, letter);
      layers.push_back(*sublayer);
    }
  } else if (!names->is_array()) {
    return corrupt("%s: %s, expected a list of names", list, names->shown().c_str());
  } else {
    for (const JsonValue& name : names->elements()) {
      const auto sublayer = sublayer_of(name.text().value_or(""));
      if (!sublayer) return unsupported("%s: %s is not supported", list, name.shown().c_str());
      layers.push_back(*sublayer);
    }
  }
  if (!layers.empty() && layers.size() <= kMostLayers) return layers;
  return corrupt("%s or %s: %zu layers, expected 1 to %u", letters, list, layers.size(),
                 kMostLayers);
}

// Returns whether any layer has experts.
Result<bool> set_sublayers(const std::vector<Sublayer>& layers, ModelSpec& spec) {
  bool dense = false;
  for (const Sublayer sublayer : layers) {
    LayerMixer mixer = LayerMixer::kNone;
    if (sublayer == Sublayer::kScan) mixer = LayerMixer::kMamba2;
    if (sublayer == Sublayer::kAttention) mixer = LayerMixer::kAttention;
    spec.layer_mixers.push_back(static_cast<std::uint32_t>(mixer));
    spec.ffn_layers.push_back(mixer == LayerMixer::kNone ? 1 : 0);
    spec.expert_layers.push_back(sublayer == Sublayer::kExperts ? 1 : 0);
    dense = dense || sublayer == Sublayer::kFfn;
  }
  const auto has = [&](Sublayer wanted) {
    return std::find(layers.begin(), layers.end(), wanted) != layers.end();
  };
  const bool sparse = has(Sublayer::kExperts);
  if (!sparse || !dense) spec.expert_layers.clear();
  for (const auto& [sublayer, name] :
       {std::pair{Sublayer::kScan, "mamba"}, {Sublayer::kAttention, "attention"}}) {
    if (!has(sublayer)) return unsupported("no layer is %s, which is not supported", name);
  }
  if (!sparse && !dense) return unsupported("no layer is an FFN, which is not supported");
  return sparse;
}

Status parse_nemotron_scans(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.mixer_heads = fields.u32_or("mamba_num_heads", 128, 1, 1024);
  spec.mixer_head_dim = fields.u32_or("mamba_head_dim", 64, 1, 256);
  spec.mixer_state = fields.u32_or("ssm_state_size", 128, 1, 1024);
  spec.conv_taps = fields.u32_or(fields.either("mamba_d_conv", "conv_kernel"), 4, 2, 16);
  config.conv_bias = fields.boolean(fields.either("mamba_conv_bias", "use_conv_bias"), true);
  config.mixer_bias = fields.boolean("use_bias", false);
  const std::string activation = fields.text("mamba_hidden_act", "silu");
  QSF_RETURN_IF_ERROR(fields.status());
  if (activation != "silu") {
    return unsupported("mamba_hidden_act: \"%s\", expected silu", activation.substr(0, 64).c_str());
  }
  spec.mixer_groups =
      fields.u32_or(fields.either("mamba_n_groups", "n_groups"), 8, 1, spec.mixer_heads);
  QSF_RETURN_IF_ERROR(fields.status());
  return refuse_time_step_limits(fields);
}

// One more expert takes every row, with a width of its own.
Status parse_nemotron_experts(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  if (const JsonValue* latent = fields.find("moe_latent_size"); latent != nullptr) {
    return unsupported("moe_latent_size: %s, expected null", latent->shown().c_str());
  }
  spec.n_experts = fields.u32_or("n_routed_experts", 8, 2, kMostNemotronExperts);
  QSF_RETURN_IF_ERROR(fields.status());
  spec.n_experts_used = fields.u32_or("num_experts_per_tok", 2, 1, spec.n_experts);
  spec.expert_ffn = fields.u32_or("moe_intermediate_size", 7688, 1, kMostNemotronFfn);
  spec.shared_ffn = fields.u32_or("moe_shared_expert_intermediate_size", 7688, 1, kMostNemotronFfn);
  fields.u32_or("n_shared_experts", 1, 1, 1);
  spec.expert_scoring = ExpertScoring::kSigmoid;
  spec.expert_scale = fields.positive("routed_scaling_factor", 1.0F);
  spec.expert_groups = fields.u32_or("n_group", 1, 1, spec.n_experts);
  spec.expert_groups_used = fields.u32_or("topk_group", 1, 1, spec.n_experts);
  spec.expert_renormalised = fields.boolean("norm_topk_prob", true);
  if (spec.expert_renormalised) spec.expert_epsilon = 1e-20F;
  if (spec.expert_layers.empty()) spec.ffn = spec.expert_ffn;  // no layer is a dense FFN
  config.router_correction = true;
  QSF_RETURN_IF_ERROR(fields.status());
  if (!config.ffn_bias) return ok_status();
  return unsupported("mlp_bias: true is not supported with experts");
}

}  // namespace

// transformers bounds time steps by time_step_min where it computes many rows at once, and not
// where it computes one; the authors' code does so nowhere.
Status parse_nemotron_h(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  QSF_ASSIGN_OR_RETURN(const std::vector<Sublayer> layers, parse_sublayers(fields));
  const char* width = fields.either("head_dim", "attention_head_dim");
  const std::uint32_t head_dim = fields.u32_or(width, 128, 1, 1U << 16);
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_RETURN_IF_ERROR(parse_decoder(fields,
                                    {.epsilon_key = "layer_norm_epsilon",
                                     .epsilon = 1e-5F,
                                     .gated_ffn = false,
                                     .n_layers = static_cast<std::uint32_t>(layers.size()),
                                     .n_heads = 32,
                                     .max_positions = 4096,
                                     .n_kv_heads = 8,
                                     .head_dim = head_dim},
                                    spec));
  QSF_ASSIGN_OR_RETURN(const bool sparse, set_sublayers(layers, spec));
  spec.architecture = "nemotron_h";
  if (sparse) spec.architecture = "nemotron_h_moe";
  spec.layer_rope.assign(spec.n_layers, static_cast<std::uint32_t>(LayerRope::kNone));
  QSF_RETURN_IF_ERROR(parse_plain_activation(fields, "mlp_hidden_act", "relu2", spec));
  QSF_RETURN_IF_ERROR(refuse(fields, "attention_bias", true));  // which transformers ignores
  config.ffn_bias = fields.boolean("mlp_bias", false);
  QSF_RETURN_IF_ERROR(parse_nemotron_scans(fields, config));
  if (fields.find("sliding_window") != nullptr) {
    return unsupported("sliding_window: %s, expected null",
                       fields.find("sliding_window")->shown().c_str());
  }
  return sparse ? parse_nemotron_experts(fields, config) : ok_status();
}

}  // namespace qsf
