// SPDX-License-Identifier: MIT
//
// The "normalizer", "pre_tokenizer" and "decoder" of a tokenizer.json, as steps of TokenizerData.

#ifndef QSF_IMPORT_HF_HF_PIPELINE_H_
#define QSF_IMPORT_HF_HF_PIPELINE_H_

#include <string>
#include <string_view>

#include "base/result.h"
#include "import/json_access.h"
#include "tokenizer/tokenizer_data.h"

namespace qsf {

// Append the steps of one part of the pipeline; `json` may be null for an absent part.
// Fails  kUnsupported, naming the type that is not known
Status add_hf_normalizer(const Json* json, TokenizerData& data);
Status add_hf_pre_tokenizer(const Json* json, TokenizerData& data);

// Sets how pieces become text: U+2581 as a space, a leading space dropped.
Status read_hf_decoder(const Json* json, TokenizerData& data);

// True when the part, or a part of its sequence, is of that type.
bool hf_part_has_type(const Json* json, std::string_view type) noexcept;

// Returns `text` as the steps of the normaliser leave it.
std::string apply_hf_normalizer(const TokenizerData& data, std::string_view text);

// Returns an expression written for Oniguruma (Ruby syntax) as PCRE2 needs it: anchors match at
// every line, classes inside classes are joined.
// Fails  kUnsupported where the two differ in a way that cannot be bridged
Result<std::string> adapt_expression(std::string_view expression);

// Returns an expression that matches `text` and nothing else.
std::string escape_expression(std::string_view text);

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_PIPELINE_H_
