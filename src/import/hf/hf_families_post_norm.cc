// SPDX-License-Identifier: MIT

#include <string_view>

#include "import/hf/hf_families.h"

namespace qsf {

// OLMo 2 and 3: norms behind the sublayers alone, norms of all queries and of all keys. In OLMo 3
// most layers see a window, and the others scale RoPE.

namespace {

Status parse_olmo(ConfigFields& fields, const DecoderDefaults& defaults, HfConfig& config) {
  config.spec.architecture = "olmo2";
  QSF_RETURN_IF_ERROR(parse_decoder(fields, defaults, config.spec));
  config.qkv_bias = fields.boolean("attention_bias", false);
  config.attn_out_bias = config.qkv_bias;
  return parse_silu(fields, config.spec);
}

}  // namespace

Status parse_olmo2(ConfigFields& fields, HfConfig& config) {
  return parse_olmo(fields, {.epsilon = 1e-5F}, config);
}

Status parse_olmo3(ConfigFields& fields, HfConfig& config) {
  constexpr float kOlmo3Theta = 500000.0F;
  ModelSpec& spec = config.spec;
  QSF_RETURN_IF_ERROR(parse_olmo(
      fields, {.epsilon = 1e-5F, .rope_theta = kOlmo3Theta, .rope_by_layer = true}, config));
  const std::uint32_t window = fields.u32_or("sliding_window", 4096, 1, 1U << 30);
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_ASSIGN_OR_RETURN(const std::vector<bool> local, local_layers(fields, spec.n_layers, 4));
  if (!fields.is_null("sliding_window")) set_local_windows(local, window, spec);
  // The rope_theta of older files is that of the layers that see all.
  return parse_local_rope(fields, local, kOlmo3Theta, spec);
}

// EXAONE 4: norms behind the sublayers alone, norms of the heads of queries and keys. Where some
// layers see a window, the others do not rotate.

namespace {

// A number n: every n-th layer sees all. A text of L and G, local and global, repeats; the last
// layer sees all.
Result<std::vector<bool>> exaone4_local_layers(ConfigFields& fields, const ModelSpec& spec) {
  const char* key = "sliding_window_pattern";
  const JsonValue* pattern = fields.find(key);
  if (fields.find("layer_types") != nullptr) return local_layers(fields, spec.n_layers, 0);
  if (pattern == nullptr || !pattern->text()) {
    const std::uint32_t every = fields.u32_or(key, fields.is_null(key) ? 0 : 4, 1, 4096);
    QSF_RETURN_IF_ERROR(fields.status());
    return local_layers(fields, spec.n_layers, every);
  }
  const std::string_view letters = *pattern->text();
  if (letters.empty() || letters.find_first_not_of("LG") != std::string_view::npos) {
    return corrupt("%s: %s, expected letters L and G", key, pattern->shown().c_str());
  }
  std::vector<bool> local(spec.n_layers);
  for (std::uint32_t layer = 0; layer + 1 < spec.n_layers; ++layer) {
    local[layer] = letters[layer % letters.size()] == 'L';
  }
  return local;
}

}  // namespace

Status parse_exaone4(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "exaone4";
  QSF_RETURN_IF_ERROR(parse_decoder(fields, {.epsilon = 1e-5F, .n_kv_heads = 32}, spec));
  QSF_RETURN_IF_ERROR(parse_silu(fields, spec));
  if (fields.is_null("sliding_window")) return ok_status();
  const std::uint32_t window = fields.u32_or("sliding_window", 4096, 1, 1U << 30);
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_ASSIGN_OR_RETURN(const std::vector<bool> local, exaone4_local_layers(fields, spec));
  set_local_windows(local, window, spec);
  for (const bool rotates : local) {
    spec.layer_rope.push_back(
        static_cast<std::uint32_t>(rotates ? LayerRope::kMain : LayerRope::kNone));
  }
  return ok_status();
}

// GLM-4 of April 2025: norms before and behind the sublayers, RoPE of neighbours on half of each
// head.
Status parse_glm4(ConfigFields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "glm4";
  QSF_RETURN_IF_ERROR(parse_decoder(
      fields, {.epsilon = 1.5625e-7F, .n_kv_heads = 2, .head_dim = 128, .partial_rotary = 0.5},
      spec));
  config.qkv_bias = fields.boolean("attention_bias", true);
  return parse_silu(fields, spec);
}

}  // namespace qsf
