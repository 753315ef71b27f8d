// SPDX-License-Identifier: MIT

#include "import/hf/hf_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "import/bert_steps.h"
#include "import/gguf/gguf_tokenizer.h"
#include "import/hf/hf_pipeline.h"
#include "import/json_document.h"
#include "import/sentencepiece_model.h"
#include "import/vocabulary.h"
#include "tokenizer/tokenizer_section.h"
#include "tokenizer/word_pieces.h"

namespace qsf {

namespace {

// Ids may have gaps (models pad their vocabulary), but a small file must not request much memory.
constexpr std::uint64_t kMaxGap = 1U << 16;

Status check_id(std::uint64_t id, std::size_t n_entries) {
  const std::uint64_t limit = 2 * std::uint64_t{n_entries} + kMaxGap;
  if (id < limit) return ok_status();
  return corrupt("tokenizer: token id %llu among %zu tokens, expected below %llu",
                 static_cast<unsigned long long>(id), n_entries,
                 static_cast<unsigned long long>(limit));
}

// Fills data.tokens from an object of text to id. Ids without text become unused tokens.
// Fails  kCorrupt on ids that repeat or lie far beyond the number of entries
Status read_vocabulary(const JsonValue& vocabulary, TokenizerData& data) {
  if (vocabulary.members().empty()) {
    return corrupt("tokenizer: vocabulary: expected an object of texts and ids");
  }
  std::uint64_t highest = 0;
  for (const JsonMember& item : vocabulary.members()) {
    const auto id = item.value.unsigned_integer();
    if (!id.has_value()) return corrupt("tokenizer: vocabulary: an id is not a number");
    QSF_RETURN_IF_ERROR(check_id(*id, vocabulary.size()));
    highest = std::max(highest, *id);
  }
  VocabToken gap;
  gap.type = TokenType::kUnused;
  data.tokens.assign(static_cast<std::size_t>(highest) + 1, gap);
  for (const JsonMember& item : vocabulary.members()) {
    const std::uint64_t id = item.value.unsigned_integer().value_or(0);
    VocabToken& token = data.tokens[static_cast<std::size_t>(id)];
    if (token.type != TokenType::kUnused) {
      return corrupt("tokenizer: vocabulary: two texts have the id %llu",
                     static_cast<unsigned long long>(id));
    }
    token.text = item.name;
    token.type = TokenType::kNormal;
  }
  return ok_status();
}

struct MergeText {
  std::string_view left;
  std::string_view right;
};

// Splits "left right". Returns false when there is no such space.
bool split_merge_line(std::string_view line, MergeText& merge) noexcept {
  const std::size_t space = line.find(' ', 1);
  if (space == std::string_view::npos) return false;
  merge = {line.substr(0, space), line.substr(space + 1)};
  return true;
}

// Fills data.merges from texts of the vocabulary as written. Of a pair that appears twice, the last
// rank counts.
// Fails  kCorrupt when a merge names a token that the vocabulary lacks
Status add_merges(const std::vector<MergeText>& merges, TokenizerData& data) {
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

// Reads {"content": text, "special": ..., "normalized": ..., ...}, without the id.
AddedToken added_token_of(const JsonValue& json) {
  AddedToken added;
  added.text = json.text("content").value_or("");
  added.special = json.boolean("special").value_or(false);
  added.normalized = json.boolean("normalized").value_or(!added.special);
  added.left_strip = json.boolean("lstrip").value_or(false);
  added.right_strip = json.boolean("rstrip").value_or(false);
  added.single_word = json.boolean("single_word").value_or(false);
  return added;
}

// Appends an added token to data.added and sets its text and type in data.tokens, which may grow.
// Fails  kCorrupt on an empty text and on an id far beyond the vocabulary
Status add_token(AddedToken added, std::uint64_t id, TokenizerData& data) {
  if (added.text.empty()) {
    return corrupt("tokenizer: added token %llu: no content", static_cast<unsigned long long>(id));
  }
  QSF_RETURN_IF_ERROR(check_id(id, data.tokens.size()));
  if (id >= data.tokens.size()) {
    VocabToken gap;
    gap.type = TokenType::kUnused;
    data.tokens.resize(static_cast<std::size_t>(id) + 1, gap);
  }
  added.id = static_cast<TokenId>(id);
  VocabToken& token = data.tokens[static_cast<std::size_t>(id)];
  token.text = added.text;
  if (token.type != TokenType::kByte && token.type != TokenType::kUnknown) {
    token.type = added.special ? TokenType::kControl : TokenType::kUserDefined;
  }
  data.added.push_back(std::move(added));
  return ok_status();
}

// Turns the texts of all normal tokens from the byte alphabet into bytes.
void decode_byte_alphabet(TokenizerData& data) {
  for (VocabToken& token : data.tokens) {
    if (token.type != TokenType::kNormal) continue;
    if (auto bytes = bytes_of_alphabet(token.text); bytes.has_value())
      token.text = std::move(*bytes);
  }
}

// Returns the token with that text, or kNoToken. Linear.
TokenId find_token(const TokenizerData& data, std::string_view text) noexcept {
  if (text.empty()) return kNoToken;
  for (TokenId id = 0; id < data.tokens.size(); ++id) {
    if (data.tokens[id].text == text) return id;
  }
  return kNoToken;
}

// tokenizer.json.

struct HfTokenizerJson {
  TokenizerData data;
  bool has_template = false;  // its post-processor says whether BOS and EOS are added
};

Status check_model(const JsonValue& model) {
  const auto type = model.text("type");
  if ((type && type != "BPE") || model.find("merges") == nullptr) {
    return unsupported("tokenizer.json: model \"%s\", expected \"BPE\" or \"WordPiece\"",
                       std::string(type.value_or("none").substr(0, 60)).c_str());
  }
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.text(affix).value_or("").empty()) {
      return unsupported("tokenizer.json: model with \"%s\" is not supported", affix);
    }
  }
  return ok_status();
}

Status read_merges(const JsonValue& model, TokenizerData& data) {
  const JsonValue& merges = *model.find("merges");
  if (!merges.is_array()) return corrupt("tokenizer.json: merges: expected an array");
  std::vector<MergeText> texts;
  texts.reserve(merges.size());
  for (const JsonValue& merge : merges.elements()) {
    MergeText text;
    if (const auto line = merge.text()) {
      if (!split_merge_line(*line, text)) {
        return corrupt("tokenizer.json: merge %zu: expected two tokens", texts.size());
      }
    } else {
      const auto pair = merge.elements();
      if (pair.size() == 2) text = {pair[0].text().value_or(""), pair[1].text().value_or("")};
      if (text.left.empty() || text.right.empty()) {
        return corrupt("tokenizer.json: merge %zu: expected two tokens", texts.size());
      }
    }
    texts.push_back(text);
  }
  return add_merges(texts, data);
}

// Sets the token of unknown words, which a vocabulary must have.
Status set_unknown_word(std::string_view text, TokenizerData& data) {
  data.unk = find_token(data, text);
  if (data.unk == kNoToken) {
    return corrupt("tokenizer: the vocabulary has no \"%s\" for unknown words",
                   std::string(text.substr(0, 60)).c_str());
  }
  data.tokens[data.unk].type = TokenType::kUnknown;
  return ok_status();
}

Status read_word_pieces(const JsonValue& model, TokenizerData& data) {
  const auto prefix = model.text("continuing_subword_prefix");
  const auto longest = model.unsigned_integer("max_input_chars_per_word");
  if (prefix.value_or(kContinuation) != kContinuation ||
      longest.value_or(kMaxWordCharacters) != kMaxWordCharacters) {
    return unsupported(
        "tokenizer.json: WordPiece with continuing_subword_prefix \"%s\" and "
        "max_input_chars_per_word %llu, expected \"##\" and %zu",
        std::string(prefix.value_or("").substr(0, 60)).c_str(),
        static_cast<unsigned long long>(longest.value_or(0)), kMaxWordCharacters);
  }
  const JsonValue* vocabulary = model.find("vocab");
  if (vocabulary == nullptr) return corrupt("tokenizer.json: the model has no vocab");
  QSF_RETURN_IF_ERROR(read_vocabulary(*vocabulary, data));
  return set_unknown_word(model.text("unk_token").value_or("[UNK]"), data);
}

Status read_model(const JsonValue& model, TokenizerData& data) {
  if (data.kind == TokenizerKind::kWordPiece) return read_word_pieces(model, data);
  QSF_RETURN_IF_ERROR(check_model(model));
  const JsonValue* vocabulary = model.find("vocab");
  if (vocabulary == nullptr) return corrupt("tokenizer.json: the model has no vocab");
  QSF_RETURN_IF_ERROR(read_vocabulary(*vocabulary, data));
  QSF_RETURN_IF_ERROR(read_merges(model, data));
  data.fuse_unknown = model.boolean("fuse_unk").value_or(false);
  data.ignore_merges = model.boolean("ignore_merges").value_or(false);
  if (data.kind == TokenizerKind::kRankedBpe) {
    data.byte_fallback = model.boolean("byte_fallback").value_or(false);
    for (VocabToken& token : data.tokens) {
      if (data.byte_fallback && byte_token_value(token.text) >= 0) token.type = TokenType::kByte;
    }
  }
  if (const auto unknown = model.text("unk_token")) {
    data.unk = find_token(data, *unknown);
    if (data.unk != kNoToken) data.tokens[data.unk].type = TokenType::kUnknown;
  }
  return ok_status();
}

Status read_added_tokens(const JsonValue& json, TokenizerData& data) {
  const JsonValue* list = json.find("added_tokens");
  if (list == nullptr) return ok_status();
  if (!list->is_array()) return corrupt("tokenizer.json: added_tokens: expected an array");
  for (const JsonValue& token : list->elements()) {
    const auto id = token.unsigned_integer("id");
    if (!id.has_value()) return corrupt("tokenizer.json: an added token has no id");
    QSF_RETURN_IF_ERROR(add_token(added_token_of(token), *id, data));
    AddedToken& added = data.added.back();
    if (!added.normalized) continue;
    // A token decodes to the text that it matches: a space that the normaliser puts in front of it
    // belongs to the token.
    added.text = apply_hf_normalizer(data, added.text);
    if (added.text.empty()) {
      return unsupported("tokenizer.json: added token %u is empty behind the normalizer", added.id);
    }
    if (!added.special) data.tokens[added.id].text = added.text;
  }
  return ok_status();
}

// Reads ["<s>", 1], as the Roberta and Bert processors name their tokens.
TokenId named_token(const JsonValue& json, const char* name, const TokenizerData& data) noexcept {
  const JsonValue* pair = json.find(name);
  if (pair == nullptr || !pair->is_array() || pair->size() != 2) return kNoToken;
  const auto id = pair->elements()[1].unsigned_integer();
  return id.has_value() && *id < data.tokens.size() ? static_cast<TokenId>(*id) : kNoToken;
}

// Returns the id of the special token that a template calls `name`.
TokenId template_token(const JsonValue& processor, std::string_view name,
                       const TokenizerData& data) {
  const JsonValue* tokens = processor.find("special_tokens");
  const JsonValue* entry = tokens == nullptr ? nullptr : tokens->find(name);
  const JsonValue* ids = entry == nullptr ? nullptr : entry->find("ids");
  if (ids == nullptr || !ids->is_array() || ids->size() != 1) return kNoToken;
  const auto id = ids->elements()[0].unsigned_integer();
  return id.has_value() && *id < data.tokens.size() ? static_cast<TokenId>(*id) : kNoToken;
}

Status read_template(const JsonValue& processor, TokenizerData& data) {
  const JsonValue* single = processor.find("single");
  if (single == nullptr || !single->is_array()) {
    return corrupt("tokenizer.json: a template without \"single\"");
  }
  bool past_text = false;
  data.add_bos = false;
  data.add_eos = false;
  for (const JsonValue& item : single->elements()) {
    if (item.find("Sequence") != nullptr) {
      if (past_text) return unsupported("tokenizer.json: a template with the text twice");
      past_text = true;
      continue;
    }
    const JsonValue* special = item.find("SpecialToken");
    const auto name = special == nullptr ? std::nullopt : special->text("id");
    const TokenId id = name ? template_token(processor, *name, data) : kNoToken;
    if (id == kNoToken)
      return corrupt("tokenizer.json: a template names a token it does not define");
    bool& adds = past_text ? data.add_eos : data.add_bos;
    if (adds) return unsupported("tokenizer.json: a template with two special tokens in a row");
    adds = true;
    (past_text ? data.eos : data.bos) = id;
  }
  return ok_status();
}

Status read_post_processor(const JsonValue* json, int depth, HfTokenizerJson& result) {
  if (json == nullptr) return ok_status();
  const auto type = json->text("type");
  if (!type || type == "ByteLevel") return ok_status();
  if (type == "Sequence" && depth < 8) {
    const JsonValue* list = json->find("processors");
    if (list == nullptr || !list->is_array()) {
      return corrupt("tokenizer.json: a sequence without processors");
    }
    for (const JsonValue& part : list->elements())
      QSF_RETURN_IF_ERROR(read_post_processor(&part, depth + 1, result));
    return ok_status();
  }
  TokenizerData& data = result.data;
  if (type == "TemplateProcessing") {
    result.has_template = true;
    return read_template(*json, data);
  }
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    result.has_template = true;
    data.bos = named_token(*json, "cls", data);
    data.eos = named_token(*json, "sep", data);
    data.add_bos = data.bos != kNoToken;
    data.add_eos = data.eos != kNoToken;
    return ok_status();
  }
  return unsupported("tokenizer.json: post-processor \"%s\" is not supported",
                     std::string(type->substr(0, 60)).c_str());
}

