// SPDX-License-Identifier: MIT

#include "import/hf_config.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/utf8_text.h"
#include "import/json_text.h"

namespace qsf {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxConfigBytes = 4U << 20;
constexpr std::uint64_t kMaxTokenizerConfigBytes = 64U << 20;
constexpr std::uint64_t kMaxTemplateBytes = 4U << 20;
constexpr std::size_t kMaxEosIds = 1024;
constexpr const char* kSupported =
    "GPT2LMHeadModel, LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM";

// Reads typed values out of one JSON object. The first failure sticks; reading goes on with
// harmless values, so a block of fields is read first and checked once.
class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {}

  const Status& status() const noexcept { return status_; }

  // Returns the value, or null when the key is absent or its value is null.
  const Json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  bool has(const char* key) const { return object_.contains(key); }

  std::uint32_t u32(const char* key, std::uint32_t low, std::uint32_t high) {
    if (find(key) == nullptr) {
      fail(corrupt("%s: missing, expected a whole number", key));
      return low;
    }
    return u32_or(key, low, low, high);
  }
  std::uint32_t u32_or(const char* key, std::uint32_t fallback, std::uint32_t low,
                       std::uint32_t high) {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_number_unsigned() || value->get<std::uint64_t>() < low ||
        value->get<std::uint64_t>() > high) {
      fail(corrupt("%s: %s, expected a whole number from %" PRIu32 " to %" PRIu32, key,
                   shown(*value).c_str(), low, high));
      return low;
    }
    return value->get<std::uint32_t>();
  }
  // Numbers above zero.
  float positive(const char* key, std::optional<float> fallback) {
    const Json* value = find(key);
    if (value == nullptr) {
      if (!fallback) fail(corrupt("%s: missing, expected a number above 0", key));
      return fallback.value_or(1.0F);
    }
    const double number = value->is_number() ? value->get<double>() : 0.0;
    const float narrow = static_cast<float>(number);
    if (!value->is_number() || !(narrow > 0.0F) || !std::isfinite(narrow)) {
      fail(corrupt("%s: %s, expected a number above 0", key, shown(*value).c_str()));
      return 1.0F;
    }
    return narrow;
  }
  bool boolean(const char* key, bool fallback) {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) {
      fail(corrupt("%s: %s, expected true or false", key, shown(*value).c_str()));
      return fallback;
    }
    return value->get<bool>();
  }
  std::string text(const char* key, std::string_view fallback) {
    const Json* value = find(key);
    if (value == nullptr) return std::string(fallback);
    if (!value->is_string()) {
      fail(corrupt("%s: %s, expected a string", key, shown(*value).c_str()));
      return std::string(fallback);
    }
    return value->get<std::string>();
  }
  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  // The value as it may stand in a message: short, on one line, ASCII.
  static std::string shown(const Json& value) {
    if (value.is_object()) return "an object";
    if (value.is_array()) return "a list";
    std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (text.size() > 64) text = text.substr(0, 61) + "...";
    return text;
  }

 private:
  const Json& object_;
  Status status_;
};

Result<Activation> parse_activation(const std::string& key, const std::string& name) {
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") {
    return Activation::kGeluTanh;
  }
  if (name == "gelu") return Activation::kGeluErf;
  if (name == "relu") return Activation::kRelu;
  if (name == "silu" || name == "swish") return Activation::kSilu;
  return unsupported("%s: \"%s\" is not known to this version", key.c_str(),
                     name.substr(0, 64).c_str());
}

Status refuse(Fields& fields, const char* key, bool refused_value) {
  if (fields.boolean(key, !refused_value) != refused_value) return fields.status();
  return unsupported("%s: %s is not known to this version", key, refused_value ? "true" : "false");
}

