// SPDX-License-Identifier: MIT
#include "tools/serve/api/call_fields.h"

#include <charconv>
#include <climits>
#include <cmath>
#include <limits>

namespace qsf_tools {

namespace {

constexpr std::size_t kMaxLogitBias = 4096;
constexpr std::size_t kMaxDryBreakers = 64;
constexpr std::size_t kMaxStopBytes = 4096;
constexpr std::size_t kMaxStopTokens = 64;
constexpr float kMaxFloat = std::numeric_limits<float>::max();

// Returns the bias of an entry; false, as llama-server has it, bans the token.
std::optional<float> bias_of(const JsonValue& value) {
  if (value.boolean() != nullptr && !*value.boolean()) return -HUGE_VALF;
  const std::optional<double> number = value.number();
  if (!number || *number < -100 || *number > 100) return std::nullopt;
  return static_cast<float>(*number);
}

std::optional<int> token_of(std::string_view text) {
  int token = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), token);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size() || token < 0) {
    return std::nullopt;
  }
  return token;
}

// {"15043": -1.5}, or llama-server's [[15043, -1.5], [29871, false]].
void read_logit_bias(FieldReader& fields, std::vector<qsf_logit_bias>& biases) {
  constexpr std::string_view kField = "logit_bias";
  const JsonValue* value = fields.find(kField);
  if (value == nullptr) return;
  std::vector<std::pair<std::optional<int>, std::optional<float>>> entries;
  if (value->object() != nullptr) {
    for (const JsonMember& member : *value->object()) {
      entries.emplace_back(token_of(member.name), bias_of(member.value));
    }
  } else if (value->array() != nullptr) {
    for (const JsonValue& item : *value->array()) {
      const JsonArray* pair = item.array();
      if (pair == nullptr || pair->size() != 2) {
        entries.emplace_back();
        break;
      }
      const std::optional<std::int64_t> token = (*pair)[0].integer();
      const bool is_token = token && *token >= 0 && *token <= INT_MAX;
      entries.emplace_back(is_token ? std::optional(static_cast<int>(*token)) : std::nullopt,
                           bias_of((*pair)[1]));
    }
  } else {
    return fields.fail(kField, "'logit_bias' is " + std::string(value->type_name()) +
                                   ", expected an object of token ids and numbers");
  }
  if (entries.size() > kMaxLogitBias) {
    return fields.fail(kField, "'logit_bias' has " + std::to_string(entries.size()) +
                                   " entries, expected at most " + std::to_string(kMaxLogitBias));
  }
  for (const auto& [token, bias] : entries) {
    if (!token || !bias) {
      return fields.fail(kField,
                         "'logit_bias' has an entry that is not a token id with a number from "
                         "-100 to 100");
    }
    biases.push_back({*token, *bias});
  }
}

void read_dry(FieldReader& fields, qsf_sampling& sampling, std::vector<std::string>& breakers) {
  fields.read("dry_multiplier", sampling.dry_multiplier, {0, kMaxFloat});
  fields.read("dry_base", sampling.dry_base, {1, kMaxFloat});
  fields.read("dry_allowed_length", sampling.dry_allowed_length, 1, 1024);
  fields.read("dry_window", sampling.dry_window, -1, INT_MAX);
  fields.read("dry_penalty_last_n", sampling.dry_window, -1, INT_MAX);
  fields.read_texts("dry_breakers", kMaxDryBreakers, breakers);
  fields.read_texts("dry_sequence_breakers", kMaxDryBreakers, breakers);
  for (const std::string& text : breakers) {
    if (text.empty() || text.find('\0') != std::string::npos) {
      fields.fail("dry_breakers", "'dry_breakers' has a text that is empty or has a NUL");
    }
  }
}

// Returns the adapter of an entry {"id": 0, "scale": 0.5}, a number of 0 where its scale is 0;
// reports what is wrong with it.
TextAdapter read_lora_entry(FieldReader& fields, const ApiSettings& settings,
                            const JsonValue& entry) {
  constexpr std::string_view kField = "lora";
  const JsonValue* id = entry.member("id");
  const std::optional<std::int64_t> index = id == nullptr ? std::nullopt : id->integer();
  if (!index) {
    fields.fail(kField,
                "'lora' has an entry without the id of an adapter, expected entries as "
                "{\"id\": 0, \"scale\": 0.5}");
    return {};
  }
  const auto n_adapters = static_cast<std::int64_t>(settings.adapters.size());
  if (*index < 0 || *index >= n_adapters) {
    fields.fail(kField, "'lora' names adapter " + std::to_string(*index) +
                            (n_adapters == 0 ? ", but the server has none; start it with --lora"
                                             : ", but the server's adapters are 0 to " +
                                                   std::to_string(n_adapters - 1)));
    return {};
  }
  TextAdapter adapter{.number = static_cast<int>(*index) + 1, .scale = settings.adapter_scale};
  if (const JsonValue* value = entry.member("scale"); value != nullptr && !value->is_null()) {
    const std::optional<double> scale = value->number();
    if (!scale || std::abs(*scale) > kMaxFloat) {
      fields.fail(kField, "'lora' has a 'scale' that is no number of 32 bits");
      return {};
    }
    adapter.scale = static_cast<float>(*scale);
  }
  return adapter.scale == 0.0F ? TextAdapter() : adapter;
}