// Real files repeat keys; as in the reference implementation the last one counts.
Result<JsonDocument> parse_json(std::string_view text, const char* file) {
  auto document = JsonDocument::parse(text, JsonRepeats::kLastCounts);
  if (!document) return std::move(document).error().with_context(file);
  return document;
}

Result<HfTokenizerJson> read_tokenizer_json(std::string_view text) {
  QSF_ASSIGN_OR_RETURN(const JsonDocument document, parse_json(text, "tokenizer.json"));
  const JsonValue& json = document.root();
  const JsonValue* model = json.find("model");
  if (model == nullptr) return corrupt("tokenizer.json: no model");
  const JsonValue* pre_tokenizer = json.find("pre_tokenizer");
  const JsonValue* decoder = json.find("decoder");
  HfTokenizerJson result;
  TokenizerData& data = result.data;
  const bool bytes = hf_part_has_type(pre_tokenizer, "ByteLevel");
  data.kind = bytes ? TokenizerKind::kByteBpe : TokenizerKind::kRankedBpe;
  if (model->text("type") == "WordPiece") data.kind = TokenizerKind::kWordPiece;
  QSF_RETURN_IF_ERROR(read_model(*model, data));
  QSF_RETURN_IF_ERROR(add_hf_normalizer(json.find("normalizer"), data));
  QSF_RETURN_IF_ERROR(add_hf_pre_tokenizer(pre_tokenizer, data));
  QSF_RETURN_IF_ERROR(read_hf_decoder(decoder, data));
  QSF_RETURN_IF_ERROR(read_added_tokens(json, data));
  QSF_RETURN_IF_ERROR(read_post_processor(json.find("post_processor"), 0, result));
  if (data.kind == TokenizerKind::kByteBpe) decode_byte_alphabet(data);
  return result;
}

