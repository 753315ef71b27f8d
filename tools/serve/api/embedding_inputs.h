// SPDX-License-Identifier: MIT
//
// The inputs of embeddings as tokens: the same of OpenAI's interface and ollama's.

#ifndef QSF_TOOLS_SERVE_API_EMBEDDING_INPUTS_H_
#define QSF_TOOLS_SERVE_API_EMBEDDING_INPUTS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tools/serve/api/api_settings.h"
#include "tools/serve/api/chat_call.h"
#include "tools/serve/api/json_fields.h"

namespace qsf_tools {

struct EmbeddingInputs {
  std::vector<std::vector<int>> tokens;  // of each input, at least one
  std::size_t n_tokens = 0;              // of all inputs
};

// Refuses a model's name that is an adapter's: embeddings are computed without adapters, and would
// silently be those of its model.
void refuse_adapter(FieldReader& fields, const ApiSettings& settings, const std::string& name);

// Makes the tokens of `prompts`, whose texts are freed on the way. `dimensions` -1: not named.
// With `truncate` the end of an input that exceeds the context is left out.
// Fails  400: dimensions other than the model's, an input without tokens or beyond the context
std::optional<ApiError> make_embedding_inputs(const ApiSettings& settings, const LoadedModel& model,
                                              int dimensions, bool truncate,
                                              std::vector<RawPrompt>& prompts,
                                              EmbeddingInputs& inputs);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_EMBEDDING_INPUTS_H_
