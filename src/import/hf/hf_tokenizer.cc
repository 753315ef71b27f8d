// SPDX-License-Identifier: MIT

#include "import/hf/hf_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "import/gguf/gguf_pretokenizers.h"
#include "import/hf/hf_tokenizer_json.h"
#include "import/hf/hf_vocabulary.h"
#include "import/json_access.h"
#include "import/sentencepiece_model.h"

namespace qsf {

namespace {

constexpr HfTokenizerFileName kFileNames[] = {
    {"tokenizer.json", &HfTokenizerFiles::tokenizer_json},
    {"tokenizer.model", &HfTokenizerFiles::tokenizer_model},
    {"vocab.json", &HfTokenizerFiles::vocab_json},
    {"merges.txt", &HfTokenizerFiles::merges_txt},
    {"added_tokens.json", &HfTokenizerFiles::added_tokens_json},
    {"special_tokens_map.json", &HfTokenizerFiles::special_tokens_map_json},
    {"tokenizer_config.json", &HfTokenizerFiles::tokenizer_config_json},
};

Result<Json> parse_optional(const std::optional<std::string>& text, const char* file) {
  if (!text.has_value()) return Json::object();
  return parse_json(*text, file);
}

// Returns the text of a special token, which files state as a string or as an object.
const std::string* token_text(const Json& json, const char* name) noexcept {
  const Json* member = json_member(json, name);
  if (member == nullptr) return nullptr;
  const std::string* text = json_string(*member);
  return text != nullptr ? text : json_string(*member, "content");
}

// Makes an added token special, whatever its own entry says.
void make_special(std::string_view text, TokenizerData& data) {
  const TokenId id = find_hf_token(data, text);
  if (id == kNoToken) return;
  for (AddedToken& token : data.added) {
    if (token.id != id) continue;
    token.special = true;
    TokenType& type = data.tokens[id].type;
    if (type == TokenType::kUserDefined) type = TokenType::kControl;
  }
}

// The tokens that the configuration gives a role are control tokens: turn markers that a
// tokenizer.json lists as plain text must not be spelled by text from outside.
void make_named_tokens_special(const Json& json, TokenizerData& data) {
  for (const char* name : {"bos_token", "eos_token", "pad_token", "sep_token", "cls_token"}) {
    const std::string* text = token_text(json, name);
    if (text != nullptr) make_special(*text, data);
  }
  for (const char* name : {"additional_special_tokens", "extra_special_tokens"}) {
    const Json* list = json_member(json, name);
    if (list == nullptr || !list->is_structured()) continue;
    for (const Json& entry : *list) {
      const std::string* text = json_string(entry);
      if (text == nullptr) text = json_string(entry, "content");
      if (text != nullptr) make_special(*text, data);
    }
  }
}

// Adds the tokens that only the configuration and added_tokens.json know.
Status add_listed_tokens(const Json& config, const Json& listed, TokenizerData& data) {
  std::vector<TokenId> known;
  const Json* decoder = json_member(config, "added_tokens_decoder");
  if (decoder != nullptr && decoder->is_object()) {
    // In the order of ids, so that none lies far beyond the vocabulary so far.
    std::vector<std::pair<std::uint64_t, const Json*>> entries;
    for (const auto& item : decoder->items()) {
      std::uint64_t id = 0;
      const std::string& key = item.key();
      const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
      if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size()) {
        return corrupt("tokenizer_config.json: added_tokens_decoder: \"%s\" is not an id",
                       key.substr(0, 40).c_str());
      }
      entries.emplace_back(id, &item.value());
    }
    std::sort(entries.begin(), entries.end());
    for (const auto& [id, entry] : entries) {
      QSF_RETURN_IF_ERROR(add_hf_token(*entry, id, data));
      known.push_back(static_cast<TokenId>(id));
    }
  }
  for (const auto& item : listed.items()) {
    const auto id = json_unsigned(item.value());
    if (!id.has_value()) return corrupt("added_tokens.json: an id is not a number");
    if (std::binary_search(known.begin(), known.end(), *id)) continue;
    Json entry = Json::object();
    entry["content"] = item.key();
    entry["normalized"] = false;
    QSF_RETURN_IF_ERROR(add_hf_token(entry, *id, data));
  }
  // Both files list tokens that the model has as well; the first entry of a text is kept.
  return ok_status();
}

void set_special_ids(const Json& config, const Json& map, TokenizerData& data) {
  const auto set = [&](const char* name, bool replace, TokenId& id) {
    if (id != kNoToken && !replace) return;
    const std::string* text = token_text(config, name);
    if (text == nullptr) text = token_text(map, name);
    if (text == nullptr) return;
    const TokenId found = find_hf_token(data, *text);
    if (found != kNoToken) id = found;
  };
  // A token that the template adds keeps its place.
  set("bos_token", !data.add_bos, data.bos);
  set("eos_token", !data.add_eos, data.eos);
  set("pad_token", true, data.pad);
  set("unk_token", false, data.unk);
  data.stop_ids.clear();
  if (data.eos != kNoToken) data.stop_ids.push_back(data.eos);
}

// The classes whose add_bos_token and add_eos_token rule over the file's own template.
bool class_rules(const Json& config) {
  const std::string* name = json_string(config, "tokenizer_class");
  return name != nullptr && (name->starts_with("Llama") || name->starts_with("CodeLlama") ||
                             name->starts_with("Gemma"));
}

void set_add_rules(const Json& config, bool has_template, bool bos_by_default,
                   TokenizerData& data) {
  const auto add_bos = json_bool(config, "add_bos_token");
  const auto add_eos = json_bool(config, "add_eos_token");
  if (!has_template) {
    data.add_bos = add_bos.value_or(bos_by_default);
    data.add_eos = add_eos.value_or(false);
  } else if (class_rules(config)) {
    data.add_bos = add_bos.value_or(data.add_bos);
    data.add_eos = add_eos.value_or(data.add_eos);
  }
  data.add_bos = data.add_bos && data.bos != kNoToken;
  data.add_eos = data.add_eos && data.eos != kNoToken;
}

// Applies what the configuration says of the space in front of a SentencePiece text.
void set_space_prefix(const Json& config, TokenizerData& data) {
  const bool wanted = json_bool(config, "add_prefix_space").value_or(true);
  const bool first_only = !json_bool(config, "legacy").value_or(true);
  std::erase_if(data.steps,
                [wanted](const TextStep& step) { return step.op == TextOp::kPrepend && !wanted; });
  for (TextStep& step : data.steps) {
    if (step.op == TextOp::kPrepend) step.first_only = first_only;
  }
  data.strip_leading_space = data.strip_leading_space && wanted;
}

Result<TokenizerData> from_vocab_and_merges(const HfTokenizerFiles& files, const Json& config) {
  QSF_ASSIGN_OR_RETURN(const Json vocabulary, parse_json(*files.vocab_json, "vocab.json"));
  TokenizerData data;
  data.kind = TokenizerKind::kByteBpe;
  QSF_RETURN_IF_ERROR(read_hf_vocabulary(vocabulary, data));
  std::vector<MergeText> merges;
  std::string_view rest = *files.merges_txt;
  for (bool first = true; !rest.empty(); first = false) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (first && line.starts_with("#version"))) continue;
    MergeText merge;
    if (!split_merge_line(line, merge)) {
      return corrupt("merges.txt: rule %zu: expected two tokens", merges.size());
    }
    merges.push_back(merge);
  }
  QSF_RETURN_IF_ERROR(read_hf_merges(merges, data));

  const std::string* name = json_string(config, "tokenizer_class");
  const bool qwen = name != nullptr && name->starts_with("Qwen2");
  if (name != nullptr && !qwen && !name->starts_with("GPT2") && !name->starts_with("CodeGen")) {
    return unsupported(
        "tokenizer_config.json: class \"%s\" with vocab.json and merges.txt, expected "
        "GPT2Tokenizer, CodeGenTokenizer or Qwen2Tokenizer; a tokenizer.json would state its rules",
        name->substr(0, 60).c_str());
  }
  TextStep step;
  if (json_bool(config, "add_prefix_space").value_or(false)) {
    step.op = TextOp::kPrepend;
    step.text = " ";
    step.unless_present = true;
    data.steps.push_back(step);
    step = TextStep{};
  }
  step.text = qwen ? find_gguf_pretokenizer("qwen2")->expressions[0] : gpt2_expression();
  data.nfc = qwen;
  data.steps.push_back(std::move(step));
  return data;
}

}  // namespace