Status parse_gpt2(Fields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "gpt2";
  spec.hidden = fields.u32("n_embd", 1, 1U << 20);
  spec.n_layers = fields.u32("n_layer", 1, 4096);
  spec.n_heads = fields.u32("n_head", 1, 1U << 16);
  spec.n_kv_heads = spec.n_heads;
  spec.max_positions = fields.u32("n_positions", 1, 1U << 24);
  spec.ffn = fields.u32_or("n_inner", 4 * spec.hidden, 1, 1U << 24);
  spec.norm = NormType::kLayerNorm;
  spec.norm_epsilon = fields.positive("layer_norm_epsilon", 1e-5F);
  spec.positions = PositionEncoding::kLearned;
  spec.gated_ffn = false;
  spec.tied_head = fields.boolean("tie_word_embeddings", true);
  const std::string activation = fields.text("activation_function", "gelu_new");
  QSF_RETURN_IF_ERROR(fields.status());
  if (spec.hidden % spec.n_heads != 0) {
    return corrupt("n_embd: %u is not a multiple of n_head, %u", spec.hidden, spec.n_heads);
  }
  spec.head_dim = spec.hidden / spec.n_heads;
  QSF_ASSIGN_OR_RETURN(spec.activation, parse_activation("activation_function", activation));
  if (spec.activation == Activation::kSilu) {
    return unsupported(
        "activation_function: \"%s\", expected gelu_new, gelu, gelu_pytorch_tanh or "
        "relu",
        activation.c_str());
  }
  QSF_RETURN_IF_ERROR(refuse(fields, "scale_attn_weights", false));
  QSF_RETURN_IF_ERROR(refuse(fields, "scale_attn_by_inverse_layer_idx", true));
  return refuse(fields, "add_cross_attention", true);
}

// rope_scaling of older files, rope_parameters of newer ones: the same keys, theta too in the
// latter.
Status parse_rope(Fields& fields, RopeSpec& rope) {
  rope.theta = fields.positive("rope_theta", 10000.0F);
  const char* key = fields.find("rope_parameters") != nullptr ? "rope_parameters" : "rope_scaling";
  const Json* object = fields.find(key);
  QSF_RETURN_IF_ERROR(fields.status());
  if (object == nullptr) return ok_status();
  if (!object->is_object()) {
    return corrupt("%s: %s, expected an object", key, Fields::shown(*object).c_str());
  }
  Fields inner(*object);
  rope.theta = inner.positive("rope_theta", rope.theta);
  const std::string type = inner.text("rope_type", inner.text("type", "default"));
  const float partial = inner.positive("partial_rotary_factor", 1.0F);
  if (inner.status().ok() && partial != 1.0F) {
    return unsupported("%s: partial_rotary_factor %g is not known to this version", key,
                       static_cast<double>(partial));
  }
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
    rope.factor = inner.positive("factor", std::nullopt);
  } else if (type == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
    rope.factor = inner.positive("factor", std::nullopt);
    rope.low_freq_factor = inner.positive("low_freq_factor", std::nullopt);
    rope.high_freq_factor = inner.positive("high_freq_factor", std::nullopt);
    rope.original_context = inner.u32("original_max_position_embeddings", 1, 1U << 24);
  } else if (type != "default" && inner.status().ok()) {
    return unsupported("%s: type \"%s\" is not known to this version, which has linear and llama3",
                       key, type.substr(0, 64).c_str());
  }
  if (!inner.status().ok()) return Status(inner.status()).with_context(key);
  return ok_status();
}

// The part that Llama, Mistral and Qwen2 share.
Status parse_llama_like(Fields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.hidden = fields.u32("hidden_size", 1, 1U << 20);
  spec.n_layers = fields.u32("num_hidden_layers", 1, 4096);
  spec.n_heads = fields.u32("num_attention_heads", 1, 1U << 16);
  spec.n_kv_heads = fields.u32_or("num_key_value_heads", spec.n_heads, 1, spec.n_heads);
  spec.max_positions = fields.u32("max_position_embeddings", 1, 1U << 24);
  spec.ffn = fields.u32("intermediate_size", 1, 1U << 24);
  spec.norm = NormType::kRmsNorm;
  spec.norm_epsilon = fields.positive("rms_norm_eps", 1e-6F);
  spec.positions = PositionEncoding::kRope;
  spec.gated_ffn = true;
  spec.tied_head = fields.boolean("tie_word_embeddings", false);
  spec.head_dim = fields.u32_or("head_dim", 0, 1, 1U << 16);
  const std::string activation = fields.text("hidden_act", "silu");
  const float partial = fields.positive("partial_rotary_factor", 1.0F);
  QSF_RETURN_IF_ERROR(fields.status());
  if (spec.head_dim == 0) {
    if (spec.hidden % spec.n_heads != 0) {
      return corrupt(
          "hidden_size: %u is not a multiple of num_attention_heads, %u, and there is no "
          "head_dim",
          spec.hidden, spec.n_heads);
    }
    spec.head_dim = spec.hidden / spec.n_heads;
  }
  if (partial != 1.0F) {
    return unsupported("partial_rotary_factor: %g is not known to this version",
                       static_cast<double>(partial));
  }
  QSF_ASSIGN_OR_RETURN(spec.activation, parse_activation("hidden_act", activation));
  if (spec.activation != Activation::kSilu) {
    return unsupported("hidden_act: \"%s\", expected silu", activation.c_str());
  }
  return parse_rope(fields, spec.rope);
}

