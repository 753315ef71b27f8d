// SPDX-License-Identifier: MIT
//
// Reads "normalizer", "pre_tokenizer" and "decoder" of a tokenizer.json into steps of
// TokenizerData.

#ifndef QSF_IMPORT_HF_HF_PIPELINE_H_
#define QSF_IMPORT_HF_HF_PIPELINE_H_

#include <string>
#include <string_view>

#include "base/result.h"
#include "import/json_document.h"
#include "tokenizer/tokenizer_data.h"

namespace qsf {

// Append the steps of one part of the pipeline; `json` is null for an absent part.
// Fails  kUnsupported, naming an unsupported type
Status add_hf_normalizer(const JsonValue* json, TokenizerData& data);
Status add_hf_pre_tokenizer(const JsonValue* json, TokenizerData& data);

// Sets how pieces become text: U+2581 read as a space, a leading space removed.
Status read_hf_decoder(const JsonValue* json, TokenizerData& data);

// Returns whether the part, or a part of its sequence, has that type.
bool hf_part_has_type(const JsonValue* json, std::string_view type) noexcept;

// Returns `text` after the steps of the normaliser.
std::string apply_hf_normalizer(const TokenizerData& data, std::string_view text);

// Translates an expression from Oniguruma (Ruby syntax) to PCRE2: anchors match at every line,
// nested classes are merged.
// Fails  kUnsupported on syntax that cannot be translated
Result<std::string> adapt_expression(std::string_view expression);

// Returns an expression that matches `text` and nothing else.
std::string escape_expression(std::string_view text);

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_PIPELINE_H_
