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
  bool pre_norms = true;           // of what attention and FFN take
  bool first_norm = true;          // of what the first layer's attention takes
  bool norm_biases = true;         // of norms, where they are LayerNorm
  bool ffn_norm = false;           // of a parallel block's FFN, which else takes attention's norm
  bool head_norms = false;         // of every head of queries and keys
  bool some_head_norms = false;    // the same, in files that have them
  bool row_norms = false;          // of all queries and of all keys together
  bool own_head_gains = false;     // norms of heads, where a file has them, with gains of each head
  bool sub_norms = false;          // of what the attention output and the down projection take
  bool post_norms = false;         // of what attention and FFN give to the residual stream
  bool embedding_norm = false;     // of the embedded tokens
  bool head_bias = false;          // of the output head
  bool some_head_bias = false;     // the same, in files that have it
  bool experts = false;            // instead of the FFN
  bool router_correction = false;  // of the scores by which experts are chosen
  bool shared_weight = false;      // of the expert that takes every row, by the row
  bool expert_biases = false;      // of the experts' matrices and the router
  bool sinks = false;              // a score of every head without a value
  bool latent = false;             // latent attention
  bool attention_gate = false;     // of what attention gives to its output matrix
  bool layer_scale = false;        // of the residual stream behind each layer
  bool layer_input = false;        // inputs of each layer, in models that have them
  bool streams = false;            // several residual streams
  bool beside_ffn = false;         // the experts stand beside an FFN, each with norms
  LayerMixer state = LayerMixer::kAttention;  // of some layers, beside attention or instead
  bool single_sublayers = false;              // a layer is that, or attention, or an FFN
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
    {.name = "gemma3", .head_norms = true, .post_norms = true},
    {.name = "gemma3n",
     .head_norms = true,
     .post_norms = true,
     .layer_input = true,
     .streams = true},
    {.name = "gemma4",
     .head_norms = true,
     .post_norms = true,
     .layer_scale = true,
     .layer_input = true},
    {.name = "gemma4moe",
     .head_norms = true,
     .post_norms = true,
     .experts = true,
     .layer_scale = true,
     .beside_ffn = true},
    {.name = "stablelm"},
    {.name = "smollm3"},
    {.name = "mixtral", .experts = true},
    {.name = "qwen3moe", .head_norms = true, .experts = true},
    {.name = "qwen2moe", .experts = true, .shared_weight = true},
    {.name = "phimoe", .some_head_bias = true, .experts = true},
    {.name = "glm4moe", .some_head_norms = true, .experts = true, .router_correction = true},
    {.name = "olmoe", .row_norms = true, .experts = true},
    {.name = "granitemoe", .experts = true},
    {.name = "gpt-oss", .experts = true, .expert_biases = true, .sinks = true},
    {.name = "olmo2", .pre_norms = false, .row_norms = true, .post_norms = true},
    {.name = "granite"},
    {.name = "mistral3"},
    {.name = "glm4", .post_norms = true},
    {.name = "exaone4", .pre_norms = false, .head_norms = true, .post_norms = true},
    {.name = "command-r", .norm_biases = false, .own_head_gains = true},
    {.name = "cohere2", .norm_biases = false},
    {.name = "falcon"},
    {.name = "falcon-two-norms", .ffn_norm = true},
    {.name = "gptneox", .ffn_norm = true},
    {.name = "starcoder2"},
    {.name = "internlm2"},
    {.name = "mpt", .norm_biases = false},
    {.name = "modernbert", .first_norm = false, .norm_biases = false, .embedding_norm = true},
    {.name = "nomic-bert", .first_norm = false, .embedding_norm = true},
    {.name = "granitehybrid", .state = LayerMixer::kMamba2},
    {.name = "granitemoehybrid", .experts = true, .state = LayerMixer::kMamba2},
    {.name = "nemotron_h", .state = LayerMixer::kMamba2, .single_sublayers = true},
    {.name = "nemotron_h_moe",
     .experts = true,
     .router_correction = true,
     .state = LayerMixer::kMamba2,
     .single_sublayers = true},
    {.name = "falcon-h1", .state = LayerMixer::kMamba2AndAttention},
    {.name = "lfm2", .head_norms = true, .state = LayerMixer::kShortConv},
    {.name = "lfm2moe", .head_norms = true, .experts = true, .state = LayerMixer::kShortConv},
    {.name = "deepseek2", .experts = true, .router_correction = true, .latent = true},
    {.name = "qwen35", .head_norms = true, .attention_gate = true, .state = LayerMixer::kDeltaNet},
    {.name = "qwen35moe",
     .head_norms = true,
     .experts = true,
     .shared_weight = true,
     .attention_gate = true,
     .state = LayerMixer::kDeltaNet},
    {.name = "qwen3next",
     .head_norms = true,
     .experts = true,
     .shared_weight = true,
     .attention_gate = true,
     .state = LayerMixer::kDeltaNet},
    {.name = "llama4", .experts = true},
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

