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

#include "base/result.h"
#include "tokenizer/tokenizer_data.h"

namespace qsf {

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
