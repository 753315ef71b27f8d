// SPDX-License-Identifier: MIT

#include "base/portable_math.h"
#include "import/hf/hf_families.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace qsf {

namespace {

constexpr std::uint32_t kMaxConfigContext = 1U << 24;

// An absent key means the default of the family's class; null means as many as heads.
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
  return unsupported("%s: \"%s\" is not supported", key, name.substr(0, 64).c_str());
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

Result<std::vector<bool>> local_layers(const ConfigFields& fields, std::uint32_t n_layers,
                                       std::uint32_t global_every) {
  std::vector<bool> local;
  const JsonValue* types = fields.find("layer_types");
  if (types == nullptr) {
    for (std::uint32_t layer = 0; layer < n_layers; ++layer) {
      local.push_back(global_every != 0 && (layer + 1) % global_every != 0);
    }
    return local;
  }
  if (!types->is_array() || types->size() != n_layers) {
    return corrupt("layer_types: expected a list of %u, one a layer", n_layers);
  }
  for (const JsonValue& type : types->elements()) {
    if (type.text() != "full_attention" && type.text() != "sliding_attention") {
      return unsupported("layer_types: %s is not supported", type.shown().c_str());
    }
    local.push_back(type.text() == "sliding_attention");
  }
  return local;
}

void set_local_windows(const std::vector<bool>& local, std::uint32_t window, ModelSpec& spec) {
  spec.sliding_window.clear();
  for (const bool windowed : local) spec.sliding_window.push_back(windowed ? window : 0);
}

Status set_windows(const ConfigFields& fields, std::uint32_t window, ModelSpec& spec) {
  if (fields.find("layer_types") == nullptr) {
    spec.sliding_window = {window};
    return ok_status();
  }
  QSF_ASSIGN_OR_RETURN(const std::vector<bool> local, local_layers(fields, spec.n_layers, 0));
  set_local_windows(local, window, spec);
  return ok_status();
}

Status parse_qkv_clip(ConfigFields& fields, ModelSpec& spec) {
  const char* key = "clip_qkv";
  if (fields.find(key) != nullptr) spec.qkv_clip = fields.positive(key, std::nullopt);
  return fields.status();
}

Status refuse(ConfigFields& fields, const char* key, bool refused_value) {
  if (fields.boolean(key, !refused_value) != refused_value) return fields.status();
  return unsupported("%s: %s is not supported", key, refused_value ? "true" : "false");
}

Status divide_heads(const char* hidden_key, const char* heads_key, ModelSpec& spec) {
  if (spec.hidden % spec.n_heads != 0) {
    return corrupt("%s: %u is not a multiple of %s, %u, and head_dim is missing", hidden_key,
                   spec.hidden, heads_key, spec.n_heads);
  }
  spec.head_dim = spec.hidden / spec.n_heads;
  return ok_status();
}

namespace {

// One number, or in some families a list of one a layer.
void parse_ffn(ConfigFields& fields, const DecoderDefaults& defaults, ModelSpec& spec) {
  constexpr std::uint32_t kMostRows = 1U << 24;
  const char* key = defaults.ffn_key;
  const JsonValue* list = fields.find(key);
  if (!defaults.ffn_by_layer || list == nullptr || !list->is_array()) {
    spec.ffn = fields.u32(key, 1, kMostRows);
    return;
  }
  std::vector<std::uint32_t> rows;
  for (const JsonValue& value : list->elements()) {
    const auto number = value.unsigned_integer();
    if (!number || *number == 0 || *number > kMostRows) {
      fields.fail(corrupt("%s: %s, expected 1 to %u", key, value.shown().c_str(), kMostRows));
      return;
    }
    rows.push_back(static_cast<std::uint32_t>(*number));
  }
  if (rows.empty() || rows.size() != spec.n_layers) {
    fields.fail(corrupt("%s: %zu numbers, expected one for each of %u layers", key, rows.size(),
                        spec.n_layers));
    return;
  }
  set_layer_ffn(std::move(rows), spec);
}

}  // namespace

Status parse_decoder_sizes(ConfigFields& fields, const DecoderDefaults& defaults, ModelSpec& spec) {
  spec.hidden = fields.u32("hidden_size", 1, 1U << 20);
  const char* layers = "num_hidden_layers";
  spec.n_layers = defaults.n_layers == 0 ? fields.u32(layers, 1, 4096)
                                         : fields.u32_or(layers, defaults.n_layers,
                                                         defaults.n_layers, defaults.n_layers);
  const char* heads = "num_attention_heads";
  spec.n_heads = defaults.n_heads == 0 ? fields.u32(heads, 1, 1U << 16)
                                       : fields.u32_or(heads, defaults.n_heads, 1, 1U << 16);
  const char* positions = "max_position_embeddings";
  spec.max_positions = defaults.max_positions == 0
                           ? fields.u32(positions, 1, kMaxConfigContext)
                           : fields.u32_or(positions, defaults.max_positions, 1, kMaxConfigContext);
  parse_ffn(fields, defaults, spec);
  spec.norm = defaults.norm;
  spec.norm_epsilon = fields.positive(defaults.epsilon_key, defaults.epsilon);
  spec.positions = PositionEncoding::kRope;
  spec.gated_ffn = defaults.gated_ffn;
  spec.tied_head = fields.boolean("tie_word_embeddings", defaults.tied_head);
  spec.head_dim = fields.u32_or("head_dim", defaults.head_dim, 1, 1U << 16);
  QSF_RETURN_IF_ERROR(fields.status());
  QSF_RETURN_IF_ERROR(parse_kv_heads(fields, defaults.n_kv_heads, spec));
  if (spec.head_dim == 0) {
    QSF_RETURN_IF_ERROR(divide_heads("hidden_size", heads, spec));
  }
  return ok_status();
}

Status parse_decoder(ConfigFields& fields, const DecoderDefaults& defaults, ModelSpec& spec) {
  QSF_RETURN_IF_ERROR(parse_decoder_sizes(fields, defaults, spec));
  return parse_rope(fields, defaults, spec);
}

// RoPE. rope_scaling of older files and rope_parameters of newer ones have the same keys; the
// latter also have rope_theta and partial_rotary_factor.

namespace {

constexpr std::size_t kMaxFactors = 1U << 15;

void parse_linear(ConfigFields& inner, RopeSpec& rope) {
  rope.scaling = RopeScaling::kLinear;
  rope.factor = inner.positive("factor", std::nullopt);
}

void parse_llama3(ConfigFields& inner, RopeSpec& rope) {
  rope.scaling = RopeScaling::kLlama3;
  rope.factor = inner.positive("factor", std::nullopt);
  rope.low_freq_factor = inner.positive("low_freq_factor", std::nullopt);
  rope.high_freq_factor = inner.positive("high_freq_factor", std::nullopt);
  rope.original_context = inner.u32("original_max_position_embeddings", 1, kMaxConfigContext);
}

// The original context length is a key of the outer object in some files and of the parameters in
// others. Without attention_factor the factor of cos and sin follows from the context extension.
void parse_longrope(ConfigFields& outer, ConfigFields& inner, std::uint32_t default_context,
                    ModelSpec& spec) {
  RopeSpec& rope = spec.rope;
  rope.scaling = RopeScaling::kLongrope;
  rope.short_factors = inner.numbers("short_factor", kMaxFactors);
  rope.long_factors = inner.numbers("long_factor", kMaxFactors);
  const char* original = "original_max_position_embeddings";
  const std::uint32_t among = inner.u32_or(original, default_context, 2, kMaxConfigContext);
  rope.original_context = outer.u32_or(original, among, 2, kMaxConfigContext);
  const float stretch = inner.positive(
      "factor", static_cast<float>(spec.max_positions) / static_cast<float>(rope.original_context));
  const double factor =
      stretch <= 1.0F
          ? 1.0
          : std::sqrt(1.0 + portable::log(stretch) / portable::log(rope.original_context));
  rope.attention_factor = inner.positive("attention_factor", static_cast<float>(factor));
}

// Zero counts as absent here.
float number_or(ConfigFields& fields, const char* key, float fallback) {
  const JsonValue* value = fields.find(key);
  const bool absent = value == nullptr || value->number() == 0.0;
  return absent ? fallback : fields.positive(key, std::nullopt);
}

// How much attention_factor grows with the context: yarn's own rule, times `scale`.
double yarn_growth(float factor, float scale) {
  return factor <= 1.0F
             ? 1.0
             : 0.1 * static_cast<double>(scale) * portable::log(static_cast<double>(factor)) + 1.0;
}

// Frequencies change between two numbers of turns within the original context. That context is
// under the same keys as longrope's. A model with yarn serves its original context times the
// factor; files of shorter models to which a user added yarn keep their own length.
void parse_yarn(ConfigFields& outer, ConfigFields& inner, ModelSpec& spec) {
  RopeSpec& rope = spec.rope;
  rope.scaling = RopeScaling::kYarn;
  const char* original = "original_max_position_embeddings";
  const std::uint32_t among = inner.u32_or(original, spec.max_positions, 1, kMaxConfigContext);
  rope.original_context = outer.u32_or(original, among, 1, kMaxConfigContext);
  rope.factor = inner.positive(
      "factor", static_cast<float>(spec.max_positions) / static_cast<float>(rope.original_context));
  rope.beta_fast = number_or(inner, "beta_fast", rope.beta_fast);
  rope.beta_slow = number_or(inner, "beta_slow", rope.beta_slow);
  rope.truncate = inner.boolean("truncate", true);
  const float scale = number_or(inner, "mscale", 0.0F);
  const float scale_all = number_or(inner, "mscale_all_dim", 0.0F);
  const double factor = scale != 0.0F && scale_all != 0.0F
                            ? yarn_growth(rope.factor, scale) / yarn_growth(rope.factor, scale_all)
                            : yarn_growth(rope.factor, 1.0F);
  rope.attention_factor = inner.positive("attention_factor", static_cast<float>(factor));
  const double served = static_cast<double>(rope.factor) * rope.original_context;
  const double most = std::min(served, static_cast<double>(kMaxConfigContext));
  spec.max_positions = std::max(spec.max_positions, static_cast<std::uint32_t>(most));
}

Status parse_scaling(ConfigFields& outer, ConfigFields& inner, const DecoderDefaults& defaults,
                     ModelSpec& spec) {
  const std::string type = inner.text("rope_type", inner.text("type", "default"));
  const bool longrope = type == "longrope" || type == "su" ||  // its name before it was published
                        (type == "yarn" && defaults.yarn_is_longrope);
  if (type == "linear") {
    parse_linear(inner, spec.rope);
  } else if (type == "llama3") {
    parse_llama3(inner, spec.rope);
  } else if (longrope) {
    const std::uint32_t context =
        defaults.rope_original_context != 0 ? defaults.rope_original_context : spec.max_positions;
    parse_longrope(outer, inner, context, spec);
  } else if (type == "yarn") {
    parse_yarn(outer, inner, spec);
  } else if (type == "dynamic") {
    // It changes the base of texts that are longer than the trained context, which no text is.
    static_cast<void>(inner.positive("factor", std::nullopt));
  } else if (type != "default" && inner.status().ok()) {
    return unsupported(
        "type \"%s\" is not supported; expected linear, llama3, longrope, yarn or dynamic",
        type.substr(0, 64).c_str());
  }
  return inner.status();
}

constexpr const char* kRopeParameters = "rope_parameters";
constexpr const char* kRopeScaling = "rope_scaling";
constexpr const char* kFullLayers = "full_attention";
constexpr const char* kLocalLayers = "sliding_attention";

// The key whose object describes RoPE. Where a file has both, transformers takes rope_scaling
// unless it is empty.
const char* rope_key(const ConfigFields& fields) {
  const JsonValue* scaling = fields.find(kRopeScaling);
  const bool is_empty =
      scaling != nullptr && (scaling->is_array() || scaling->is_object()) && scaling->size() == 0;
  if (scaling != nullptr && !is_empty) return kRopeScaling;
  return fields.either(kRopeParameters, kRopeScaling);
}

// Files of some families have one object of parameters for each type of layer. Read as a single
// object, such a file would seem to have no parameters.
Status check_flat(const JsonValue& object) {
  for (const auto& [name, value] : object.members()) {
    if (!value.is_object()) continue;
    return unsupported("%s is an object; RoPE parameters by layer type are not supported",
                       JsonValue::of_string(name).shown().c_str());
  }
  return ok_status();
}

// Sets how many columns of a head rotate.
Status set_rotating_columns(double share, bool may_be_partial, ModelSpec& spec) {
  const auto dims = static_cast<std::uint32_t>(spec.head_dim * share);
  if (dims == spec.head_dim) return ok_status();
  if (!may_be_partial) {
    return unsupported("partial_rotary_factor: %g is not supported for %s", share,
                       spec.architecture.c_str());
  }
  if (dims == 0 || dims % 2 != 0) {
    return corrupt(
        "partial_rotary_factor: %g of a head of %u columns is %u, expected an even number", share,
        spec.head_dim, dims);
  }
  spec.rope.dims = dims;
  return ok_status();
}

}  // namespace

const JsonValue* rope_object(const ConfigFields& fields) {
  return fields.find(rope_key(fields));
}

namespace {

// Reads an object of parameters, with the theta and the share of the outer one as defaults.
Status parse_rope_object(ConfigFields& fields, const JsonValue& object,
                         const DecoderDefaults& defaults, double& share, ModelSpec& spec) {
  if (!object.is_object()) return corrupt("%s, expected an object", object.shown().c_str());
  QSF_RETURN_IF_ERROR(check_flat(object));
  ConfigFields inner(object);
  spec.rope.theta = inner.positive("rope_theta", spec.rope.theta);
  share = inner.fraction("partial_rotary_factor", share);
  return parse_scaling(fields, inner, defaults, spec);
}

// Reads the parameters of the layers that see all, in files with an object for each type of layer:
// where a file also has the older key, transformers lets its parameters replace those.
Status parse_full_layers_rope(ConfigFields& fields, const DecoderDefaults& defaults, double& share,
                              ModelSpec& spec) {
  const JsonValue* all = fields.find(kRopeParameters);
  const JsonValue* scaling = fields.find(kRopeScaling);
  const JsonValue* full = all == nullptr ? nullptr : all->find(kFullLayers);
  if (all != nullptr && !all->is_object())
    return corrupt("%s: expected an object", kRopeParameters);
  if (all != nullptr && all->size() != 0 && !all->contains(kFullLayers) &&
      !all->contains(kLocalLayers)) {
    return unsupported(
        "%s: parameters for every layer are not supported for %s; expected %s and %s",
        kRopeParameters, spec.architecture.c_str(), kFullLayers, kLocalLayers);
  }
  std::map<std::string_view, JsonValue> merged;
  for (const auto& [key, object] : {std::pair(kRopeParameters, full), {kRopeScaling, scaling}}) {
    if (object == nullptr) continue;
    if (!object->is_object()) return corrupt("%s: expected an object", key);
    for (const JsonMember& member : object->members()) merged[member.name] = member.value;
  }
  std::vector<JsonMember> members;
  for (const auto& [name, value] : merged) members.push_back({name, value});
  return parse_rope_object(fields, JsonValue::of_object(members), defaults, share, spec)
      .with_context(scaling != nullptr ? kRopeScaling : kRopeParameters);
}

}  // namespace

Status parse_rope(ConfigFields& fields, const DecoderDefaults& defaults, ModelSpec& spec) {
  spec.rope.theta = fields.positive(defaults.rope_theta_key, defaults.rope_theta);
  double share =
      fields.fraction(defaults.partial_rotary_key, defaults.partial_rotary.value_or(1.0));
  QSF_RETURN_IF_ERROR(fields.status());
  const char* key = rope_key(fields);
  const JsonValue* object = fields.find(key);
  if (defaults.rope_by_layer) {
    QSF_RETURN_IF_ERROR(parse_full_layers_rope(fields, defaults, share, spec));
  } else if (object != nullptr) {
    QSF_RETURN_IF_ERROR(
        parse_rope_object(fields, *object, defaults, share, spec).with_context(key));
  }
  QSF_RETURN_IF_ERROR(fields.status());
  return set_rotating_columns(share, defaults.partial_rotary.has_value(), spec);
}

Status parse_local_rope(ConfigFields& fields, const std::vector<bool>& local, float theta,
                        ModelSpec& spec) {
  const JsonValue* all = fields.find(kRopeParameters);
  const JsonValue* object = all != nullptr && all->is_object() ? all->find(kLocalLayers) : nullptr;
  if (object != nullptr) {
    if (!object->is_object()) return corrupt("%s: expected an object", kLocalLayers);
    ConfigFields inner(*object);
    theta = inner.positive("rope_theta", theta);
    const std::string type = inner.text("rope_type", inner.text("type", "default"));
    const double share = inner.fraction("partial_rotary_factor", 1.0);
    QSF_RETURN_IF_ERROR(Status(inner.status()).with_context(kLocalLayers));
    if (type != "default") {
      return unsupported("%s: rope_type: \"%s\" is not supported, expected default", kLocalLayers,
                         type.substr(0, 64).c_str());
    }
    if (share != 1.0) {
      return unsupported("%s: partial_rotary_factor: %g is not supported", kLocalLayers, share);
    }
  }
  const bool differs = theta != spec.rope.theta || spec.rope.scaling != RopeScaling::kNone ||
                       spec.rope.n_turning != 0 || !spec.layer_heads.empty();
  if (!differs || std::find(local.begin(), local.end(), true) == local.end()) return ok_status();
  spec.local_rope_theta = theta;
  for (const bool is_local : local) {
    spec.layer_rope.push_back(
        static_cast<std::uint32_t>(is_local ? LayerRope::kLocal : LayerRope::kMain));
  }
  return ok_status();
}

}  // namespace qsf