void add_experts(const ModelSpec& spec, const Architecture& architecture,
                 std::vector<TensorRule>& rules) {
  const bool biases = architecture.expert_biases;
  rules.push_back({TensorKind::kRouter, spec.n_experts, spec.hidden, true});
  if (biases) rules.push_back({TensorKind::kRouterBias, 1, spec.n_experts, true});
  if (spec.expert_scoring == ExpertScoring::kSigmoid) {
    rules.push_back(
        {TensorKind::kRouterCorrection, 1, spec.n_experts, architecture.router_correction});
  }
  if (spec.shared_ffn != 0) {
    if (architecture.shared_weight)
      rules.push_back({TensorKind::kSharedWeight, 1, spec.hidden, true});
    if (spec.gated_ffn) {
      rules.push_back({TensorKind::kSharedGate, spec.shared_ffn, spec.hidden, true});
    }
    rules.push_back({TensorKind::kSharedUp, spec.shared_ffn, spec.hidden, true});
    rules.push_back({TensorKind::kSharedDown, spec.hidden, spec.shared_ffn, true});
  }
  for (std::uint32_t i = 0; i < spec.n_experts; ++i) {
    const auto expert = static_cast<std::uint16_t>(i);
    if (spec.gated_ffn) {
      rules.push_back({TensorKind::kExpertGate, spec.expert_ffn, spec.hidden, true, expert});
    }
    rules.push_back({TensorKind::kExpertUp, spec.expert_ffn, spec.hidden, true, expert});
    rules.push_back({TensorKind::kExpertDown, spec.hidden, spec.expert_ffn, true, expert});
    if (!biases) continue;
    rules.push_back({TensorKind::kExpertGateBias, 1, spec.expert_ffn, true, expert});
    rules.push_back({TensorKind::kExpertUpBias, 1, spec.expert_ffn, true, expert});
    rules.push_back({TensorKind::kExpertDownBias, 1, spec.hidden, true, expert});
  }
}

void add_ffn(const ModelSpec& spec, std::uint32_t ffn, std::vector<TensorRule>& rules) {
  rules.push_back({TensorKind::kFfnUp, ffn, spec.hidden, true});
  rules.push_back({TensorKind::kFfnUpBias, 1, ffn, false});
  rules.push_back({TensorKind::kFfnDown, spec.hidden, ffn, true});
  rules.push_back({TensorKind::kFfnDownBias, 1, spec.hidden, false});
  if (!spec.gated_ffn) return;
  rules.push_back({TensorKind::kFfnGate, ffn, spec.hidden, true});
  rules.push_back({TensorKind::kFfnGateBias, 1, ffn, false});
}

// The norms of experts and of the FFN beside them.
void add_beside_norms(const ModelSpec& spec, std::vector<TensorRule>& rules) {
  for (const TensorKind kind : {TensorKind::kRouterNorm, TensorKind::kExpertNorm,
                                TensorKind::kDensePostNorm, TensorKind::kExpertPostNorm}) {
    rules.push_back({kind, 1, spec.hidden, true});
  }
  rules.push_back({TensorKind::kExpertScales, 1, spec.n_experts, true});
}

Status unsupported_feature(const char* feature) {
  return unsupported("this version cannot run a model with %s", feature);
}