// The other files of the folder.

constexpr HfTokenizerFileName kFileNames[] = {
    {"tokenizer.json", &HfTokenizerFiles::tokenizer_json},
    {"tokenizer.model", &HfTokenizerFiles::tokenizer_model},
    {"vocab.json", &HfTokenizerFiles::vocab_json},
    {"merges.txt", &HfTokenizerFiles::merges_txt},
    {"vocab.txt", &HfTokenizerFiles::vocab_txt},
    {"added_tokens.json", &HfTokenizerFiles::added_tokens_json},
    {"special_tokens_map.json", &HfTokenizerFiles::special_tokens_map_json},
    {"tokenizer_config.json", &HfTokenizerFiles::tokenizer_config_json},
};

// Returns an empty object for an absent file.
Result<JsonDocument> parse_optional(const std::optional<std::string>& text, const char* file) {
  if (!text.has_value()) return JsonDocument();
  return parse_json(*text, file);
}

// Returns the text of a special token, which files state as a string or as an object.
std::optional<std::string_view> token_text(const JsonValue& json) noexcept {
  const auto text = json.text();
  return text ? text : json.text("content");
}
std::optional<std::string_view> token_text(const JsonValue& json, const char* name) noexcept {
  const JsonValue* member = json.find(name);
  return member == nullptr ? std::nullopt : token_text(*member);
}