// llama-server's list of adapters, those that it leaves out being 0; here one of them may be on. An
// empty list is the same as none there, and here.
void read_lora(FieldReader& fields, const ApiSettings& settings, TextRequest& text) {
  const JsonArray* entries = fields.read_array("lora");
  if (entries == nullptr || entries->empty()) return;
  text.adapter.emplace();
  for (const JsonValue& entry : *entries) {
    const TextAdapter adapter = read_lora_entry(fields, settings, entry);
    if (adapter.number == 0) continue;
    if (text.adapter->number != 0) {
      return fields.fail("lora",
                         "'lora' has two entries with a scale other than 0; a text takes one "
                         "adapter");
    }
    text.adapter = adapter;
  }
}

// Samplers of other servers, and the values that switch them off.
void refuse_other_samplers(FieldReader& fields) {
  fields.not_built("mirostat", kNeutralZero);
  fields.not_built("dynatemp_range", kNeutralZero);
  fields.not_built("tfs_z", kNeutralOne);
  fields.not_built("top_a", kNeutralZero);
  fields.not_built("epsilon_cutoff", kNeutralZero);
  fields.not_built("eta_cutoff", kNeutralZero);
  fields.not_built("samplers", kNeutralEmpty, "the order of the samplers is fixed");
  fields.not_built("use_beam_search", kNeutralFalse);
  fields.not_built("length_penalty", kNeutralOne);
  fields.not_built("min_tokens", kNeutralZero);
  fields.not_built("bad_words", kNeutralEmpty);
  fields.not_built("allowed_token_ids", kNeutralEmpty);
  fields.not_built("guided_regex", kNeutralEmpty, "use 'grammar'");
  fields.not_built("guided_choice", kNeutralEmpty, "use 'grammar'");
  fields.not_built("structured_outputs", kNeutralEmpty, "use 'response_format' or 'grammar'");
  fields.not_built("include_stop_str_in_output", kNeutralFalse);
  fields.not_built("skip_special_tokens", kNeutralTrue);
  fields.not_built("truncate_prompt_tokens", kNeutralZero);
  // -1 is off.
  float top_n_sigma = -1;
  fields.read("top_n_sigma", top_n_sigma, {-kMaxFloat, 0});
  fields.accept({"mirostat_tau", "mirostat_eta", "dynatemp_exponent"});
}

// Reports a second constraint, and returns whether this is the first.
bool is_only_constraint(FieldReader& fields, std::string_view field,
                        const TextConstraint& constraint) {
  if (constraint.kind == TextConstraint::Kind::kNone) return true;
  fields.fail(field, "'" + std::string(field) +
                         "' comes beside another field that constrains the "
                         "answer; name one of them");
  return false;
}

void read_grammar(FieldReader& fields, std::string_view field, TextConstraint& constraint) {
  std::string grammar;
  fields.read(field, grammar);
  if (grammar.empty() || !is_only_constraint(fields, field, constraint)) return;
  constraint.kind = TextConstraint::Kind::kGrammar;
  constraint.source = std::move(grammar);
  constraint.param = field;
}

// A schema, as an object or as its text.
void read_schema(FieldReader& fields, std::string_view field, TextConstraint& constraint) {
  const JsonValue* schema = fields.find(field);
  if (schema == nullptr) return;
  JsonValue parsed;
  std::string error;
  if (schema->text() != nullptr) {
    if (!parse_json(*schema->text(), JsonLimits(), parsed, error)) {
      return fields.fail(field, "'" + fields.full_name(field) + "' is no JSON: " + error);
    }
    schema = &parsed;
  }
  if (schema->object() == nullptr && schema->boolean() == nullptr) {
    return fields.fail(field, "'" + fields.full_name(field) + "' is " + schema->type_name() +
                                  ", expected a JSON Schema, an object");
  }
  if (!is_only_constraint(fields, field, constraint)) return;
  constraint.kind = TextConstraint::Kind::kJsonSchema;
  constraint.source = schema->to_text();
  constraint.param = fields.full_name(field);
}

}  // namespace