// Layers with a state are those of one kind that the architecture has. A layer without a mixer or
// without an FFN is for architectures of which every layer has one of the two.
Status check_state(const ModelSpec& spec, const Architecture& architecture) {
  const auto wanted = static_cast<std::uint32_t>(architecture.state);
  const auto none = static_cast<std::uint32_t>(LayerMixer::kNone);
  const bool single = architecture.single_sublayers;
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    if (spec.has_ffn(layer) == (single == (spec.mixer_of(layer) == LayerMixer::kNone))) continue;
    return unsupported("architecture \"%s\" with %s FFN in layer %u", spec.architecture.c_str(),
                       spec.has_ffn(layer) ? "an" : "no", layer);
  }
  for (const std::uint32_t mixer : spec.layer_mixers) {
    if (mixer == 0 || mixer == wanted || (single && mixer == none)) continue;
    return unsupported("architecture \"%s\" with layers of mixer %u", spec.architecture.c_str(),
                       mixer);
  }
  if (!spec.has_state()) return ok_status();
  if (spec.has_delta_rule() && spec.mixer_heads == 1) {
    return unsupported_feature("a delta rule of one head");
  }
  if (!spec.parallel_block && !spec.int8_rows) return ok_status();
  return unsupported_feature("layers with a state in parallel blocks or of int8 rows");
}

// Norms of heads without a gain take the place of those with one, before the rotation.
Status check_unit_norms(const ModelSpec& spec, const Architecture& architecture) {
  if (!spec.unit_head_norms) return ok_status();
  if (!architecture.head_norms && !architecture.some_head_norms && !architecture.row_norms &&
      !architecture.own_head_gains && !spec.has_latent() && spec.norm == NormType::kRmsNorm &&
      spec.rope.attention_factor == 1.0F && spec.rope.short_attention_factor == 0.0F) {
    return ok_status();
  }
  return unsupported_feature("norms of heads without a gain, and others or factors of rotations");
}

// A norm whose result is the residual stream stands in front of both sublayers and alone.
Status check_stream_norms(const ModelSpec& spec, const Architecture& architecture) {
  if (!spec.norms_stream || (architecture.pre_norms && !architecture.post_norms)) {
    return ok_status();
  }
  return unsupported_feature("norms that give the residual stream, and others behind sublayers");
}

// What latent attention asks for: kernels take parts of a row in whole groups of 16, and the row of
// the cache is rotated in quantised types.
Status check_latent(const ModelSpec& spec, const Architecture& architecture) {
  if (architecture.latent != spec.has_latent()) {
    return unsupported("architecture \"%s\" with %u latent columns", spec.architecture.c_str(),
                       spec.latent_dim);
  }
  if (!spec.has_latent()) return ok_status();
  constexpr std::uint32_t kStep = 16;
  if (spec.latent_dim % kStep != 0 || spec.rope.dims % kStep != 0 ||
      spec.latent_value_dim % kStep != 0) {
    return unsupported(
        "latent attention of %u columns, %u rotating ones and values of %u: this version takes "
        "multiples of 16",
        spec.latent_dim, spec.rope.dims, spec.latent_value_dim);
  }
  if (spec.latent_key_dim < 2 || spec.latent_query_dim == 1) {
    return unsupported_feature("a weight matrix of one column or row");
  }
  if (!spec.layer_rope.empty() || spec.qkv_clip != 0.0F || spec.has_state() || spec.int8_rows) {
    return unsupported_feature(
        "latent attention and rope by layer, clamped queries, layers with a state or int8 rows");
  }
  return ok_status();
}

// What layers with heads or values of their own, and experts beside an FFN, ask for.
Status check_layers(const ModelSpec& spec, const Architecture& architecture) {
  const bool own = !spec.layer_heads.empty() || !spec.key_value_layers.empty() ||
                   spec.value_norms || spec.shares_kv();
  if (own && (spec.has_latent() || architecture.row_norms || architecture.own_head_gains)) {
    return unsupported_feature(
        "heads or values by layer and latent attention or norms of all heads");
  }
  if (!spec.key_value_layers.empty() && !spec.value_norms) {
    return unsupported_feature("values that are keys without a norm of values");
  }
  if (architecture.beside_ffn != spec.experts_beside_ffn) {
    return unsupported("architecture \"%s\" %s an FFN beside its experts",
                       spec.architecture.c_str(), spec.experts_beside_ffn ? "with" : "without");
  }
  if (spec.layer_input_dim != 0 && !architecture.layer_input) {
    return unsupported("architecture \"%s\" with inputs of each layer", spec.architecture.c_str());
  }
  if (architecture.streams != spec.has_streams()) {
    return unsupported("architecture \"%s\" with %u residual streams", spec.architecture.c_str(),
                       spec.n_streams);
  }
  if (!spec.ffn_cutoff_layers.empty() && !architecture.streams) {
    return unsupported("architecture \"%s\" with gates that are cut", spec.architecture.c_str());
  }
  if (spec.has_streams() && (spec.residual_scale != 1.0F || spec.int8_rows)) {
    return unsupported_feature("residual streams and scaled residuals or int8 rows");
  }
  if (spec.experts_beside_ffn && spec.shared_ffn != 0) {
    return unsupported_feature("a shared expert and an FFN beside the experts");
  }
  return ok_status();
}

