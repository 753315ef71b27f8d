// SPDX-License-Identifier: MIT
//
// Model families of Hugging Face folders: one function a family reads config.json into a ModelSpec.
//
//   hf_families.cc            LLaMA and what differs from it in numbers and biases
//   hf_families_gpt.cc        GPT-2 and its kin: LayerNorm with a bias, an FFN without a gate
//   hf_families_gemma.cc      Gemma
//   hf_families_gemma3n.cc    Gemma 3n
//   hf_families_gemma4.cc     Gemma 4
//   hf_families_parallel.cc   attention and FFN side by side: Phi, StableLM, Command-R
//   hf_families_post_norm.cc  norms behind sublayers: OLMo, EXAONE, GLM
//   hf_families_experts.cc    mixtures of experts
//   hf_families_encoders.cc   encoders: ModernBERT, nomic-bert
//   hf_families_granite.cc    Granite
//   hf_families_llama4.cc     Llama 4
//   hf_families_latent.cc     latent attention: DeepSeek, GLM-4.7-Flash
//   hf_families_state.cc      layers with a state: LFM2
//   hf_families_qwen35.cc     layers with a state: Qwen 3.5, Qwen3-Next
//   hf_families_bitnet.cc     BitNet and quantization_config
//   hf_decoder_config.cc      the parts that families share
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
#include <vector>

#include "base/result.h"
#include "import/hf/config_fields.h"
#include "import/hf/hf_config.h"

namespace qsf {

// Each sets all of the spec except the vocabulary, the special tokens and the source.
Status parse_llama(ConfigFields& fields, HfConfig& config);
Status parse_mistral(ConfigFields& fields, HfConfig& config);
Status parse_ministral3(ConfigFields& fields, HfConfig& config);
// The text model of a Mistral 3: either of the two above.
Status parse_mistral3(ConfigFields& fields, HfConfig& config);
Status parse_qwen2(ConfigFields& fields, HfConfig& config);
Status parse_qwen3(ConfigFields& fields, HfConfig& config);
Status parse_phi3(ConfigFields& fields, HfConfig& config);
Status parse_smollm3(ConfigFields& fields, HfConfig& config);
Status parse_llama4(ConfigFields& fields, HfConfig& config);
Status parse_granite(ConfigFields& fields, HfConfig& config);
Status parse_granite4(ConfigFields& fields, HfConfig& config);
Status parse_internlm2(ConfigFields& fields, HfConfig& config);
Status parse_gpt2(ConfigFields& fields, HfConfig& config);
Status parse_opt(ConfigFields& fields, HfConfig& config);
Status parse_bloom(ConfigFields& fields, HfConfig& config);
Status parse_falcon(ConfigFields& fields, HfConfig& config);
Status parse_gptneox(ConfigFields& fields, HfConfig& config);
Status parse_starcoder2(ConfigFields& fields, HfConfig& config);
Status parse_mpt(ConfigFields& fields, HfConfig& config);
Status parse_gemma(ConfigFields& fields, HfConfig& config);
Status parse_gemma2(ConfigFields& fields, HfConfig& config);
Status parse_gemma3(ConfigFields& fields, HfConfig& config);
Status parse_gemma3n(ConfigFields& fields, HfConfig& config);
Status parse_gemma4(ConfigFields& fields, HfConfig& config);
Status parse_phi2(ConfigFields& fields, HfConfig& config);
Status parse_stablelm(ConfigFields& fields, HfConfig& config);
Status parse_cohere(ConfigFields& fields, HfConfig& config);
Status parse_cohere2(ConfigFields& fields, HfConfig& config);
Status parse_olmo2(ConfigFields& fields, HfConfig& config);
Status parse_olmo3(ConfigFields& fields, HfConfig& config);
Status parse_exaone4(ConfigFields& fields, HfConfig& config);
Status parse_glm4(ConfigFields& fields, HfConfig& config);
Status parse_mixtral(ConfigFields& fields, HfConfig& config);
Status parse_qwen2moe(ConfigFields& fields, HfConfig& config);
Status parse_qwen3moe(ConfigFields& fields, HfConfig& config);
Status parse_glm4moe(ConfigFields& fields, HfConfig& config);
Status parse_granitemoeshared(ConfigFields& fields, HfConfig& config);
Status parse_phimoe(ConfigFields& fields, HfConfig& config);
Status parse_olmoe(ConfigFields& fields, HfConfig& config);
Status parse_granitemoe(ConfigFields& fields, HfConfig& config);
Status parse_gpt_oss(ConfigFields& fields, HfConfig& config);
Status parse_deepseek_v2(ConfigFields& fields, HfConfig& config);
Status parse_deepseek_v3(ConfigFields& fields, HfConfig& config);
Status parse_glm4moe_lite(ConfigFields& fields, HfConfig& config);
Status parse_lfm2(ConfigFields& fields, HfConfig& config);
Status parse_lfm2moe(ConfigFields& fields, HfConfig& config);
Status parse_lfm2_vl(ConfigFields& fields, HfConfig& config);
Status parse_falcon_h1(ConfigFields& fields, HfConfig& config);
Status parse_nemotron_h(ConfigFields& fields, HfConfig& config);
Status parse_qwen35(ConfigFields& fields, HfConfig& config);
Status parse_qwen35moe(ConfigFields& fields, HfConfig& config);
Status parse_qwen3next(ConfigFields& fields, HfConfig& config);
// A Gemma 3 without a head, whose rows may attend to both sides.
Status parse_gemma3_encoder(ConfigFields& fields, HfConfig& config);
Status parse_modernbert(ConfigFields& fields, HfConfig& config);
Status parse_nomic_bert(ConfigFields& fields, HfConfig& config);
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
  std::uint32_t n_layers = 0;       // 0: the key is required; else it may say this number alone
  std::uint32_t n_heads = 0;        // 0: the key is required
  std::uint32_t max_positions = 0;  // the same
  std::uint32_t n_kv_heads = 0;     // 0: as many as heads
  std::uint32_t head_dim = 0;       // 0: hidden / heads
  // Default of partial_rotary_factor; without one the whole head rotates and the key must be 1.
  std::optional<double> partial_rotary = std::nullopt;
  const char* partial_rotary_key = "partial_rotary_factor";
  const char* ffn_key = "intermediate_size";
  bool ffn_by_layer = false;                // that may be a list, of one number a layer
  std::uint32_t rope_original_context = 0;  // of longrope; 0: max_position_embeddings
  bool yarn_is_longrope = false;            // an older name of it in files of the family
  const char* rope_theta_key = "rope_theta";
  float rope_theta = 10000.0F;
  // rope_parameters may have one object for each of full_attention and sliding_attention. The first
  // is what parse_rope reads, the second what parse_local_rope reads.
  bool rope_by_layer = false;
};

