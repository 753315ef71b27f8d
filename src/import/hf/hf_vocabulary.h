// SPDX-License-Identifier: MIT
//
// Vocabularies, merges and added tokens as Hugging Face files state them, put into TokenizerData.

#ifndef QSF_IMPORT_HF_HF_VOCABULARY_H_
#define QSF_IMPORT_HF_HF_VOCABULARY_H_

#include <string_view>
#include <vector>

#include "base/result.h"
#include "import/json_access.h"
#include "tokenizer/tokenizer_data.h"

namespace qsf {

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

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_VOCABULARY_H_