// Latent attention, in the order in which the decoder takes the tensors.
void add_latent_attention(const ModelSpec& spec, std::vector<TensorRule>& rules) {
  const bool own_row = spec.latent_query_dim != 0;
  if (own_row)
    rules.push_back({TensorKind::kLatentQuery, spec.latent_query_dim, spec.hidden, true});
  rules.push_back({TensorKind::kAttnK, spec.kv_dim(), spec.hidden, true});
  if (own_row) rules.push_back({TensorKind::kLatentQueryNorm, 1, spec.latent_query_dim, true});
  rules.push_back({TensorKind::kLatentNorm, 1, spec.latent_dim, true});
  rules.push_back({TensorKind::kAttnQ, spec.n_heads * spec.query_dim(), spec.query_in(), true});
  rules.push_back(
      {TensorKind::kLatentKeys, spec.n_heads * spec.latent_dim, spec.latent_key_dim, true});
  rules.push_back(
      {TensorKind::kLatentValues, spec.n_heads * spec.value_dim(), spec.latent_dim, true});
  rules.push_back({TensorKind::kAttnO, spec.hidden, spec.n_heads * spec.value_dim(), true});
}

void add_attention(const ModelSpec& spec, std::uint32_t layer, const Architecture& architecture,
                   std::vector<TensorRule>& rules) {
  if (spec.has_latent()) return add_latent_attention(spec, rules);
  const AttentionShape shape = spec.attention_of(layer);
  rules = {
      {TensorKind::kAttnQ, shape.q_dim(), spec.hidden, true},
      {TensorKind::kAttnQBias, 1, shape.q_dim(), false},
  };
  if (spec.owns_kv(layer)) {
    rules.push_back({TensorKind::kAttnK, shape.kv_dim(), spec.hidden, true});
    rules.push_back({TensorKind::kAttnKBias, 1, shape.kv_dim(), false});
  }
  if (spec.owns_kv(layer) && !shape.values_are_keys) {
    rules.push_back({TensorKind::kAttnV, shape.kv_dim(), spec.hidden, true});
    rules.push_back({TensorKind::kAttnVBias, 1, shape.kv_dim(), false});
  }
  rules.push_back({TensorKind::kAttnO, spec.hidden, shape.q_dim(), true});
  rules.push_back({TensorKind::kAttnOBias, 1, spec.hidden, false});
  if (!architecture.attention_gate) return;
  rules.push_back({TensorKind::kAttnGate, shape.q_dim(), spec.hidden, true});
}

// What is added to the residual stream behind the FFN, of a token's input for the layer.
void add_layer_input(const ModelSpec& spec, std::vector<TensorRule>& rules) {
  const std::uint32_t n = spec.layer_input_dim;
  rules.push_back({TensorKind::kLayerInput, n, spec.hidden, true});
  rules.push_back({TensorKind::kLayerInputNorm, 1, n, true});
  rules.push_back({TensorKind::kLayerInputGate, n, spec.hidden, true});
  rules.push_back({TensorKind::kLayerInputOut, spec.hidden, n, true});
  rules.push_back({TensorKind::kLayerInputPostNorm, 1, spec.hidden, true});
}

