// SPDX-License-Identifier: MIT

#include "import/gguf/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "import/bert_steps.h"
#include "import/vocabulary.h"
#include "tokenizer/word_pieces.h"

namespace qsf {

namespace {

using TokenMap = std::unordered_map<std::string_view, TokenId>;

constexpr std::string_view kGgufSpaceSymbol = "\xE2\x96\x81";  // U+2581

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

// Control, unknown and user-defined tokens are matched as written anywhere in the text.
void add_matched_tokens(const GgufReader& gguf, TokenizerData& data) {
  const auto architecture = gguf.get_string("general.architecture");
  // Phi-3's tokens consume the whitespace after them; GGUF has no key for that.
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
    // Of a pair that appears twice, the first rank counts.
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
        "GGUF: pre-tokeniser \"%.60s\" is not known; convert the original model folder with its "
        "tokenizer.json",
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
  escape.replacement = kGgufSpaceSymbol;
  data.steps.push_back(std::move(escape));
  add_matched_tokens(gguf, data);
  return data;
}

// Returns the token as BERT's own vocabulary has it. In GGUF words begin with U+2581 and tokens
// that continue a word have nothing in front; those in brackets are as they were.
std::string word_piece_of(const VocabToken& token) {
  const bool special = token.type == TokenType::kControl || token.type == TokenType::kUnknown;
  const bool bracketed = token.text.starts_with('[') && token.text.ends_with(']');
  if (token.text.starts_with(kGgufSpaceSymbol)) return token.text.substr(kGgufSpaceSymbol.size());
  if (special || bracketed || token.type == TokenType::kUnused) return token.text;
  return std::string(kContinuation) + token.text;
}

// Ids that a file does not name are those of BERT's own vocabulary, as in llama.cpp. Letters become
// lowercase where no key says otherwise.
Result<TokenizerData> word_pieces(const GgufReader& gguf) {
  constexpr TokenId kPad = 0;
  constexpr TokenId kUnknown = 100;
  constexpr TokenId kBegin = 101;
  constexpr TokenId kEnd = 102;
  TokenizerData data;
  data.kind = TokenizerKind::kWordPiece;
  data.strip_leading_space = true;
  QSF_RETURN_IF_ERROR(read_vocabulary(gguf, /*scored=*/false, data));
  const std::size_t n = data.tokens.size();
  QSF_ASSIGN_OR_RETURN(data.bos, special_id(gguf, "tokenizer.ggml.cls_token_id", kBegin, n));
  QSF_ASSIGN_OR_RETURN(data.bos, special_id(gguf, "tokenizer.ggml.bos_token_id", data.bos, n));
  // The key is spelt so in all files.
  QSF_ASSIGN_OR_RETURN(data.eos, special_id(gguf, "tokenizer.ggml.seperator_token_id", kEnd, n));
  QSF_ASSIGN_OR_RETURN(data.pad, special_id(gguf, "tokenizer.ggml.padding_token_id", kPad, n));
  QSF_ASSIGN_OR_RETURN(data.unk, special_id(gguf, "tokenizer.ggml.unknown_token_id", kUnknown, n));
  if (data.unk == kNoToken || data.bos == kNoToken || data.eos == kNoToken) {
    return corrupt(
        "GGUF: a \"bert\" tokenizer of %zu tokens without those for unknown words and "
        "for the ends of a text",
        n);
  }
  for (const TokenId id : {data.bos, data.eos}) data.tokens[id].type = TokenType::kControl;
  data.tokens[data.unk].type = TokenType::kUnknown;
  data.add_bos = data.add_eos = true;
  data.stop_ids.push_back(data.eos);
  for (VocabToken& token : data.tokens) token.text = word_piece_of(token);
  add_matched_tokens(gguf, data);
  QSF_ASSIGN_OR_RETURN(const auto lower, gguf.get_bool("tokenizer.ggml.normalizer.lowercase"));
  QSF_ASSIGN_OR_RETURN(const auto strip, gguf.get_bool("tokenizer.ggml.normalizer.strip_accents"));
  const bool lowercase = lower.value_or(true);
  add_bert_normalizer({.strip_marks = strip.value_or(lowercase), .lowercase = lowercase}, data);
  add_bert_splits(data);
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
  if (*model == "bert") return word_pieces(gguf);
  return unsupported(
      "GGUF: tokenizer model \"%s\" is not supported; expected \"gpt2\" (byte-level BPE), "
      "\"llama\" (SentencePiece BPE) or \"bert\" (WordPiece)",
      std::string(model->substr(0, 60)).c_str());
}

// The one table of pre-tokenisers that GGUF files name. The expressions are the models' own, as
// their tokenizer.json files state them, with characters beyond ASCII written as \x{...}; the one
// exception is kTrailingSpace, which stands for \s+$ and finds the same text without trying every
// character of a long run of spaces as a beginning.

namespace {

constexpr const char* kGpt2 =
    R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re";
constexpr const char* kLlama3 =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N)re"
    R"re(}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr const char* kQwen2 =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\)re"
    R"re(r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr const char* kGpt4o =
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:)re"
    R"re('s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{)re"
    R"re(Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}])re"
    R"re(+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr const char* kTekken =
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\)re"
    R"re(r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)re"
    R"re( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr const char* kPunctuation = R"re([\p{P}$+<=>^~|`]+)re";
constexpr const char* kThreeDigits = R"re([0-9][0-9][0-9])re";
constexpr const char* kDigit = R"re(\p{N})re";
constexpr const char* kDigits = R"re(\p{N}+)re";
constexpr const char* kUpToThreeDigits = R"re(\p{N}{1,3})re";
constexpr const char* kLineBreak = R"re([\r\n])re";
constexpr const char* kDeepseekLetters =
    R"re(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\)re"
    R"re(x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\)re"
    R"re(x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F)re"
    R"re(}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1)re"
    R"re(CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00})re"
    R"re(-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{)re"
    R"re(1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE})re"
    R"re(\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{)re"
    R"re(1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115})re"
    R"re(\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{21)re"
    R"re(39}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x)re"
    R"re({2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69)re"
    R"re(B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\)re"
    R"re(x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{)re"
    R"re(104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A)re"
    R"re(0}-\x{118DF}\x{1E900}-\x{1E943}]+)re";
constexpr const char* kDeepseekPunctuation =
    R"re(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)re";
constexpr const char* kTrailingSpace = R"re((?<!\s)\s++$)re";
constexpr const char* kDeepseekCjk = R"re([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)re";
constexpr const char* kSpacedLetters = R"re(\s?\p{L}+)re";
constexpr const char* kSpacedPunctuation = R"re(\s?\p{P}+)re";
constexpr const char* kDeepseek3Cjk =
    R"re([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)re";
constexpr const char* kDeepseek3Words =
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{)re"
    R"re(M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr const char* kBloom =
    R"re( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)re";

// clang-format off
constexpr GgufPretokenizer kPretokenizers[] = {
    {"default", {kPunctuation, kGpt2, kDigits, kThreeDigits}, false, false},
    {"gpt-2", {kGpt2}, false, false},
    {"phi-2", {kGpt2}, false, false},
    {"mpt", {kGpt2}, false, false},
    {"olmo", {kGpt2}, false, false},
    {"jais", {kGpt2}, false, false},
    {"gigachat", {kGpt2}, false, false},
    {"exaone4", {kGpt2}, false, false},
    {"trillion", {kGpt2}, false, false},
    {"modern-bert", {kGpt2}, false, false},
    {"falcon", {kPunctuation, kGpt2, kThreeDigits}, false, false},
    {"starcoder", {kDigit, kGpt2}, false, false},
    {"refact", {kDigit, kGpt2}, false, false},
    {"command-r", {kDigit, kGpt2}, false, false},
    {"smollm", {kDigit, kGpt2}, false, false},
    {"codeshell", {kDigit, kGpt2}, false, false},
    {"exaone", {kDigit, kGpt2}, false, false},
    {"minerva-7b", {kDigit, kGpt2}, false, false},
    {"llama-bpe", {kLlama3}, true, true},
    {"llama3", {kLlama3}, true, true},
    {"llama-v3", {kLlama3}, true, true},
    {"falcon3", {kLlama3}, true, true},
    {"falcon-h1", {kLlama3}, true, true},
    {"lfm2", {kLlama3}, true, true},
    {"pixtral", {kLlama3}, true, true},
    {"dbrx", {kLlama3}, false, false},
    {"smaug-bpe", {kLlama3}, false, false},
    {"chatglm-bpe", {kLlama3}, false, false},
    {"glm4", {kLlama3}, false, false},
    {"qwen2", {kQwen2}, false, false},
    {"deepseek-r1-qwen", {kQwen2}, false, false},
    {"stablelm2", {kQwen2}, false, false},
    {"megrez", {kQwen2}, false, false},
    {"hunyuan", {kQwen2}, false, false},
    {"gpt-4o", {kGpt4o}, false, false},
    {"llama4", {kGpt4o}, false, false},
    {"tekken", {kTekken}, true, true},
    {"deepseek-llm", {kLineBreak, kDeepseekLetters, kDeepseekPunctuation, kTrailingSpace, kDeepseekCjk, kDigits}, false, false},
    {"deepseek-coder", {kLineBreak, kSpacedLetters, kSpacedPunctuation, kDeepseekCjk, kDigit}, false, false},
    {"deepseek-v3", {kUpToThreeDigits, kDeepseek3Cjk, kDeepseek3Words}, false, false},
    {"hunyuan-dense", {kUpToThreeDigits, kDeepseek3Cjk, kDeepseek3Words}, false, false},
    {"bloom", {kBloom}, false, false},
    {"poro-chat", {kBloom}, false, false},
    {"gpt3-finnish", {kBloom}, false, false},
    {"viking", {kBloom, kDigit}, false, false},
};
// clang-format on

}  // namespace

const GgufPretokenizer* find_gguf_pretokenizer(std::string_view name) noexcept {
  for (const GgufPretokenizer& entry : kPretokenizers) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

std::span<const GgufPretokenizer> gguf_pretokenizers() noexcept {
  return kPretokenizers;
}

const char* gpt2_expression() noexcept {
  return kGpt2;
}

}  // namespace qsf