// Windows by layer where the file says so (layer_types), else the same for every layer.
Status set_windows(Fields& fields, std::uint32_t window, ModelSpec& spec) {
  const Json* types = fields.find("layer_types");
  if (types == nullptr) {
    spec.sliding_window = {window};
    return ok_status();
  }
  if (!types->is_array() || types->size() != spec.n_layers) {
    return corrupt("layer_types: expected a list of %u, one a layer", spec.n_layers);
  }
  for (const Json& type : *types) {
    if (type == "full_attention") {
      spec.sliding_window.push_back(0);
    } else if (type == "sliding_attention") {
      spec.sliding_window.push_back(window);
    } else {
      return unsupported("layer_types: %s is not known to this version",
                         Fields::shown(type).c_str());
    }
  }
  return ok_status();
}

Status parse_llama(Fields& fields, HfConfig& config) {
  config.spec.architecture = "llama";
  QSF_RETURN_IF_ERROR(parse_llama_like(fields, config));
  config.qkv_bias = fields.boolean("attention_bias", false);
  config.attn_out_bias = config.qkv_bias;
  config.ffn_bias = fields.boolean("mlp_bias", false);
  return fields.status();
}

Status require_kv_heads(const Fields& fields) {
  if (fields.has("num_key_value_heads")) return ok_status();
  return corrupt("num_key_value_heads: missing, expected a whole number");
}

Status parse_mistral(Fields& fields, HfConfig& config) {
  constexpr std::uint32_t kDefaultWindow = 4096;  // of the architecture, where the key is absent
  ModelSpec& spec = config.spec;
  spec.architecture = "mistral";
  QSF_RETURN_IF_ERROR(require_kv_heads(fields));
  QSF_RETURN_IF_ERROR(parse_llama_like(fields, config));
  if (fields.has("sliding_window") && fields.find("sliding_window") == nullptr) return ok_status();
  const std::uint32_t window = fields.u32_or("sliding_window", kDefaultWindow, 1, 1U << 30);
  QSF_RETURN_IF_ERROR(fields.status());
  return set_windows(fields, window, spec);
}

// With use_sliding_window, layers from max_window_layers on see a window and those before it all.
Status parse_qwen2(Fields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.architecture = "qwen2";
  QSF_RETURN_IF_ERROR(require_kv_heads(fields));
  QSF_RETURN_IF_ERROR(parse_llama_like(fields, config));
  config.qkv_bias = true;
  const bool windowed = fields.boolean("use_sliding_window", false);
  QSF_RETURN_IF_ERROR(fields.status());
  if (!windowed) return ok_status();
  const std::uint32_t window = fields.u32("sliding_window", 1, 1U << 30);
  QSF_RETURN_IF_ERROR(fields.status());
  if (fields.find("layer_types") != nullptr) return set_windows(fields, window, spec);
  const std::uint32_t first = fields.u32("max_window_layers", 0, 4096);
  QSF_RETURN_IF_ERROR(fields.status());
  spec.sliding_window.assign(spec.n_layers, 0);
  for (std::uint32_t layer = first; layer < spec.n_layers; ++layer) {
    spec.sliding_window[layer] = window;
  }
  return ok_status();
}

