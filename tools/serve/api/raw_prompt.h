// SPDX-License-Identifier: MIT
//
// Prompts without a chat template: how bodies have them, and the tokens of one.

#ifndef QSF_TOOLS_SERVE_API_RAW_PROMPT_H_
#define QSF_TOOLS_SERVE_API_RAW_PROMPT_H_

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "tools/serve/api/api_settings.h"
#include "tools/serve/api/chat_call.h"
#include "tools/serve/api/json_fields.h"

namespace qsf_tools {

// Reads a string, an array of tokens, or an array of up to `max` of either. The field must be
// there.
std::vector<RawPrompt> read_raw_prompts(FieldReader& fields, std::string_view field,
                                        std::size_t max);

// Makes the tokens of a prompt. One with a suffix is written with the model's fill-in-the-middle
// tokens, and those that may follow a text that was filled in are added to `end_tokens`.
// Fails  400: a token outside of the vocabulary, a suffix for a model without such tokens
std::optional<ApiError> raw_tokens(const ApiSettings& settings, const LoadedModel& model,
                                   const RawPrompt& prompt, std::vector<int>& end_tokens,
                                   std::vector<int>& tokens, std::string_view param = "prompt");

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_RAW_PROMPT_H_
