// SPDX-License-Identifier: MIT

#include "import/hf/peft_config.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "format/adapter_spec.h"
#include "import/hf/config_fields.h"
#include "import/json_document.h"

namespace qsf {
namespace {

// Keys that are read elsewhere, or that matter in training or to find the base alone.
constexpr std::string_view kPassedKeys[] = {"alpha_pattern",
                                            "auto_mapping",
                                            "base_model_name_or_path",
                                            "bias",
                                            "corda_config",
                                            "eva_config",
                                            "exclude_modules",
                                            "fan_in_fan_out",
                                            "inference_mode",
                                            "init_lora_weights",
                                            "layers_pattern",
                                            "layers_to_transform",
                                            "loftq_config",
                                            "lora_alpha",
                                            "lora_dropout",
                                            "lora_ga_config",
                                            "megatron_core",
                                            "peft_type",
                                            "peft_version",
                                            "qalora_group_size",
                                            "r",
                                            "rank_pattern",
                                            "revision",
                                            "runtime_config",
                                            "target_modules",
                                            "task_type",
                                            "use_rslora",
                                            "velora_config"};

// Ways to begin training that leave the base as it is.
constexpr std::string_view kPlainStarts[] = {"gaussian", "eva", "orthogonal", "mica"};

template <std::size_t n>
bool is_among(std::string_view name, const std::string_view (&names)[n]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Whether a value turns something on: not null, false, [] or {}. Texts and numbers of unknown keys
// only describe.
bool turns_on(const JsonValue& value) noexcept {
  return value.boolean().value_or(false) || value.size() != 0;
}

Status refuse_features(const JsonValue& root) {
  for (const auto& [name, value] : root.members()) {
    if (is_among(name, kPassedKeys) || !turns_on(value)) continue;
    return unsupported("%s is %s: adapters with it are not supported",
                       std::string(name.substr(0, 64)).c_str(), value.shown().c_str());
  }
  return ok_status();
}

// PiSSA, OLoRA, CorDA and others train a part of the base's own weights, whose rest is another
// base.
Status check_start(const JsonValue& root) {
  const JsonValue* value = root.find("init_lora_weights");
  if (value == nullptr || value->boolean().has_value()) return ok_status();
  const auto text = value->text();
  if (text && is_among(*text, kPlainStarts)) return ok_status();
  return unsupported(
      "init_lora_weights is %s: the base of such an adapter has other weights than the published "
      "one; save it with path_initial_model_for_weight_conversion",
      value->shown().c_str());
}

bool is_word(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

// Returns nothing for a regular expression of another form.
std::optional<PeftPattern> parse_pattern(std::string_view key) {
  PeftPattern pattern;
  pattern.whole = key.starts_with('^');
  if (pattern.whole) key.remove_prefix(1);
  for (std::size_t i = 0; i < key.size(); ++i) {
    const bool escaped = key[i] == '\\';
    if (escaped && ++i == key.size()) return std::nullopt;
    if (escaped ? key[i] != '.' : !is_word(key[i]) && key[i] != '.') return std::nullopt;
    pattern.text += key[i];
    pattern.any += !escaped && key[i] == '.' ? '1' : '0';
  }
  if (pattern.text.empty()) return std::nullopt;
  return pattern;
}

constexpr std::size_t kMaxPatterns = 1U << 14;  // several for each module of the largest models

// Reads the object under `key`; its values are numbers from `low` to `high`, `whole` ones or any.
Result<std::vector<PeftPattern>> parse_patterns(const JsonValue& root, const char* key, bool whole,
                                                double low, double high) {
  std::vector<PeftPattern> patterns;
  const JsonValue* object = root.find(key);
  if (object == nullptr) return patterns;
  if (!object->is_object() || object->size() > kMaxPatterns) {
    return corrupt("%s is %s, expected an object of at most %zu numbers", key,
                   object->shown().c_str(), kMaxPatterns);
  }
  for (const auto& [name, value] : object->members()) {
    auto pattern = parse_pattern(name);
    const std::string shown(name.substr(0, 128));
    if (!pattern) {
      return unsupported("%s: \"%s\" is a regular expression of a form that is not read", key,
                         shown.c_str());
    }
    const auto number = value.number();
    const bool in_range = number && *number >= low && *number <= high;
    if (!in_range || (whole && *number != std::floor(*number))) {
      return corrupt("%s: \"%s\" is %s, expected a %s from %g to %g", key, shown.c_str(),
                     value.shown().c_str(), whole ? "whole number" : "number", low, high);
    }
    pattern->value = *number;
    patterns.push_back(std::move(*pattern));
  }
  return patterns;
}

// Returns the value of the patterns that match, `fallback` where none does.
Result<double> value_of(const std::vector<PeftPattern>& patterns, std::string_view module,
                        const char* key, double fallback) {
  const PeftPattern* found = nullptr;
  for (const PeftPattern& pattern : patterns) {
    if (!pattern.matches(module)) continue;
    if (found != nullptr && found->value != pattern.value) {
      return unsupported("%s: \"%s\" and \"%s\" both match %s; expected one value for it", key,
                         found->text.c_str(), pattern.text.c_str(),
                         std::string(module.substr(0, 256)).c_str());
    }
    found = &pattern;
  }
  return found == nullptr ? fallback : found->value;
}

constexpr double kMaxAlpha = 1e9;  // its quotients are finite f32

}  // namespace

bool PeftPattern::matches(std::string_view module) const noexcept {
  if (module.size() < text.size() || (whole && module.size() != text.size())) return false;
  const std::size_t first = module.size() - text.size();
  if (first != 0 && module[first - 1] != '.') return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (any[i] == '0' && text[i] != module[first + i]) return false;
  }
  return true;
}

Result<std::uint32_t> PeftConfig::rank_of(std::string_view module) const {
  QSF_ASSIGN_OR_RETURN(const double value, value_of(ranks, module, "rank_pattern", rank));
  return static_cast<std::uint32_t>(value);
}

Result<float> PeftConfig::scale_of(std::string_view module) const {
  QSF_ASSIGN_OR_RETURN(const std::uint32_t own_rank, rank_of(module));
  QSF_ASSIGN_OR_RETURN(const double own_alpha, value_of(alphas, module, "alpha_pattern", alpha));
  const double divisor = rank_stabilised ? std::sqrt(static_cast<double>(own_rank)) : own_rank;
  return static_cast<float>(own_alpha / divisor);
}

Result<PeftConfig> parse_peft_config(std::string_view json) {
  QSF_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(json));
  const JsonValue& root = document.root();
  ConfigFields fields(root);
  PeftConfig config;
  const std::string type = fields.text("peft_type", "");
  const std::string bias = fields.text("bias", "none");
  QSF_RETURN_IF_ERROR(fields.status());
  if (type != "LORA") {
    return unsupported("peft_type is \"%s\", expected \"LORA\"", type.substr(0, 64).c_str());
  }
  if (bias != "none") {
    return unsupported(
        "bias is \"%s\": adapters that train biases are not supported; expected "
        "\"none\"",
        bias.substr(0, 64).c_str());
  }
  QSF_RETURN_IF_ERROR(check_start(root));
  QSF_RETURN_IF_ERROR(refuse_features(root));
  config.rank = fields.u32("r", 1, kMaxAdapterRank);
  config.rank_stabilised = fields.boolean("use_rslora", false);
  QSF_RETURN_IF_ERROR(fields.status());
  const JsonValue* alpha = root.find("lora_alpha");
  const auto number = alpha == nullptr ? std::nullopt : alpha->number();
  if (!number || !(std::fabs(*number) <= kMaxAlpha)) {
    return corrupt("lora_alpha is %s, expected a number",
                   alpha == nullptr ? "missing" : alpha->shown().c_str());
  }
  config.alpha = *number;
  QSF_ASSIGN_OR_RETURN(config.ranks,
                       parse_patterns(root, "rank_pattern", true, 1, kMaxAdapterRank));
  QSF_ASSIGN_OR_RETURN(config.alphas,
                       parse_patterns(root, "alpha_pattern", false, -kMaxAlpha, kMaxAlpha));
  return config;
}

}  // namespace qsf
