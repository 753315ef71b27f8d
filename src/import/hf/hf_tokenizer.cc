// SPDX-License-Identifier: MIT

#include "import/hf/hf_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "import/gguf/gguf_tokenizer.h"
#include "import/hf/hf_pipeline.h"
#include "import/json_access.h"
#include "import/sentencepiece_model.h"
#include "import/vocabulary.h"
#include "tokenizer/tokenizer_section.h"

namespace qsf {

namespace {

// Ids may have gaps (models pad their vocabulary), but not so many that a small file asks for much
// memory.
constexpr std::uint64_t kMaxGap = 1U << 16;

Status check_id(std::uint64_t id, std::size_t n_entries) {
  const std::uint64_t limit = 2 * std::uint64_t{n_entries} + kMaxGap;
  if (id < limit) return ok_status();
  return corrupt("tokenizer: token id %llu among %zu tokens, expected below %llu",
                 static_cast<unsigned long long>(id), n_entries,
                 static_cast<unsigned long long>(limit));
}

}  // namespace

Status read_hf_vocabulary(const Json& vocabulary, TokenizerData& data) {
  if (!vocabulary.is_object() || vocabulary.empty()) {
    return corrupt("tokenizer: vocabulary: expected an object of texts and ids");
  }
  std::uint64_t highest = 0;
  for (const auto& item : vocabulary.items()) {
    const auto id = json_unsigned(item.value());
    if (!id.has_value()) return corrupt("tokenizer: vocabulary: an id is not a number");
    QSF_RETURN_IF_ERROR(check_id(*id, vocabulary.size()));
    highest = std::max(highest, *id);
  }
  VocabToken gap;
  gap.type = TokenType::kUnused;
  data.tokens.assign(static_cast<std::size_t>(highest) + 1, gap);
  for (const auto& item : vocabulary.items()) {
    VocabToken& token = data.tokens[static_cast<std::size_t>(*json_unsigned(item.value()))];
    if (token.type != TokenType::kUnused) {
      return corrupt("tokenizer: vocabulary: two texts have the id %llu",
                     static_cast<unsigned long long>(*json_unsigned(item.value())));
    }
    token.text = item.key();
    token.type = TokenType::kNormal;
  }
  return ok_status();
}

bool split_merge_line(std::string_view line, MergeText& merge) noexcept {
  const std::size_t space = line.find(' ', 1);
  if (space == std::string_view::npos) return false;
  merge = {line.substr(0, space), line.substr(space + 1)};
  return true;
}

Status read_hf_merges(const std::vector<MergeText>& merges, TokenizerData& data) {
  std::unordered_map<std::string_view, TokenId> ids;
  ids.reserve(data.tokens.size());
  for (TokenId id = 0; id < data.tokens.size(); ++id) {
    if (data.tokens[id].type != TokenType::kUnused) ids.try_emplace(data.tokens[id].text, id);
  }
  std::unordered_set<std::uint64_t> seen;
  seen.reserve(merges.size());
  data.merges.reserve(merges.size());
  std::string joined;
  for (std::size_t i = merges.size(); i-- > 0;) {  // from the end, so that the last rank counts
    const auto left = ids.find(merges[i].left);
    const auto right = ids.find(merges[i].right);
    joined.assign(merges[i].left).append(merges[i].right);
    const auto result = ids.find(joined);
    if (left == ids.end() || right == ids.end() || result == ids.end()) {
      return corrupt("tokenizer: merge %zu: one of its tokens is not in the vocabulary", i);
    }
    if (seen.insert(std::uint64_t{left->second} << 32 | right->second).second) {
      data.merges.push_back({left->second, right->second, result->second});
    }
  }
  std::reverse(data.merges.begin(), data.merges.end());
  return ok_status();
}

Status add_hf_token(const Json& json, std::uint64_t id, TokenizerData& data) {
  const std::string* content = json_string(json, "content");
  if (content == nullptr || content->empty()) {
    return corrupt("tokenizer: added token %llu: no content", static_cast<unsigned long long>(id));
  }
  QSF_RETURN_IF_ERROR(check_id(id, data.tokens.size()));
  if (id >= data.tokens.size()) {
    VocabToken gap;
    gap.type = TokenType::kUnused;
    data.tokens.resize(static_cast<std::size_t>(id) + 1, gap);
  }
  AddedToken added;
  added.text = *content;
  added.id = static_cast<TokenId>(id);
  added.special = json_bool(json, "special").value_or(false);
  added.normalized = json_bool(json, "normalized").value_or(!added.special);
  added.left_strip = json_bool(json, "lstrip").value_or(false);
  added.right_strip = json_bool(json, "rstrip").value_or(false);
  added.single_word = json_bool(json, "single_word").value_or(false);
  VocabToken& token = data.tokens[static_cast<std::size_t>(id)];
  token.text = *content;
  if (token.type != TokenType::kByte && token.type != TokenType::kUnknown) {
    token.type = added.special ? TokenType::kControl : TokenType::kUserDefined;
  }
  data.added.push_back(std::move(added));
  return ok_status();
}

void decode_byte_alphabet(TokenizerData& data) {
  for (VocabToken& token : data.tokens) {
    if (token.type != TokenType::kNormal) continue;
    if (auto bytes = bytes_of_alphabet(token.text); bytes.has_value())
      token.text = std::move(*bytes);
  }
}

TokenId find_hf_token(const TokenizerData& data, std::string_view text) noexcept {
  if (text.empty()) return kNoToken;
  for (TokenId id = 0; id < data.tokens.size(); ++id) {
    if (data.tokens[id].text == text) return id;
  }
  return kNoToken;
}

namespace {

Status check_model(const Json& model) {
  const std::string* type = json_string(model, "type");
  if ((type != nullptr && *type != "BPE") || json_member(model, "merges") == nullptr) {
    return unsupported("tokenizer.json: model \"%s\", expected \"BPE\"",
                       type == nullptr ? "none" : type->substr(0, 60).c_str());
  }
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const std::string* text = json_string(model, affix);
    if (text != nullptr && !text->empty()) {
      return unsupported("tokenizer.json: model with \"%s\" is not supported", affix);
    }
  }
  return ok_status();
}

Status read_merges(const Json& model, TokenizerData& data) {
  const Json& merges = *json_member(model, "merges");
  if (!merges.is_array()) return corrupt("tokenizer.json: merges: expected an array");
  std::vector<MergeText> texts;
  texts.reserve(merges.size());
  for (const Json& merge : merges) {
    MergeText text;
    if (const std::string* line = json_string(merge); line != nullptr) {
      if (!split_merge_line(*line, text)) {
        return corrupt("tokenizer.json: merge %zu: expected two tokens", texts.size());
      }
    } else {
      const bool pair = merge.is_array() && merge.size() == 2;
      const std::string* left = pair ? json_string(merge[0]) : nullptr;
      const std::string* right = pair ? json_string(merge[1]) : nullptr;
      if (left == nullptr || right == nullptr || left->empty() || right->empty()) {
        return corrupt("tokenizer.json: merge %zu: expected two tokens", texts.size());
      }
      text = {*left, *right};
    }
    texts.push_back(text);
  }
  return read_hf_merges(texts, data);
}

Status read_model(const Json& model, TokenizerData& data) {
  QSF_RETURN_IF_ERROR(check_model(model));
  const Json* vocabulary = json_member(model, "vocab");
  if (vocabulary == nullptr) return corrupt("tokenizer.json: the model has no vocab");
  QSF_RETURN_IF_ERROR(read_hf_vocabulary(*vocabulary, data));
  QSF_RETURN_IF_ERROR(read_merges(model, data));
  data.fuse_unknown = json_bool(model, "fuse_unk").value_or(false);
  data.ignore_merges = json_bool(model, "ignore_merges").value_or(false);
  if (data.kind == TokenizerKind::kRankedBpe) {
    data.byte_fallback = json_bool(model, "byte_fallback").value_or(false);
    for (VocabToken& token : data.tokens) {
      if (data.byte_fallback && byte_token_value(token.text) >= 0) token.type = TokenType::kByte;
    }
  }
  if (const std::string* unknown = json_string(model, "unk_token"); unknown != nullptr) {
    data.unk = find_hf_token(data, *unknown);
    if (data.unk != kNoToken) data.tokens[data.unk].type = TokenType::kUnknown;
  }
  return ok_status();
}

Status read_added_tokens(const Json& json, TokenizerData& data) {
  const Json* list = json_member(json, "added_tokens");
  if (list == nullptr) return ok_status();
  if (!list->is_array()) return corrupt("tokenizer.json: added_tokens: expected an array");
  for (const Json& token : *list) {
    const auto id = json_unsigned(token, "id");
    if (!id.has_value()) return corrupt("tokenizer.json: an added token has no id");
    QSF_RETURN_IF_ERROR(add_hf_token(token, *id, data));
    AddedToken& added = data.added.back();
    if (!added.normalized) continue;
    // What is matched is also what it decodes to: a normaliser that puts a space in front of the
    // token makes that space part of it.
    added.text = apply_hf_normalizer(data, added.text);
    if (!added.special) data.tokens[added.id].text = added.text;
  }
  return ok_status();
}

// Reads ["<s>", 1], as the Roberta and Bert processors name their tokens.
TokenId named_token(const Json& json, const char* name, const TokenizerData& data) noexcept {
  const Json* pair = json_member(json, name);
  if (pair == nullptr || !pair->is_array() || pair->size() != 2) return kNoToken;
  const auto id = json_unsigned((*pair)[1]);
  return id.has_value() && *id < data.tokens.size() ? static_cast<TokenId>(*id) : kNoToken;
}

// Returns the id of the special token a template calls `name`.
TokenId template_token(const Json& processor, const std::string& name, const TokenizerData& data) {
  const Json* tokens = json_member(processor, "special_tokens");
  const Json* entry = tokens == nullptr ? nullptr : json_member(*tokens, name.c_str());
  const Json* ids = entry == nullptr ? nullptr : json_member(*entry, "ids");
  if (ids == nullptr || !ids->is_array() || ids->size() != 1) return kNoToken;
  const auto id = json_unsigned((*ids)[0]);
  return id.has_value() && *id < data.tokens.size() ? static_cast<TokenId>(*id) : kNoToken;
}

Status read_template(const Json& processor, TokenizerData& data) {
  const Json* single = json_member(processor, "single");
  if (single == nullptr || !single->is_array()) {
    return corrupt("tokenizer.json: a template without \"single\"");
  }
  bool past_text = false;
  data.add_bos = false;
  data.add_eos = false;
  for (const Json& item : *single) {
    if (json_member(item, "Sequence") != nullptr) {
      if (past_text) return unsupported("tokenizer.json: a template with the text twice");
      past_text = true;
      continue;
    }
    const Json* special = json_member(item, "SpecialToken");
    const std::string* name = special == nullptr ? nullptr : json_string(*special, "id");
    const TokenId id = name == nullptr ? kNoToken : template_token(processor, *name, data);
    if (id == kNoToken)
      return corrupt("tokenizer.json: a template names a token it does not define");
    bool& adds = past_text ? data.add_eos : data.add_bos;
    if (adds) return unsupported("tokenizer.json: a template with two special tokens in a row");
    adds = true;
    (past_text ? data.eos : data.bos) = id;
  }
  return ok_status();
}

Status read_post_processor(const Json* json, int depth, HfTokenizerJson& result) {
  if (json == nullptr) return ok_status();
  const std::string* type = json_string(*json, "type");
  if (type == nullptr || *type == "ByteLevel") return ok_status();
  if (*type == "Sequence" && depth < 8) {
    const Json* list = json_member(*json, "processors");
    if (list == nullptr || !list->is_array()) {
      return corrupt("tokenizer.json: a sequence without processors");
    }
    for (const Json& part : *list)
      QSF_RETURN_IF_ERROR(read_post_processor(&part, depth + 1, result));
    return ok_status();
  }
  TokenizerData& data = result.data;
  if (*type == "TemplateProcessing") {
    result.has_template = true;
    return read_template(*json, data);
  }
  if (*type == "RobertaProcessing" || *type == "BertProcessing") {
    result.has_template = true;
    data.bos = named_token(*json, "cls", data);
    data.eos = named_token(*json, "sep", data);
    data.add_bos = data.bos != kNoToken;
    data.add_eos = data.eos != kNoToken;
    return ok_status();
  }
  return unsupported("tokenizer.json: post-processor \"%s\" is not supported",
                     type->substr(0, 60).c_str());
}

}  // namespace