// Marks an added token as special.
void make_special(std::string_view text, TokenizerData& data) {
  const TokenId id = find_token(data, text);
  if (id == kNoToken) return;
  for (AddedToken& token : data.added) {
    if (token.id != id) continue;
    token.special = true;
    TokenType& type = data.tokens[id].type;
    if (type == TokenType::kUserDefined) type = TokenType::kControl;
  }
}

// Tokens with a role in the configuration are control tokens. A tokenizer.json may list turn
// markers as plain text; user text must not produce them.
void make_named_tokens_special(const JsonValue& json, TokenizerData& data) {
  for (const char* name : {"bos_token", "eos_token", "pad_token", "sep_token", "cls_token"}) {
    if (const auto text = token_text(json, name)) make_special(*text, data);
  }
  for (const char* name : {"additional_special_tokens", "extra_special_tokens"}) {
    const JsonValue* list = json.find(name);
    if (list == nullptr) continue;
    // A list of tokens, or an object of roles and tokens.
    for (const JsonValue& entry : list->elements()) {
      if (const auto text = token_text(entry)) make_special(*text, data);
    }
    for (const JsonMember& member : list->members()) {
      if (const auto text = token_text(member.value)) make_special(*text, data);
    }
  }
}

// Adds the tokens of tokenizer_config.json and added_tokens.json.
Status add_listed_tokens(const JsonValue& config, const JsonValue& listed, TokenizerData& data) {
  std::vector<TokenId> known;
  const JsonValue* decoder = config.find("added_tokens_decoder");
  if (decoder != nullptr) {
    // In the order of ids, so that no id is far beyond the vocabulary at that point.
    std::vector<std::pair<std::uint64_t, const JsonValue*>> entries;
    for (const JsonMember& item : decoder->members()) {
      std::uint64_t id = 0;
      const std::string_view key = item.name;
      const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
      if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size()) {
        return corrupt("tokenizer_config.json: added_tokens_decoder: \"%s\" is not an id",
                       std::string(key.substr(0, 40)).c_str());
      }
      entries.emplace_back(id, &item.value);
    }
    std::sort(entries.begin(), entries.end());
    for (const auto& [id, entry] : entries) {
      QSF_RETURN_IF_ERROR(add_token(added_token_of(*entry), id, data));
      known.push_back(static_cast<TokenId>(id));
    }
  }
  for (const JsonMember& item : listed.members()) {
    const auto id = item.value.unsigned_integer();
    if (!id.has_value()) return corrupt("added_tokens.json: an id is not a number");
    if (std::binary_search(known.begin(), known.end(), *id)) continue;
    AddedToken added;
    added.text = item.name;
    QSF_RETURN_IF_ERROR(add_token(std::move(added), *id, data));
  }
  // Both files list tokens that the model has as well; the first entry of a text is kept.
  return ok_status();
}