// A number, a list of numbers or nothing; -1 means none, as older files write it.
Result<std::vector<std::uint32_t>> parse_ids(const Fields& fields, const char* key) {
  std::vector<std::uint32_t> ids;
  const Json* value = fields.find(key);
  if (value == nullptr) return ids;
  const Json list = value->is_array() ? *value : Json::array({*value});
  if (list.size() > kMaxEosIds) {
    return corrupt("%s: %zu ids, expected at most %zu", key, list.size(), kMaxEosIds);
  }
  for (const Json& id : list) {
    if (id.is_number_integer() && !id.is_number_unsigned() && id.get<std::int64_t>() == -1)
      continue;
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= (1U << 24)) {
      return corrupt("%s: %s, expected a token id", key, Fields::shown(id).c_str());
    }
    ids.push_back(id.get<std::uint32_t>());
  }
  return ids;
}

void append_new(std::vector<std::uint32_t>& ids, const std::vector<std::uint32_t>& more) {
  for (const std::uint32_t id : more) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
}

Status check_id(const char* key, std::uint32_t id, std::uint32_t n_vocab) {
  if (id < n_vocab) return ok_status();
  return corrupt("%s: %u, expected an id below vocab_size, %u", key, id, n_vocab);
}

Status parse_special_tokens(const Fields& fields, HfConfig& config) {
  ModelSpec& spec = config.spec;
  QSF_ASSIGN_OR_RETURN(const std::vector<std::uint32_t> bos, parse_ids(fields, "bos_token_id"));
  QSF_ASSIGN_OR_RETURN(const std::vector<std::uint32_t> eos, parse_ids(fields, "eos_token_id"));
  QSF_ASSIGN_OR_RETURN(const std::vector<std::uint32_t> pad, parse_ids(fields, "pad_token_id"));
  if (!bos.empty()) {
    QSF_RETURN_IF_ERROR(check_id("bos_token_id", bos[0], spec.n_vocab));
    spec.bos_id = bos[0];
  }
  for (const std::uint32_t id : eos) {
    QSF_RETURN_IF_ERROR(check_id("eos_token_id", id, spec.n_vocab));
  }
  append_new(spec.eos_ids, eos);
  if (!pad.empty() && pad[0] < spec.n_vocab) {
    spec.pad_id = pad[0];
  } else if (!pad.empty()) {
    config.warnings.push_back("config.json: pad_token_id " + std::to_string(pad[0]) +
                              " lies outside the vocabulary and is left out");
  }
  return ok_status();
}

Status parse_config(const Json& json, HfConfig& config) {
  Fields fields(json);
  const Json* architectures = fields.find("architectures");
  if (architectures == nullptr || !architectures->is_array() || architectures->size() != 1 ||
      !(*architectures)[0].is_string()) {
    return corrupt("architectures: expected a list of one name");
  }
  const auto name = (*architectures)[0].get<std::string>();
  if (fields.find("quantization_config") != nullptr) {
    return unsupported(
        "quantization_config: the weights are quantised already; convert the "
        "original model");
  }
  config.spec.n_vocab = fields.u32("vocab_size", 1, 1U << 24);
  Status status;
  if (name == "GPT2LMHeadModel") {
    status = parse_gpt2(fields, config);
  } else if (name == "LlamaForCausalLM") {
    status = parse_llama(fields, config);
  } else if (name == "MistralForCausalLM") {
    status = parse_mistral(fields, config);
  } else if (name == "Qwen2ForCausalLM") {
    status = parse_qwen2(fields, config);
  } else {
    return unsupported("architecture \"%s\" is not known to this version, which reads %s",
                       name.substr(0, 128).c_str(), kSupported);
  }
  QSF_RETURN_IF_ERROR(std::move(status));
  config.spec.source = "Hugging Face " + name;
  return parse_special_tokens(fields, config);
}

// The ids of the generation settings come first: they are what the authors stop at.
Status parse_generation(const Json& json, HfConfig& config) {
  const Fields fields(json);
  QSF_ASSIGN_OR_RETURN(std::vector<std::uint32_t> ids, parse_ids(fields, "eos_token_id"));
  for (const std::uint32_t id : ids) {
    QSF_RETURN_IF_ERROR(check_id("eos_token_id", id, config.spec.n_vocab));
  }
  std::vector<std::uint32_t> all;
  append_new(all, ids);
  append_new(all, config.spec.eos_ids);
  config.spec.eos_ids = std::move(all);
  return ok_status();
}