void read_sampling(FieldReader& fields, const ApiSettings& settings, ChatCall& call) {
  qsf_sampling& sampling = call.text.sampling;
  sampling = settings.sampling;
  fields.read("temperature", sampling.temperature, {0, 2});
  fields.read("top_k", sampling.top_k, -1, INT_MAX);
  if (sampling.top_k < 0) sampling.top_k = 0;  // vLLM's name for all
  fields.read("top_p", sampling.top_p, {0, 1});
  // Nothing but the likeliest token.
  if (sampling.top_p == 0) sampling.top_p = std::numeric_limits<float>::min();
  fields.read("min_p", sampling.min_p, {0, 1});
  fields.read("typical_p", sampling.typical_p, {0, 1, true});
  for (const std::string_view name : {"repeat_penalty", "repetition_penalty"}) {
    fields.read(name, sampling.repeat_penalty, {0, kMaxFloat, true});
  }
  for (const std::string_view name : {"repeat_window", "repeat_last_n"}) {
    fields.read(name, sampling.repeat_window, -1, INT_MAX);
  }
  if (sampling.repeat_window < 0) sampling.repeat_window = INT_MAX;  // llama-server's -1: all
  fields.read("frequency_penalty", sampling.frequency_penalty, {-2, 2});
  fields.read("presence_penalty", sampling.presence_penalty, {-2, 2});
  read_dry(fields, sampling, call.text.dry_breakers);
  fields.read("xtc_probability", sampling.xtc_probability, {0, 1});
  fields.read("xtc_threshold", sampling.xtc_threshold, {0, 1});
  fields.read_seed("seed", call.seed);
  fields.read("ignore_eos", call.text.ignore_end);
  read_logit_bias(fields, call.text.logit_bias);
  read_lora(fields, settings, call.text);
  refuse_other_samplers(fields);
}

void read_max_tokens(FieldReader& fields, std::string_view field, int& max_tokens) {
  fields.read(field, max_tokens, -1, INT_MAX);
}

void read_stop(FieldReader& fields, std::string_view field, const ApiSettings& settings,
               TextRequest& text) {
  fields.read_texts(field, static_cast<std::size_t>(settings.max_stop_texts), text.stop);
  for (const std::string& stop : text.stop) {
    if (!stop.empty() && stop.size() <= kMaxStopBytes && stop.find('\0') == std::string::npos) {
      continue;
    }
    fields.fail(field, "'" + fields.full_name(field) +
                           "' has a text that is empty, has a NUL, or is longer than " +
                           std::to_string(kMaxStopBytes) + " bytes");
  }
  const JsonArray* tokens = fields.read_array("stop_token_ids");
  if (tokens == nullptr) return;
  for (const JsonValue& item : *tokens) {
    const std::optional<std::int64_t> token = item.integer();
    if (!token || *token < 0 || *token > INT_MAX || text.end_tokens.size() == kMaxStopTokens) {
      return fields.fail("stop_token_ids", "'stop_token_ids' is not a list of up to " +
                                               std::to_string(kMaxStopTokens) + " token ids");
    }
    text.end_tokens.push_back(static_cast<int>(*token));
  }
}

void read_format(FieldReader& fields, std::string_view field, FieldReport& report,
                 TextConstraint& constraint) {
  const JsonValue* format = fields.read_object(field);
  if (format == nullptr) return;
  FieldReader members(*format, fields.full_name(field), report);
  if (format->member("type") == nullptr)
    members.fail("type", "'" + members.full_name("type") + "' is missing");
  std::size_t word = 0;
  members.read_word("type", {"text", "json_object", "json_schema"}, word);
  if (!members.ok() || word == 0 || !is_only_constraint(fields, field, constraint)) return;
  if (word == 1) {
    read_schema(members, "schema", constraint);
  } else if (const JsonValue* nested = members.read_object("json_schema")) {
    FieldReader named(*nested, members.full_name("json_schema"), report);
    read_schema(named, "schema", constraint);
  } else {
    if (members.find("schema") == nullptr) {
      members.fail("json_schema", "'" + members.full_name("json_schema") +
                                      "' is missing, expected an object with a schema");
    }
    read_schema(members, "schema", constraint);
  }
  // A format without a schema is any object.
  if (constraint.kind == TextConstraint::Kind::kNone) {
    constraint.kind = TextConstraint::Kind::kJsonObject;
    constraint.param = fields.full_name(field);
  }
}

void read_constraint(FieldReader& fields, FieldReport& report, TextConstraint& constraint) {
  read_format(fields, "response_format", report, constraint);
  read_schema(fields, "json_schema", constraint);
  read_schema(fields, "guided_json", constraint);
  read_grammar(fields, "grammar", constraint);
  read_grammar(fields, "guided_grammar", constraint);
}

void read_template_variables(FieldReader& fields, ChatCall& call) {
  JsonValue variables{JsonObject()};
  std::string effort;
  fields.read("reasoning_effort", effort);
  if (!effort.empty()) {
    variables.set("reasoning_effort", JsonValue(effort));
    if (effort == "none") variables.set("enable_thinking", JsonValue(false));
  }
  if (fields.find("enable_thinking") != nullptr) {
    bool thinks = true;
    fields.read("enable_thinking", thinks);
    variables.set("enable_thinking", JsonValue(thinks));
  }
  if (const JsonValue* more = fields.read_object("chat_template_kwargs")) {
    for (const JsonMember& member : *more->object()) variables.set(member.name, member.value);
  }
  if (!variables.object()->empty()) call.variables = variables.to_text();
}

void accept_without_effect(FieldReader& fields) {
  fields.accept({"user", "metadata", "safety_identifier", "prompt_cache_key",
                 "prompt_cache_retention", "keep_alive", "cache_prompt", "id_slot", "prediction"});
  fields.not_built("store", kNeutralFalse, "answers are not stored");
  std::size_t tier = 0;
  fields.read_word("service_tier", {"auto", "default"}, tier);
}

}  // namespace qsf_tools