void set_special_ids(const JsonValue& config, const JsonValue& map, TokenizerData& data) {
  const auto set = [&](const char* name, bool replace, TokenId& id) {
    if (id != kNoToken && !replace) return;
    auto text = token_text(config, name);
    if (!text) text = token_text(map, name);
    if (!text) return;
    const TokenId found = find_token(data, *text);
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

// Returns whether the tokenizer's class prefers add_bos_token and add_eos_token over the template
// of tokenizer.json.
bool class_rules(const JsonValue& config) {
  const std::string_view name = config.text("tokenizer_class").value_or("");
  return name.starts_with("Llama") || name.starts_with("CodeLlama") || name.starts_with("Gemma");
}

void set_add_rules(const JsonValue& config, bool has_template, bool bos_by_default,
                   TokenizerData& data) {
  const auto add_bos = config.boolean("add_bos_token");
  const auto add_eos = config.boolean("add_eos_token");
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

// Applies the settings for the space in front of a SentencePiece text.
void set_space_prefix(const JsonValue& config, TokenizerData& data) {
  const bool wanted = config.boolean("add_prefix_space").value_or(true);
  const bool first_only = !config.boolean("legacy").value_or(true);
  std::erase_if(data.steps,
                [wanted](const TextStep& step) { return step.op == TextOp::kPrepend && !wanted; });
  for (TextStep& step : data.steps) {
    if (step.op == TextOp::kPrepend) step.first_only = first_only;
  }
  data.strip_leading_space = data.strip_leading_space && wanted;
}

Result<TokenizerData> from_vocab_and_merges(const HfTokenizerFiles& files,
                                            const JsonValue& config) {
  QSF_ASSIGN_OR_RETURN(const JsonDocument vocabulary, parse_json(*files.vocab_json, "vocab.json"));
  TokenizerData data;
  data.kind = TokenizerKind::kByteBpe;
  QSF_RETURN_IF_ERROR(read_vocabulary(vocabulary.root(), data));
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
  QSF_RETURN_IF_ERROR(add_merges(merges, data));

  const auto name = config.text("tokenizer_class");
  const bool qwen = name && name->starts_with("Qwen2");
  if (name && !qwen && !name->starts_with("GPT2") && !name->starts_with("CodeGen")) {
    return unsupported(
        "tokenizer_config.json: class \"%s\" with vocab.json and merges.txt, expected "
        "GPT2Tokenizer, CodeGenTokenizer or Qwen2Tokenizer; add a tokenizer.json",
        std::string(name->substr(0, 60)).c_str());
  }
  TextStep step;
  if (config.boolean("add_prefix_space").value_or(false)) {
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

// One token a line. Where the configuration does not say otherwise, text becomes lowercase.
Result<TokenizerData> from_word_list(const std::string& lines, const JsonValue& config,
                                     const JsonValue& map, const JsonValue& listed) {
  const std::string_view name = config.text("tokenizer_class").value_or("BertTokenizer");
  if ((name != "BertTokenizer" && name != "BertTokenizerFast") ||
      !config.boolean("do_basic_tokenize").value_or(true)) {
    return unsupported(
        "tokenizer_config.json: class \"%s\" with vocab.txt, expected BertTokenizer with "
        "do_basic_tokenize; add a tokenizer.json",
        std::string(name.substr(0, 60)).c_str());
  }
  TokenizerData data;
  data.kind = TokenizerKind::kWordPiece;
  data.strip_leading_space = true;
  std::string_view rest = lines;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (data.tokens.size() == kMaxVocabTokens) {
      return corrupt("vocab.txt: more than %u lines, which no vocabulary has", kMaxVocabTokens);
    }
    VocabToken token;
    token.text = line;
    if (line.empty()) token.type = TokenType::kUnused;
    data.tokens.push_back(std::move(token));
  }
  const auto named = [&](const char* key, std::string_view fallback) {
    const auto text = token_text(config, key);
    return std::string(text ? *text : token_text(map, key).value_or(fallback));
  };
  QSF_RETURN_IF_ERROR(set_unknown_word(named("unk_token", "[UNK]"), data));
  QSF_RETURN_IF_ERROR(add_listed_tokens(config, listed, data));
  const std::string cls = named("cls_token", "[CLS]");
  const std::string sep = named("sep_token", "[SEP]");
  data.bos = find_token(data, cls);
  data.eos = find_token(data, sep);
  if (data.bos == kNoToken || data.eos == kNoToken) {
    return corrupt("vocab.txt: no \"%s\", which %s a text",
                   (data.bos == kNoToken ? cls : sep).c_str(),
                   data.bos == kNoToken ? "begins" : "ends");
  }
  data.pad = find_token(data, named("pad_token", "[PAD]"));
  for (const TokenId id :
       {data.pad, data.unk, data.bos, data.eos, find_token(data, named("mask_token", "[MASK]"))}) {
    if (id == kNoToken) continue;
    const TokenType type = data.tokens[id].type;
    if (type != TokenType::kNormal && type != TokenType::kUnknown) continue;  // listed
    AddedToken added;
    added.text = data.tokens[id].text;
    added.special = true;
    QSF_RETURN_IF_ERROR(add_token(std::move(added), id, data));
  }
  data.add_bos = true;
  data.add_eos = true;
  data.stop_ids.push_back(data.eos);
  const bool lowercase = config.boolean("do_lower_case").value_or(true);
  add_bert_normalizer({.space_ideographs = config.boolean("tokenize_chinese_chars").value_or(true),
                       .strip_marks = config.boolean("strip_accents").value_or(lowercase),
                       .lowercase = lowercase},
                      data);
  // added_tokens.json does not say how they match: in the normalised text.
  const bool says_how = config.find("added_tokens_decoder") != nullptr;
  for (AddedToken& added : data.added) {
    if (!added.special && !says_how) added.normalized = true;
    if (added.normalized) added.text = apply_hf_normalizer(data, added.text);
  }
  add_bert_splits(data);
  return data;
}

}  // namespace

std::span<const HfTokenizerFileName> hf_tokenizer_file_names() noexcept {
  return kFileNames;
}

Result<TokenizerData> tokenizer_from_hf(const HfTokenizerFiles& files) {
  QSF_ASSIGN_OR_RETURN(const JsonDocument config_file,
                       parse_optional(files.tokenizer_config_json, "tokenizer_config.json"));
  QSF_ASSIGN_OR_RETURN(const JsonDocument map_file,
                       parse_optional(files.special_tokens_map_json, "special_tokens_map.json"));
  QSF_ASSIGN_OR_RETURN(const JsonDocument listed_file,
                       parse_optional(files.added_tokens_json, "added_tokens.json"));
  const JsonValue& config = config_file.root();
  const JsonValue& map = map_file.root();
  const JsonValue& listed = listed_file.root();
  if (files.tokenizer_json.has_value()) {
    QSF_ASSIGN_OR_RETURN(HfTokenizerJson read, read_tokenizer_json(*files.tokenizer_json));
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
    // Added tokens are plain text, so the vocabulary is decoded before they are added.
    decode_byte_alphabet(data);
    QSF_RETURN_IF_ERROR(add_listed_tokens(config, listed, data));
    set_special_ids(config, map, data);
    // GPT-2's only special token is in the vocabulary, not among the added tokens.
    for (const TokenId id : {data.bos, data.eos, data.pad, data.unk}) {
      if (id == kNoToken || data.tokens[id].type != TokenType::kNormal) continue;
      AddedToken added;
      added.text = data.tokens[id].text;
      added.special = true;
      QSF_RETURN_IF_ERROR(add_token(std::move(added), id, data));
    }
    set_add_rules(config, /*has_template=*/false, /*bos_by_default=*/false, data);
    return data;
  }
  if (files.vocab_txt.has_value()) return from_word_list(*files.vocab_txt, config, map, listed);
  return not_found(
      "no tokenizer: expected tokenizer.json, tokenizer.model, vocab.json with merges.txt, or "
      "vocab.txt beside the model");
}

}  // namespace qsf