// Reads sizes, norm and head tying.
Status parse_decoder_sizes(ConfigFields& fields, const DecoderDefaults& defaults, ModelSpec& spec);

// Reads these and RoPE, but not activation, biases and windows.
Status parse_decoder(ConfigFields& fields, const DecoderDefaults& defaults, ModelSpec& spec);

// Returns the activation called `name`, the value of `key`.
Result<Activation> parse_activation(const char* key, const std::string& name);
// Reads an activation without a gate under `key`.
Status parse_plain_activation(ConfigFields& fields, const char* key, std::string_view fallback,
                              ModelSpec& spec);
// Fails unless hidden_act is silu.
Status parse_silu(ConfigFields& fields, ModelSpec& spec);

// Reads the four multipliers and the biases of a Granite.
Status parse_granite_scales(ConfigFields& fields, HfConfig& config);

// Fails where time_step_limit bounds the time steps of scans.
Status refuse_time_step_limits(const ConfigFields& fields);

// Sets the mixer of each layer by layer_types: full_attention, or `state_name`.
Status set_mixers(const JsonValue& types, std::string_view state_name, LayerMixer state,
                  ModelSpec& spec);

struct ExpertDefaults {
  const char* count_key = "num_experts";
  std::uint32_t count = 0;
  std::uint32_t used = 0;
  const char* ffn_key = "intermediate_size";
  std::uint32_t ffn = 0;  // 0: the key is required
};
Status parse_experts(ConfigFields& fields, const ExpertDefaults& defaults, ModelSpec& spec);
// Reads which layers of a Qwen have experts: every `decoder_sparse_step`-th, but for those that
// mlp_only_layers lists.
Status parse_sparse_layers(ConfigFields& fields, ModelSpec& spec);

// Sets the sliding window of each layer from layer_types, or of all layers when it is absent.
Status set_windows(const ConfigFields& fields, std::uint32_t window, ModelSpec& spec);

// Returns which layers see a window: by layer_types or, where it is absent, all but every
// `global_every`-th; none for 0.
Result<std::vector<bool>> local_layers(const ConfigFields& fields, std::uint32_t n_layers,
                                       std::uint32_t global_every);
// Sets the sliding window of those layers.
void set_local_windows(const std::vector<bool>& local, std::uint32_t window, ModelSpec& spec);

// Reads no_rope_layers, of which an empty list is none, or else no_rope_layer_interval.
Status parse_no_rope_layers(ConfigFields& fields, ModelSpec& spec);

// Reads clip_qkv, where null means none.
Status parse_qkv_clip(ConfigFields& fields, ModelSpec& spec);

// Fails when `key` is present with the refused value.
Status refuse(ConfigFields& fields, const char* key, bool refused_value);

// Sets head_dim to the hidden size divided by the number of heads, which must divide it.
Status divide_heads(const char* hidden_key, const char* heads_key, ModelSpec& spec);

// Reads rope_theta, rope_scaling (older files) or rope_parameters (newer files), and
// partial_rotary_factor.
// Requires  spec.head_dim and max_positions are set
Status parse_rope(ConfigFields& fields, const DecoderDefaults& defaults, ModelSpec& spec);
// Returns the object of rope_scaling or rope_parameters that a file's RoPE follows, null for none.
const JsonValue* rope_object(const ConfigFields& fields);

// Sets the rope of `local` layers where it differs from that of the others: unscaled, its base from
// sliding_attention of rope_parameters, otherwise `theta`.
// Requires  parse_rope has set the rope of the others
Status parse_local_rope(ConfigFields& fields, const std::vector<bool>& local, float theta,
                        ModelSpec& spec);

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_FAMILIES_H_
