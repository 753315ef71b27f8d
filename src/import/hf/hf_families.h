// SPDX-License-Identifier: MIT
//
// Model families of Hugging Face folders: one function a family reads config.json into a ModelSpec
// (hf_families.cc); hf_decoder_config.cc has the parts that families share.
//
// The sizes of a model are required. An absent special token is none. Any other absent key has the
// default of the family's configuration class in transformers 5.23. Older spellings of published
// files are accepted. Unsupported features are rejected by name.

#ifndef QSF_IMPORT_HF_HF_FAMILIES_H_
#define QSF_IMPORT_HF_HF_FAMILIES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "import/hf/config_fields.h"
#include "import/hf/hf_config.h"

namespace qsf {

// Each sets all of the spec except the vocabulary, the special tokens and the source.
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

// Reads quantization_config, which says how ternary weights are stored. Other methods are
// rejected.
Status parse_quantisation(const JsonValue& object, HfConfig& config);

// Differences between the families that name their sizes as LLaMA does.
struct DecoderDefaults {
  NormType norm = NormType::kRmsNorm;
  const char* epsilon_key = "rms_norm_eps";
  float epsilon = 1e-6F;
  bool tied_head = false;
  bool gated_ffn = true;
  std::uint32_t n_kv_heads = 0;  // 0: as many as heads
  std::uint32_t head_dim = 0;    // 0: hidden / heads
  // Default of partial_rotary_factor; without one the whole head rotates and the key must be 1.
  std::optional<double> partial_rotary = std::nullopt;
  std::uint32_t rope_original_context = 0;  // of longrope; 0: max_position_embeddings
  float rope_theta = 10000.0F;
};

// Reads sizes, norm, head tying and RoPE, but not activation, biases and windows.
Status parse_decoder(ConfigFields& fields, const DecoderDefaults& defaults, ModelSpec& spec);

// Returns the activation called `name`, the value of `key`.
Result<Activation> parse_activation(const char* key, const std::string& name);
// Reads an activation without a gate under `key`.
Status parse_plain_activation(ConfigFields& fields, const char* key, std::string_view fallback,
                              ModelSpec& spec);
// Fails unless hidden_act is silu.
Status parse_silu(ConfigFields& fields, ModelSpec& spec);

// Sets the sliding window of each layer from layer_types, or of all layers when it is absent.
Status set_windows(const ConfigFields& fields, std::uint32_t window, ModelSpec& spec);

// Fails when `key` is present with the refused value.
Status refuse(ConfigFields& fields, const char* key, bool refused_value);

// Sets head_dim to the hidden size divided by the number of heads, which must divide it.
Status divide_heads(const char* hidden_key, const char* heads_key, ModelSpec& spec);

// Reads rope_theta, rope_scaling (older files) or rope_parameters (newer files), and
// partial_rotary_factor.
// Requires  spec.head_dim is set
Status parse_rope(ConfigFields& fields, const DecoderDefaults& defaults, ModelSpec& spec);

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_FAMILIES_H_