// What several residual streams ask for.
void add_streams(const ModelSpec& spec, std::uint32_t layer, std::vector<TensorRule>& rules) {
  const std::uint32_t n = spec.n_streams;
  for (std::uint32_t i = 0; i + 1 < n; ++i) {
    const auto number = static_cast<std::uint16_t>(i);
    if (layer == 0) {
      rules.push_back({TensorKind::kStreamIn, spec.hidden, spec.hidden, true, number});
    }
    if (layer + 1 == spec.n_layers) {
      rules.push_back({TensorKind::kStreamOut, spec.hidden, spec.hidden, true, number});
    }
  }
  rules.push_back({TensorKind::kStreamRouter, 1, n * spec.hidden, true});
  rules.push_back({TensorKind::kRouterNorm, 1, spec.hidden, true});
  rules.push_back({TensorKind::kStreamPredict, 1, n * n * n, true});
  rules.push_back({TensorKind::kStreamCorrect, 1, n * n, true});
  rules.push_back({TensorKind::kStreamScale, 1, spec.hidden, true});
  rules.push_back({TensorKind::kLaurelLeft, spec.laurel_dim, spec.hidden, true});
  rules.push_back({TensorKind::kLaurelRight, spec.hidden, spec.laurel_dim, true});
  rules.push_back({TensorKind::kLaurelNorm, 1, spec.hidden, true});
}

// What makes rows of a token and of another model's row.
void add_mtp(const ModelSpec& spec, std::vector<TensorRule>& rules) {
  rules.push_back({TensorKind::kMtpProjection, spec.hidden, 2 * spec.hidden, true});
  rules.push_back({TensorKind::kMtpTokenNorm, 1, spec.hidden, true});
  rules.push_back({TensorKind::kMtpHiddenNorm, 1, spec.hidden, true});
}

void add_attention_norms(const Architecture& architecture, const AttentionShape& shape,
                         std::vector<TensorRule>& rules) {
  if (architecture.head_norms || architecture.some_head_norms) {
    rules.push_back({TensorKind::kQNorm, 1, shape.head_dim, architecture.head_norms});
    rules.push_back({TensorKind::kKNorm, 1, shape.head_dim, architecture.head_norms});
  }
  if (architecture.row_norms || architecture.own_head_gains) {
    rules.push_back({TensorKind::kQNorm, 1, shape.q_dim(), architecture.row_norms});
    rules.push_back({TensorKind::kKNorm, 1, shape.kv_dim(), architecture.row_norms});
  }
  if (architecture.sub_norms) rules.push_back({TensorKind::kAttnSubNorm, 1, shape.q_dim(), true});
}

// What all layers with a state have.
void add_mixer(const ModelSpec& spec, std::vector<TensorRule>& rules) {
  rules.push_back({TensorKind::kMixerIn, spec.mixer_in(), spec.hidden, true});
  rules.push_back({TensorKind::kMixerInBias, 1, spec.mixer_in(), false});
  rules.push_back({TensorKind::kConvTaps, 1, spec.conv_taps * spec.conv_channels(), true});
  rules.push_back({TensorKind::kConvBias, 1, spec.conv_channels(), false});
  rules.push_back({TensorKind::kMixerOut, spec.hidden, spec.mixer_out(), true});
  rules.push_back({TensorKind::kMixerOutBias, 1, spec.hidden, false});
}

void add_scan(const ModelSpec& spec, bool norm_required, std::vector<TensorRule>& rules) {
  add_mixer(spec, rules);
  rules.push_back({TensorKind::kScanDecay, 1, spec.mixer_heads, true});
  rules.push_back({TensorKind::kScanBias, 1, spec.mixer_heads, true});
  rules.push_back({TensorKind::kScanSkip, 1, spec.mixer_heads, true});
  rules.push_back({TensorKind::kScanNorm, 1, spec.mixer_out(), norm_required});
}

void add_delta_rule(const ModelSpec& spec, std::vector<TensorRule>& rules) {
  rules.push_back({TensorKind::kMixerGate, spec.mixer_out(), spec.hidden, true});
  rules.push_back({TensorKind::kDeltaRate, spec.mixer_heads, spec.hidden, true});
  rules.push_back({TensorKind::kDeltaStep, spec.mixer_heads, spec.hidden, true});
  rules.push_back({TensorKind::kScanDecay, 1, spec.mixer_heads, true});
  rules.push_back({TensorKind::kScanBias, 1, spec.mixer_heads, true});
  rules.push_back({TensorKind::kDeltaNorm, 1, spec.mixer_head_dim, true});
}