std::span<const HfTokenizerFileName> hf_tokenizer_file_names() noexcept {
  return kFileNames;
}

Result<TokenizerData> tokenizer_from_hf(const HfTokenizerFiles& files) {
  QSF_ASSIGN_OR_RETURN(const Json config,
                       parse_optional(files.tokenizer_config_json, "tokenizer_config.json"));
  QSF_ASSIGN_OR_RETURN(const Json map,
                       parse_optional(files.special_tokens_map_json, "special_tokens_map.json"));
  QSF_ASSIGN_OR_RETURN(const Json listed,
                       parse_optional(files.added_tokens_json, "added_tokens.json"));
  if (files.tokenizer_json.has_value()) {
    QSF_ASSIGN_OR_RETURN(HfTokenizerJson read, read_hf_tokenizer_json(*files.tokenizer_json));
    set_special_ids(config, map, read.data);
    set_add_rules(config, read.has_template, /*bos_by_default=*/false, read.data);
    make_named_tokens_special(config, read.data);
    make_named_tokens_special(map, read.data);
    return std::move(read.data);
  }
  if (files.tokenizer_model.has_value()) {
    QSF_ASSIGN_OR_RETURN(TokenizerData data,
                         tokenizer_from_sentencepiece(as_bytes(*files.tokenizer_model)));
    QSF_RETURN_IF_ERROR(add_listed_tokens(config, listed, data));
    set_special_ids(config, map, data);
    set_add_rules(config, /*has_template=*/false, /*bos_by_default=*/true, data);
    set_space_prefix(config, data);
    return data;
  }
  if (files.vocab_json.has_value() && files.merges_txt.has_value()) {
    QSF_ASSIGN_OR_RETURN(TokenizerData data, from_vocab_and_merges(files, config));
    // Texts of added tokens are no byte alphabet, so the vocabulary leaves it first.
    decode_byte_alphabet(data);
    QSF_RETURN_IF_ERROR(add_listed_tokens(config, listed, data));
    set_special_ids(config, map, data);
    // GPT-2's one special token stands in the vocabulary alone.
    for (const TokenId id : {data.bos, data.eos, data.pad, data.unk}) {
      if (id == kNoToken || data.tokens[id].type != TokenType::kNormal) continue;
      Json entry = Json::object();
      entry["content"] = data.tokens[id].text;
      entry["special"] = true;
      QSF_RETURN_IF_ERROR(add_hf_token(entry, id, data));
    }
    set_add_rules(config, /*has_template=*/false, /*bos_by_default=*/false, data);
    return data;
  }
  return not_found(
      "no tokenizer: expected tokenizer.json, tokenizer.model, or vocab.json with "
      "merges.txt beside the model");
}

}  // namespace qsf
