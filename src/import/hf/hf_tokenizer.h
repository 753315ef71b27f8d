// SPDX-License-Identifier: MIT
//
// The tokenizer of a Hugging Face model folder.
//
// In order of preference: tokenizer.json (BPE and WordPiece models), tokenizer.model (SentencePiece
// BPE), vocab.json with merges.txt (GPT-2, OPT, CodeGen and Qwen2), vocab.txt (BERT). The other
// files name the special tokens and say whether BOS and EOS are added. Unsupported features
// (Unigram, normalisers that change characters, other than NFC and BERT's) are rejected by name.
//
// The caller reads the files; the importer takes their contents.
//
// Based on: the JSON that Hugging Face tokenizers 0.2x writes.

#ifndef QSF_IMPORT_HF_HF_TOKENIZER_H_
#define QSF_IMPORT_HF_HF_TOKENIZER_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tokenizer/tokenizer_data.h"

namespace qsf {

// Contents of the tokenizer files of a model folder; nothing for an absent file.
struct HfTokenizerFiles {
  std::optional<std::string> tokenizer_json;
  std::optional<std::string> tokenizer_model;
  std::optional<std::string> vocab_json;
  std::optional<std::string> merges_txt;
  std::optional<std::string> vocab_txt;
  std::optional<std::string> added_tokens_json;
  std::optional<std::string> special_tokens_map_json;
  std::optional<std::string> tokenizer_config_json;
};

// The names of these files, for the code that reads the folder.
struct HfTokenizerFileName {
  const char* name;
  std::optional<std::string> HfTokenizerFiles::*content;
};
std::span<const HfTokenizerFileName> hf_tokenizer_file_names() noexcept;

// Fails    kNotFound when there is no tokenizer; kCorrupt on files that are damaged or disagree;
//          kUnsupported on unsupported kinds of tokenizer
// Threads  any
Result<TokenizerData> tokenizer_from_hf(const HfTokenizerFiles& files);

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_TOKENIZER_H_