// Adds a norm of hidden rows, with its bias where norms have one.
void add_norm(const ModelSpec& spec, TensorKind gain, TensorKind bias,
              std::vector<TensorRule>& rules) {
  rules.push_back({gain, 1, spec.hidden, true});
  if (spec.norm != NormType::kLayerNorm) return;
  if (find_architecture(spec.architecture)->norm_biases) {
    rules.push_back({bias, 1, spec.hidden, true});
  }
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
  std::uint32_t fewest_rows = std::min({spec.hidden, spec.ffn, spec.n_vocab});
  for (std::uint32_t layer = 0; layer < spec.n_layers; ++layer) {
    fewest_rows = std::min(fewest_rows, spec.attention_of(layer).kv_dim());
  }
  if (fewest_rows < 2) return unsupported_feature("a weight matrix of one row");
  if (find_architecture(spec.architecture)->experts != (spec.n_experts != 0)) {
    return unsupported("architecture \"%s\" with %u experts", spec.architecture.c_str(),
                       spec.n_experts);
  }
  QSF_RETURN_IF_ERROR(check_layers(spec, *find_architecture(spec.architecture)));
  // Published models have up to 512 and use up to 10; routing and opening take time beyond that.
  constexpr std::uint32_t kMostExperts = 1024;
  constexpr std::uint32_t kMostExpertsUsed = 64;
  if (spec.n_experts > kMostExperts || spec.n_experts_used > kMostExpertsUsed) {
    return unsupported("%u experts, %u of them for a token: this version runs at most %u and %u",
                       spec.n_experts, spec.n_experts_used, kMostExperts, kMostExpertsUsed);
  }
  QSF_RETURN_IF_ERROR(check_state(spec, *find_architecture(spec.architecture)));
  QSF_RETURN_IF_ERROR(check_latent(spec, *find_architecture(spec.architecture)));
  QSF_RETURN_IF_ERROR(check_unit_norms(spec, *find_architecture(spec.architecture)));
  if (spec.parallel_block && !find_architecture(spec.architecture)->pre_norms) {
    return unsupported_feature("parallel blocks and no norms before them");
  }
  if (spec.n_experts == 1 || (spec.n_experts != 0 && spec.expert_ffn < 2) || spec.shared_ffn == 1) {
    return unsupported_feature("one expert, or experts of one row");
  }
  if (spec.n_experts != 0 && (spec.parallel_block || spec.int8_rows)) {
    return unsupported_feature("experts in parallel blocks or of int8 rows");
  }
  if (spec.weighs_expert_inputs && (spec.residual_scale != 1.0F || spec.expert_scale != 1.0F)) {
    return unsupported_feature("weighed inputs of experts and scaled residuals or weights");
  }
  if (spec.mtp_block &&
      (spec.has_state() || spec.has_streams() || spec.layer_input_dim != 0 || spec.parallel_block ||
       spec.embeds_only || spec.positions == PositionEncoding::kLearned)) {
    return unsupported_feature(
        "multi-token prediction and layers with a state, residual streams, inputs of each layer, "
        "parallel blocks or learned positions");
  }
  QSF_RETURN_IF_ERROR(check_stream_norms(spec, *find_architecture(spec.architecture)));
  if (spec.residual_scale != 1.0F && find_architecture(spec.architecture)->post_norms) {
    return unsupported_feature("scaled residuals and norms behind the sublayers");
  }
  return ok_status();
}

bool has_parallel_ffn_norm(const ModelSpec& spec) noexcept {
  const Architecture* const architecture = find_architecture(spec.architecture);
  return architecture != nullptr && architecture->ffn_norm && spec.parallel_block;
}

bool has_row_norms(const ModelSpec& spec) noexcept {
  const Architecture* const architecture = find_architecture(spec.architecture);
  return architecture != nullptr && architecture->row_norms;
}

bool has_attention_sinks(const ModelSpec& spec) noexcept {
  const Architecture* const architecture = find_architecture(spec.architecture);
  return architecture != nullptr && architecture->sinks;
}

bool has_attention_gate(const ModelSpec& spec) noexcept {
  const Architecture* const architecture = find_architecture(spec.architecture);
  return architecture != nullptr && architecture->attention_gate;
}