Result<HfTokenizerJson> read_hf_tokenizer_json(std::string_view text) {
  QSF_ASSIGN_OR_RETURN(const Json json, parse_json(text, "tokenizer.json"));
  const Json* model = json_member(json, "model");
  if (model == nullptr) return corrupt("tokenizer.json: no model");
  const Json* pre_tokenizer = json_member(json, "pre_tokenizer");
  const Json* decoder = json_member(json, "decoder");
  HfTokenizerJson result;
  TokenizerData& data = result.data;
  const bool bytes = hf_part_has_type(pre_tokenizer, "ByteLevel");
  data.kind = bytes ? TokenizerKind::kByteBpe : TokenizerKind::kRankedBpe;
  QSF_RETURN_IF_ERROR(read_model(*model, data));
  QSF_RETURN_IF_ERROR(add_hf_normalizer(json_member(json, "normalizer"), data));
  QSF_RETURN_IF_ERROR(add_hf_pre_tokenizer(pre_tokenizer, data));
  QSF_RETURN_IF_ERROR(read_hf_decoder(decoder, data));
  QSF_RETURN_IF_ERROR(read_added_tokens(json, data));
  QSF_RETURN_IF_ERROR(read_post_processor(json_member(json, "post_processor"), 0, result));
  if (bytes) decode_byte_alphabet(data);
  return result;
}

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
