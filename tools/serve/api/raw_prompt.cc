// SPDX-License-Identifier: MIT
#include "tools/serve/api/raw_prompt.h"

#include <algorithm>
#include <climits>
#include <string>
#include <utility>

#include "tools/serve/api/api_error.h"

namespace qsf_tools {

namespace {

// The tokens between which a model that was trained to fill in the middle expects the text before
// and behind the gap.
struct FimSyntax {
  std::string_view prefix;
  std::string_view suffix;
  std::string_view middle;    // empty: the answer begins behind the prefix
  bool suffix_first = false;  // suffix, prefix, middle
};

constexpr FimSyntax kFimSyntaxes[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},     // Qwen, Granite 3, CodeGemma
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},           // StarCoder, Granite Code, SmolLM
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},           // SantaCoder
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},  // GLM
    {"<\uFF5Cfim\u2581begin\uFF5C>", "<\uFF5Cfim\u2581hole\uFF5C>",
     "<\uFF5Cfim\u2581end\uFF5C>"},                 // DeepSeek
    {"\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"},  // CodeLlama
    {"[PREFIX]", "[SUFFIX]", "", true},             // Codestral
};

// Tokens that such models write when the gap is filled, beside their end of text.
constexpr std::string_view kFimEnds[] = {"<|fim_pad|>", "<|file_sep|>", "<|repo_name|>",
                                         "<file_sep>", "\u2581<EOT>"};

// Reads an array of tokens.
std::optional<std::vector<int>> read_tokens(const JsonArray& items) {
  std::vector<int> tokens;
  tokens.reserve(items.size());
  for (const JsonValue& item : items) {
    const std::optional<std::int64_t> token = item.integer();
    if (!token || *token < 0 || *token > INT_MAX) return std::nullopt;
    tokens.push_back(static_cast<int>(*token));
  }
  return tokens;
}

std::optional<RawPrompt> read_prompt(const JsonValue& value) {
  RawPrompt prompt;
  if (const std::string* text = value.text()) {
    prompt.text = *text;
  } else if (value.array() != nullptr && !value.array()->empty()) {
    prompt.tokens = read_tokens(*value.array());
    if (!prompt.tokens) return std::nullopt;
  } else {
    return std::nullopt;
  }
  return prompt;
}

std::optional<ApiError> check_tokens(const std::vector<int>& tokens, int n_vocab,
                                     std::string_view param) {
  const auto is_unknown = [n_vocab](int token) { return token < 0 || token >= n_vocab; };
  const auto unknown = std::find_if(tokens.begin(), tokens.end(), is_unknown);
  if (unknown == tokens.end()) return std::nullopt;
  return invalid_field(std::string(param),
                       "'" + std::string(param) + "' has token " + std::to_string(*unknown) +
                           ", but the model's tokens end at " + std::to_string(n_vocab - 1) +
                           "; send text, or the ids of this model's own tokenizer");
}

// Returns the token that a text is as a whole; -1 where there is none.
int whole_token(const ModelAccess& access, const LoadedModel& model, std::string_view text) {
  std::vector<int> tokens;
  constexpr unsigned kFlags = QSF_TOKENIZE_NO_BOS | QSF_TOKENIZE_PARSE_SPECIAL;
  if (text.empty() || access.tokenize(model, text, kFlags, tokens) || tokens.size() != 1) return -1;
  return tokens.front();
}

std::optional<ApiError> fim_tokens(const ModelAccess& access, const LoadedModel& model,
                                   const RawPrompt& prompt, std::vector<int>& end_tokens,
                                   std::vector<int>& tokens) {
  const auto append_text = [&](std::string_view text) -> std::optional<ApiError> {
    std::vector<int> part;
    auto error = access.tokenize(model, text, QSF_TOKENIZE_NO_BOS, part);
    tokens.insert(tokens.end(), part.begin(), part.end());
    return error;
  };
  for (const FimSyntax& syntax : kFimSyntaxes) {
    const int before = whole_token(access, model, syntax.prefix);
    const int behind = whole_token(access, model, syntax.suffix);
    const int middle = whole_token(access, model, syntax.middle);
    if (before < 0 || behind < 0 || (middle < 0 && !syntax.middle.empty())) continue;
    if (auto error = access.tokenize(model, "", QSF_TOKENIZE_DEFAULT, tokens)) return error;
    for (const bool is_suffix : {syntax.suffix_first, !syntax.suffix_first}) {
      tokens.push_back(is_suffix ? behind : before);
      if (auto error = append_text(is_suffix ? *prompt.suffix : prompt.text)) return error;
    }
    if (middle >= 0) tokens.push_back(middle);
    for (const std::string_view end : kFimEnds) {
      const int token = whole_token(access, model, end);
      if (token >= 0) end_tokens.push_back(token);
    }
    return std::nullopt;
  }
  return invalid_field("suffix",
                       "'suffix' is not supported by this model: it has no "
                       "fill-in-the-middle tokens");
}

}  // namespace

std::vector<RawPrompt> read_raw_prompts(FieldReader& fields, std::string_view field,
                                        std::size_t max) {
  std::vector<RawPrompt> prompts;
  const std::string name = "'" + fields.full_name(field) + "'";
  const JsonValue* value = fields.find(field);
  if (value == nullptr) {
    fields.fail(field, name + " is missing");
    return prompts;
  }
  if (std::optional<RawPrompt> prompt = read_prompt(*value)) {
    prompts.push_back(std::move(*prompt));
    return prompts;
  }
  const JsonArray* items = value->array();
  if (items == nullptr || items->empty() || items->size() > max) {
    fields.fail(field, name + " is " +
                           (items == nullptr ? std::string(value->type_name())
                                             : "an array of " + std::to_string(items->size())) +
                           ", expected a string, an array of tokens, or an array of 1 to " +
                           std::to_string(max) + " of either");
    return prompts;
  }
  for (std::size_t i = 0; i < items->size(); ++i) {
    std::optional<RawPrompt> prompt = read_prompt((*items)[i]);
    if (!prompt) {
      const std::string entry = std::string(field) + "[" + std::to_string(i) + "]";
      fields.fail(entry, "'" + fields.full_name(entry) +
                             "' is neither a string nor an array of "
                             "tokens");
      break;
    }
    prompts.push_back(std::move(*prompt));
  }
  return prompts;
}

std::optional<ApiError> raw_tokens(const ApiSettings& settings, const LoadedModel& model,
                                   const RawPrompt& prompt, std::vector<int>& end_tokens,
                                   std::vector<int>& tokens, std::string_view param) {
  if (prompt.tokens) {
    tokens = *prompt.tokens;
    return check_tokens(tokens, model.info.n_vocab, param);
  }
  if (prompt.suffix) return fim_tokens(*settings.access, model, prompt, end_tokens, tokens);
  unsigned flags = QSF_TOKENIZE_DEFAULT;
  if (prompt.parse_special) flags |= QSF_TOKENIZE_PARSE_SPECIAL;
  if (!prompt.add_bos) flags |= QSF_TOKENIZE_NO_BOS;
  return settings.access->tokenize(model, prompt.text, flags, tokens);
}

}  // namespace qsf_tools