std::vector<TensorRule> embedding_rules(const ModelSpec& spec) {
  std::vector<TensorRule> rules = {{TensorKind::kTokenEmbedding, spec.n_vocab, spec.hidden, true}};
  if (spec.positions == PositionEncoding::kLearned) {
    rules.push_back({TensorKind::kPositionEmbedding, spec.max_positions, spec.hidden, true});
  }
  if (spec.embedding_dense != 0) {
    rules.push_back({TensorKind::kDenseUp, spec.embedding_dense, spec.hidden, true});
    rules.push_back({TensorKind::kDenseDown, spec.hidden, spec.embedding_dense, true});
  }
  if (spec.layer_input_dim != 0) {
    const std::uint32_t n_cols = spec.n_layers * spec.layer_input_dim;
    rules.push_back({TensorKind::kLayerEmbedding, spec.layer_table_rows(), n_cols, true});
  }
  if (find_architecture(spec.architecture)->embedding_norm) {
    add_norm(spec, TensorKind::kEmbeddingNorm, TensorKind::kEmbeddingNormBias, rules);
  }
  return rules;
}

std::vector<TensorRule> layer_rules(const ModelSpec& spec, std::uint32_t layer) {
  const Architecture& architecture = *find_architecture(spec.architecture);
  std::vector<TensorRule> rules;
  switch (spec.mixer_of(layer)) {
    case LayerMixer::kAttention: add_attention(spec, layer, architecture, rules); break;
    case LayerMixer::kShortConv: add_mixer(spec, rules); break;
    case LayerMixer::kMamba2: add_scan(spec, true, rules); break;
    case LayerMixer::kMamba2AndAttention:
      add_attention(spec, layer, architecture, rules);
      add_scan(spec, false, rules);
      break;
    case LayerMixer::kNone: break;
    case LayerMixer::kDeltaNet:
      add_mixer(spec, rules);
      add_delta_rule(spec, rules);
      break;
  }
  const bool experts = spec.has_experts(layer);
  if (experts) add_experts(spec, architecture, rules);
  if (experts && spec.experts_beside_ffn) add_beside_norms(spec, rules);
  if (spec.has_ffn(layer) && (!experts || spec.experts_beside_ffn)) {
    add_ffn(spec, spec.ffn_of(layer), rules);
  }
  if (architecture.sinks) rules.push_back({TensorKind::kAttnSinks, 1, spec.n_heads, true});
  if (architecture.pre_norms && spec.mixer_of(layer) != LayerMixer::kNone &&
      (architecture.first_norm || layer != 0)) {
    add_norm(spec, TensorKind::kAttnNorm, TensorKind::kAttnNormBias, rules);
  }
  const bool ffn_norm = !spec.parallel_block || architecture.ffn_norm;
  if (architecture.pre_norms && ffn_norm && spec.has_ffn(layer)) {
    add_norm(spec, TensorKind::kFfnNorm, TensorKind::kFfnNormBias, rules);
  }
  if (spec.attends(layer)) add_attention_norms(architecture, spec.attention_of(layer), rules);
  if (architecture.sub_norms) {
    rules.push_back({TensorKind::kFfnSubNorm, 1, spec.ffn_of(layer), true});
  }
  if (architecture.post_norms) {
    rules.push_back({TensorKind::kAttnPostNorm, 1, spec.hidden, true});
    rules.push_back({TensorKind::kFfnPostNorm, 1, spec.hidden, true});
  }
  if (architecture.layer_scale) rules.push_back({TensorKind::kLayerScale, 1, 1, true});
  if (spec.layer_input_dim != 0) add_layer_input(spec, rules);
  if (spec.has_streams()) add_streams(spec, layer, rules);
  if (spec.mtp_block && layer == 0) add_mtp(spec, rules);
  if (!spec.owns_kv(layer)) {
    std::erase_if(rules, [](const TensorRule& rule) { return rule.kind == TensorKind::kKNorm; });
  }
  return rules;
}

std::vector<TensorRule> final_rules(const ModelSpec& spec) {
  std::vector<TensorRule> rules;
  add_norm(spec, TensorKind::kFinalNorm, TensorKind::kFinalNormBias, rules);
  const Architecture& architecture = *find_architecture(spec.architecture);
  if (architecture.head_bias || architecture.some_head_bias) {
    rules.push_back({TensorKind::kHeadBias, 1, spec.n_vocab, architecture.head_bias});
  }
  if (!spec.tied_head) rules.push_back({TensorKind::kHead, spec.n_vocab, spec.hidden, true});
  return rules;
}

}  // namespace qsf
