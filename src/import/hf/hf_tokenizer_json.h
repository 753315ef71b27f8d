// SPDX-License-Identifier: MIT
//
// A tokenizer.json as TokenizerData. Part of import/hf/hf_tokenizer.h, which puts the files of a
// model folder together.

#ifndef QSF_IMPORT_HF_HF_TOKENIZER_JSON_H_
#define QSF_IMPORT_HF_HF_TOKENIZER_JSON_H_

#include <string_view>

#include "base/result.h"
#include "tokenizer/tokenizer_data.h"

namespace qsf {

struct HfTokenizerJson {
  TokenizerData data;
  bool has_template = false;  // its post-processor says whether BOS and EOS are added
};

// Fails  kCorrupt, kUnsupported
Result<HfTokenizerJson> read_hf_tokenizer_json(std::string_view text);

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_TOKENIZER_JSON_H_
