// SPDX-License-Identifier: MIT
//
// The tokenizer of a Hugging Face model folder.
//
// In order of preference: tokenizer.json (BPE models), tokenizer.model (SentencePiece BPE),
// vocab.json with merges.txt (GPT-2, OPT, CodeGen and Qwen2). The other files say which tokens are
// special and whether BOS and EOS are added. What is not supported - Unigram, WordPiece,
// normalisers that change characters, NFC excepted - is refused by name.
//
// The importer takes contents, not paths: whoever reads the folder decides how.
//
// Based on: the JSON that Hugging Face tokenizers 0.2x writes.

#ifndef QSF_IMPORT_HF_HF_TOKENIZER_H_
#define QSF_IMPORT_HF_HF_TOKENIZER_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "import/json_access.h"
#include "tokenizer/tokenizer_data.h"

namespace qsf {

// Vocabularies, merges and added tokens as Hugging Face files state them, put into TokenizerData.

// Fills data.tokens from an object of text to id. Ids without text become unused tokens.
// Fails  kCorrupt on ids that repeat or lie far beyond the number of entries
Status read_hf_vocabulary(const Json& vocabulary, TokenizerData& data);

struct MergeText {
  std::string_view left;
  std::string_view right;
};
// Fills data.merges. Texts are those of the vocabulary as written; of a pair that stands twice, the
// last rank counts.
// Fails  kCorrupt when a merge names a token that the vocabulary lacks
Status read_hf_merges(const std::vector<MergeText>& merges, TokenizerData& data);

// Splits "left right". Returns false when there is no such space.
bool split_merge_line(std::string_view line, MergeText& merge) noexcept;

// Makes one added token known: its entry in data.added, its text and type in data.tokens, which may
// grow. `json` holds content, special, normalized, lstrip, rstrip, single_word.
Status add_hf_token(const Json& json, std::uint64_t id, TokenizerData& data);

// Turns the texts of all normal tokens from the byte alphabet into bytes.
void decode_byte_alphabet(TokenizerData& data);

// Returns the token with that text, or kNoToken. Linear.
TokenId find_hf_token(const TokenizerData& data, std::string_view text) noexcept;

// A tokenizer.json as TokenizerData. Part of import/hf/hf_tokenizer.h, which puts the files of a
// model folder together.

struct HfTokenizerJson {
  TokenizerData data;
  bool has_template = false;  // its post-processor says whether BOS and EOS are added
};

// Fails  kCorrupt, kUnsupported
Result<HfTokenizerJson> read_hf_tokenizer_json(std::string_view text);

// Contents of the files of a model folder that concern its tokenizer; empty where there is none.
struct HfTokenizerFiles {
  std::optional<std::string> tokenizer_json;
  std::optional<std::string> tokenizer_model;
  std::optional<std::string> vocab_json;
  std::optional<std::string> merges_txt;
  std::optional<std::string> added_tokens_json;
  std::optional<std::string> special_tokens_map_json;
  std::optional<std::string> tokenizer_config_json;
};

// The names of those files, to be walked by whoever reads the folder.
struct HfTokenizerFileName {
  const char* name;
  std::optional<std::string> HfTokenizerFiles::*content;
};
std::span<const HfTokenizerFileName> hf_tokenizer_file_names() noexcept;

// Fails    kNotFound when no tokenizer is among the files; kCorrupt on files that are damaged or do
//          not fit together; kUnsupported on kinds of tokenizer not known here
// Threads  any
Result<TokenizerData> tokenizer_from_hf(const HfTokenizerFiles& files);

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_TOKENIZER_H_
