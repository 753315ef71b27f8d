// SPDX-License-Identifier: MIT
//
// The families of models in Hugging Face folders: how each one's config.json becomes a ModelSpec.
//
// One function a family, in hf_family_*.cc, and what several of them share. The sizes of a model
// have to be there, and a special token that is absent is none; any other key that is absent has
// the default of the family's configuration class in transformers 5.23. Older spellings of
// published files are read as well. What this version does not run is refused by name.

#ifndef QSF_IMPORT_HF_HF_FAMILIES_H_
#define QSF_IMPORT_HF_HF_FAMILIES_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "import/config_fields.h"
#include "import/hf/hf_config.h"

namespace qsf {

// Each fills in all of the spec but the vocabulary, the special tokens and the source.
Status parse_gpt2(ConfigFields& fields, HfConfig& config);
Status parse_opt(ConfigFields& fields, HfConfig& config);
Status parse_bloom(ConfigFields& fields, HfConfig& config);
Status parse_llama(ConfigFields& fields, HfConfig& config);
Status parse_mistral(ConfigFields& fields, HfConfig& config);
Status parse_qwen2(ConfigFields& fields, HfConfig& config);
Status parse_qwen3(ConfigFields& fields, HfConfig& config);
Status parse_phi2(ConfigFields& fields, HfConfig& config);
Status parse_phi3(ConfigFields& fields, HfConfig& config);
Status parse_stablelm(ConfigFields& fields, HfConfig& config);
Status parse_gemma(ConfigFields& fields, HfConfig& config);
Status parse_gemma2(ConfigFields& fields, HfConfig& config);
Status parse_bitnet(ConfigFields& fields, HfConfig& config);
Status parse_bitnet_1bit(ConfigFields& fields, HfConfig& config);

// quantization_config: how ternary weights are stored. Every other method is refused.
Status parse_quantisation(const nlohmann::json& object, HfConfig& config);

// What differs between the families that spell their sizes as LLaMA does.
struct DecoderDefaults {
  NormType norm = NormType::kRmsNorm;
  const char* epsilon_key = "rms_norm_eps";
  float epsilon = 1e-6F;
  bool tied_head = false;
  bool gated_ffn = true;
  std::uint32_t n_kv_heads = 0;  // 0: as many as heads
  std::uint32_t head_dim = 0;    // 0: hidden / heads
  // Share of a head that rotates; without a value the whole head does and the key must not differ.
  std::optional<double> partial_rotary = std::nullopt;
  std::uint32_t rope_original_context = 0;  // of longrope; 0: max_position_embeddings
  float rope_theta = 10000.0F;
};

// Reads sizes, norm, head tying and RoPE: all but activation, biases and windows.
Status parse_decoder(ConfigFields& fields, const DecoderDefaults& defaults, ModelSpec& spec);

// The activation that `key` names; `name` is its value.
Result<Activation> parse_activation(const char* key, const std::string& name);
// The activation under `key`, one of those without a gate.
Status parse_plain_activation(ConfigFields& fields, const char* key, std::string_view fallback,
                              ModelSpec& spec);
// Requires silu under hidden_act.
Status parse_silu(ConfigFields& fields, ModelSpec& spec);

// Windows by layer where the file says so (layer_types), else the same for every layer.
Status set_windows(const ConfigFields& fields, std::uint32_t window, ModelSpec& spec);

// Fails when `key` is there and has the refused value.
Status refuse(ConfigFields& fields, const char* key, bool refused_value);

// Sets the width of a head from the hidden size, which must be a multiple of the heads.
Status divide_heads(const char* hidden_key, const char* heads_key, ModelSpec& spec);

// rope_theta, rope_scaling of older files or rope_parameters of newer ones, and the rotating share
// of a head, which is known by now.
Status parse_rope(ConfigFields& fields, const DecoderDefaults& defaults, ModelSpec& spec);

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_FAMILIES_H_
