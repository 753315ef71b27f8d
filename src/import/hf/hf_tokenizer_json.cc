// SPDX-License-Identifier: MIT

#include "import/hf/hf_tokenizer_json.h"

#include <string>
#include <utility>
#include <vector>

#include "import/hf/hf_pipeline.h"
#include "import/hf/hf_vocabulary.h"
#include "import/json_access.h"
#include "tokenizer/tokenizer_section.h"

namespace qsf {

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

}  // namespace qsf
