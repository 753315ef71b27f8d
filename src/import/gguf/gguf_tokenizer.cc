// SPDX-License-Identifier: MIT

#include "import/gguf/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "import/byte_alphabet.h"
#include "import/gguf/gguf_pretokenizers.h"

namespace qsf {

namespace {

using TokenMap = std::unordered_map<std::string_view, TokenId>;

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581

// Control tokens that end a turn or a text in the chat formats in use. Files often name only one of
// them as their end token.
constexpr std::array<std::string_view, 9> kTurnEnds = {
    "<|eot_id|>",      "<|im_end|>", "<|end|>", "<end_of_turn>",  "<|endoftext|>",
    "<|end_of_text|>", "<|eom_id|>", "<EOT>",   "<|end_of_turn|>"};

Result<TokenId> special_id(const GgufReader& gguf, const char* key, TokenId fallback,
                           std::size_t n_tokens) {
  QSF_ASSIGN_OR_RETURN(const auto value, gguf.get_unsigned(key));
  if (!value.has_value()) return fallback < n_tokens ? fallback : kNoToken;
  // Writers store 2^32 - 1 for "none", and some an id just past the vocabulary.
  return *value < n_tokens ? static_cast<TokenId>(*value) : kNoToken;
}

Status read_vocabulary(const GgufReader& gguf, bool scored, TokenizerData& data) {
  QSF_ASSIGN_OR_RETURN(const auto texts, gguf.get_strings("tokenizer.ggml.tokens"));
  QSF_ASSIGN_OR_RETURN(const auto types, gguf.get_integers("tokenizer.ggml.token_type"));
  QSF_ASSIGN_OR_RETURN(const auto scores, gguf.get_floats("tokenizer.ggml.scores"));
  if (!texts.has_value() || texts->empty()) {
    return not_found("GGUF: no tokenizer.ggml.tokens: the file has no tokenizer");
  }
  if ((types.has_value() && types->size() != texts->size()) ||
      (scores.has_value() && scores->size() != texts->size()) || (scored && !scores.has_value())) {
    return corrupt("GGUF: %zu tokens, but %zu token types and %zu scores", texts->size(),
                   types.has_value() ? types->size() : 0, scores.has_value() ? scores->size() : 0);
  }
  data.tokens.resize(texts->size());
  for (std::size_t i = 0; i < texts->size(); ++i) {
    VocabToken& token = data.tokens[i];
    token.text = (*texts)[i];
    const std::int64_t type = types.has_value() ? (*types)[i] : 1;
    if (type < 0 || type > 6) {
      return corrupt("GGUF: token %zu: type %lld, expected 0 to 6", i,
                     static_cast<long long>(type));
    }
    token.type = type == 0 ? TokenType::kNormal : static_cast<TokenType>(type);
    if (scored) token.score = (*scores)[i];
  }
  return ok_status();
}

Status read_special_ids(const GgufReader& gguf, bool scored, TokenizerData& data) {
  const std::size_t n = data.tokens.size();
  const auto set = [&](const char* key, TokenId fallback, TokenId& id) -> Status {
    QSF_ASSIGN_OR_RETURN(id, special_id(gguf, key, fallback, n));
    return ok_status();
  };
  QSF_RETURN_IF_ERROR(set("tokenizer.ggml.bos_token_id", scored ? 1 : kNoToken, data.bos));
  QSF_RETURN_IF_ERROR(set("tokenizer.ggml.eos_token_id", scored ? 2 : kNoToken, data.eos));
  QSF_RETURN_IF_ERROR(set("tokenizer.ggml.padding_token_id", kNoToken, data.pad));
  QSF_RETURN_IF_ERROR(set("tokenizer.ggml.unknown_token_id", scored ? 0 : kNoToken, data.unk));
  TokenId eot = kNoToken;
  TokenId eom = kNoToken;
  QSF_RETURN_IF_ERROR(set("tokenizer.ggml.eot_token_id", kNoToken, eot));
  QSF_RETURN_IF_ERROR(set("tokenizer.ggml.eom_token_id", kNoToken, eom));
  QSF_ASSIGN_OR_RETURN(const auto add_bos, gguf.get_bool("tokenizer.ggml.add_bos_token"));
  QSF_ASSIGN_OR_RETURN(const auto add_eos, gguf.get_bool("tokenizer.ggml.add_eos_token"));
  data.add_bos = add_bos.value_or(data.add_bos) && data.bos != kNoToken;
  data.add_eos = add_eos.value_or(data.add_eos) && data.eos != kNoToken;
  for (const TokenId id : {data.eos, eot, eom}) {
    const auto& known = data.stop_ids;
    if (id != kNoToken && std::find(known.begin(), known.end(), id) == known.end()) {
      data.stop_ids.push_back(id);
    }
  }
  return ok_status();
}

// Control, unknown and user-defined tokens are matched as written wherever they stand.
void add_matched_tokens(const GgufReader& gguf, TokenizerData& data) {
  const auto architecture = gguf.get_string("general.architecture");
  // Phi-3's tokens swallow the whitespace behind them; GGUF has no key for that.
  const bool phi3 = architecture.has_value() && architecture->value_or("") == "phi3";
  for (TokenId id = 0; id < data.tokens.size(); ++id) {
    const VocabToken& token = data.tokens[id];
    const bool special = token.type == TokenType::kControl || token.type == TokenType::kUnknown;
    if ((!special && token.type != TokenType::kUserDefined) || token.text.empty()) continue;
    AddedToken added;
    added.text = token.text;
    added.id = id;
    added.special = special;
    added.right_strip =
        phi3 && token.text != "<unk>" && token.text != "<s>" && token.text != "<|endoftext|>";
    data.added.push_back(std::move(added));
    if (special && std::find(kTurnEnds.begin(), kTurnEnds.end(), token.text) != kTurnEnds.end() &&
        std::find(data.stop_ids.begin(), data.stop_ids.end(), id) == data.stop_ids.end()) {
      data.stop_ids.push_back(id);
    }
  }
}

// Reads "left right" lines; a space may itself be a token's first character, never a later one.
Status read_merges(const GgufReader& gguf, TokenizerData& data) {
  QSF_ASSIGN_OR_RETURN(const auto lines, gguf.get_strings("tokenizer.ggml.merges"));
  if (!lines.has_value()) return corrupt("GGUF: no tokenizer.ggml.merges, which \"gpt2\" needs");
  TokenMap ids;
  ids.reserve(data.tokens.size());
  for (TokenId id = 0; id < data.tokens.size(); ++id) ids.try_emplace(data.tokens[id].text, id);
  std::unordered_set<std::uint64_t> seen;
  seen.reserve(lines->size());
  std::string joined;
  for (std::size_t i = 0; i < lines->size(); ++i) {
    const std::string_view line = (*lines)[i];
    const std::size_t space = line.find(' ', 1);
    if (space == std::string_view::npos) {
      return corrupt("GGUF: merge %zu: expected two tokens with a space between", i);
    }
    const auto left = ids.find(line.substr(0, space));
    const auto right = ids.find(line.substr(space + 1));
    joined.assign(line.substr(0, space)).append(line.substr(space + 1));
    const auto result = ids.find(joined);
    if (left == ids.end() || right == ids.end() || result == ids.end()) {
      return corrupt("GGUF: merge %zu: one of its tokens is not in the vocabulary", i);
    }
    // Of a pair that stands twice, the first rank counts.
    if (seen.insert(std::uint64_t{left->second} << 32 | right->second).second) {
      data.merges.push_back({left->second, right->second, result->second});
    }
  }
  return ok_status();
}

// Files of BitNet's own converter leave the key out, whose vocabulary is that of LLaMA 3. No other
// one in use has its size.
const char* unnamed_pretokenizer(const GgufReader& gguf) {
  constexpr std::uint64_t kLlama3Tokens = 128256;
  const GgufKey* tokens = gguf.find_key("tokenizer.ggml.tokens");
  return tokens != nullptr && tokens->n_elements == kLlama3Tokens ? "llama-bpe" : "default";
}

Result<TokenizerData> byte_level(const GgufReader& gguf) {
  TokenizerData data;
  data.kind = TokenizerKind::kByteBpe;
  QSF_ASSIGN_OR_RETURN(const auto named, gguf.get_string("tokenizer.ggml.pre"));
  const std::string name(named.value_or(unnamed_pretokenizer(gguf)));
  const GgufPretokenizer* pre = find_gguf_pretokenizer(name);
  if (pre == nullptr) {
    return unsupported(
        "GGUF: pre-tokeniser \"%.60s\" is not known; convert from the original model "
        "folder, whose tokenizer.json states its expressions",
        name.c_str());
  }
  QSF_RETURN_IF_ERROR(read_vocabulary(gguf, /*scored=*/false, data));
  data.add_bos = pre->add_bos;
  data.ignore_merges = pre->ignore_merges;
  QSF_RETURN_IF_ERROR(read_special_ids(gguf, /*scored=*/false, data));
  for (const char* expression : pre->expressions) {
    if (expression == nullptr) break;
    TextStep step;
    step.text = expression;
    data.steps.push_back(std::move(step));
  }
  QSF_RETURN_IF_ERROR(read_merges(gguf, data));
  add_matched_tokens(gguf, data);
  // Merges refer to texts in the byte alphabet, so that is left behind only now. Tokens that are
  // matched as written never were in it.
  for (VocabToken& token : data.tokens) {
    if (token.type != TokenType::kNormal && token.type != TokenType::kUnused) continue;
    if (auto bytes = bytes_of_alphabet(token.text); bytes.has_value())
      token.text = std::move(*bytes);
  }
  return data;
}

Result<TokenizerData> scored(const GgufReader& gguf) {
  TokenizerData data;
  data.kind = TokenizerKind::kScoredBpe;
  data.byte_fallback = true;
  data.fuse_unknown = true;
  data.unescape_spaces = true;
  data.add_bos = true;
  QSF_RETURN_IF_ERROR(read_vocabulary(gguf, /*scored=*/true, data));
  QSF_RETURN_IF_ERROR(read_special_ids(gguf, /*scored=*/true, data));
  QSF_ASSIGN_OR_RETURN(const auto prefix, gguf.get_bool("tokenizer.ggml.add_space_prefix"));
  QSF_ASSIGN_OR_RETURN(const auto collapse,
                       gguf.get_bool("tokenizer.ggml.remove_extra_whitespaces"));
  if (collapse.value_or(false)) {
    TextStep step;
    step.op = TextOp::kCollapseSpaces;
    step.stage = TextStage::kNormalizer;
    data.steps.push_back(step);
  }
  if (prefix.value_or(true)) {
    TextStep step;
    step.op = TextOp::kPrepend;
    step.stage = TextStage::kNormalizer;
    step.text = " ";
    data.steps.push_back(std::move(step));
    data.strip_leading_space = true;
  }
  TextStep escape;
  escape.op = TextOp::kReplace;
  escape.stage = TextStage::kNormalizer;
  escape.text = " ";
  escape.replacement = kSpaceSymbol;
  data.steps.push_back(std::move(escape));
  add_matched_tokens(gguf, data);
  return data;
}

}  // namespace

Result<TokenizerData> tokenizer_from_gguf(const GgufReader& gguf) {
  QSF_ASSIGN_OR_RETURN(const auto model, gguf.get_string("tokenizer.ggml.model"));
  if (!model.has_value()) {
    return not_found("GGUF: no tokenizer.ggml.model: the file has no tokenizer");
  }
  if (*model == "gpt2") return byte_level(gguf);
  if (*model == "llama") return scored(gguf);
  return unsupported(
      "GGUF: tokenizer model \"%s\" is not known to this version, which reads \"gpt2\" "
      "(byte-level BPE) and \"llama\" (SentencePiece BPE)",
      std::string(model->substr(0, 60)).c_str());
}

}  // namespace qsf