// chat_template is a string, or a list of {name, template} of which "default" is taken.
Status parse_chat_template(const Json& json, HfConfig& config) {
  const Fields fields(json);
  const Json* value = fields.find("chat_template");
  if (value == nullptr) return ok_status();
  if (value->is_string()) {
    config.spec.chat_template = value->get<std::string>();
    return ok_status();
  }
  if (!value->is_array()) return corrupt("chat_template: expected a string or a list");
  for (const Json& entry : *value) {
    if (!entry.is_object() || entry.value("name", Json()) != "default") continue;
    const auto text = entry.find("template");
    if (text == entry.end() || !text->is_string()) {
      return corrupt("chat_template: the entry \"default\" has no template");
    }
    config.spec.chat_template = text->get<std::string>();
    return ok_status();
  }
  config.warnings.push_back("tokenizer_config.json: none of its chat templates is called default");
  return ok_status();
}

Status check_chat_template(std::string_view text) {
  if (text.size() > kMaxTemplateBytes) {
    return corrupt("chat template: %zu bytes, expected at most 4 MiB", text.size());
  }
  const std::size_t at = find_non_text(text);
  if (at == text.size()) return ok_status();
  return corrupt("chat template: byte %zu is NUL or no UTF-8; save it as UTF-8 text", at);
}

Status parse_file(const char* name, std::string_view text, Status (*parse)(const Json&, HfConfig&),
                  HfConfig& config) {
  auto json = parse_json_object(text);
  Status status = json ? parse(*json, config) : std::move(json).error();
  return std::move(status).with_context(name);
}

// Returns the text of a file, empty when there is none.
Result<std::string> read_text(const std::string& path, std::uint64_t max_bytes, FileOps& ops) {
  if (ops.path_kind(path) == PathKind::kMissing) return std::string();
  QSF_ASSIGN_OR_RETURN(const File file, File::open(path, ops));
  QSF_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, file.read_all(max_bytes));
  return std::string(as_text(bytes));
}

}  // namespace

Result<HfConfig> parse_hf_config(const HfConfigTexts& texts) {
  HfConfig config;
  QSF_RETURN_IF_ERROR(parse_file("config.json", texts.config, parse_config, config));
  if (!texts.generation_config.empty()) {
    QSF_RETURN_IF_ERROR(
        parse_file("generation_config.json", texts.generation_config, parse_generation, config));
  }
  if (!texts.chat_template.empty()) {
    config.spec.chat_template = std::string(texts.chat_template);
  } else if (!texts.tokenizer_config.empty()) {
    QSF_RETURN_IF_ERROR(
        parse_file("tokenizer_config.json", texts.tokenizer_config, parse_chat_template, config));
  }
  QSF_RETURN_IF_ERROR(check_chat_template(config.spec.chat_template)
                          .with_context(texts.chat_template.empty() ? "tokenizer_config.json"
                                                                    : "chat_template.jinja"));
  QSF_RETURN_IF_ERROR(validate(config.spec).with_context("config.json"));
  return config;
}

Result<HfConfig> read_hf_config(const std::string& folder, FileOps& ops) {
  if (ops.path_kind(folder + "/config.json") == PathKind::kMissing) {
    return not_found("%s: there is no config.json; expected a folder with a Hugging Face model",
                     folder.c_str());
  }
  QSF_ASSIGN_OR_RETURN(const std::string config,
                       read_text(folder + "/config.json", kMaxConfigBytes, ops));
  QSF_ASSIGN_OR_RETURN(const std::string generation,
                       read_text(folder + "/generation_config.json", kMaxConfigBytes, ops));
  QSF_ASSIGN_OR_RETURN(const std::string tokenizer,
                       read_text(folder + "/tokenizer_config.json", kMaxTokenizerConfigBytes, ops));
  QSF_ASSIGN_OR_RETURN(const std::string chat,
                       read_text(folder + "/chat_template.jinja", kMaxTemplateBytes, ops));
  auto result = parse_hf_config({config, generation, tokenizer, chat});
  if (!result) return std::move(result).error().with_context(folder);
  return result;
}

}  // namespace qsf
