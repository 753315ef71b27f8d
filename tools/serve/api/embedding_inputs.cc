// SPDX-License-Identifier: MIT
#include "tools/serve/api/embedding_inputs.h"

#include <algorithm>
#include <utility>

#include "tools/serve/api/api_error.h"
#include "tools/serve/api/ollama.h"
#include "tools/serve/api/raw_prompt.h"

namespace qsf_tools {

void refuse_adapter(FieldReader& fields, const ApiSettings& settings, const std::string& name) {
  const auto is_named = [tagless = ollama_model_name(name)](const AdapterListing& adapter) {
    return adapter.name == tagless;
  };
  if (std::any_of(settings.adapters.begin(), settings.adapters.end(), is_named)) {
    fields.fail("model", "'model' is the adapter '" + name +
                             "', but embeddings are computed without adapters; name its model");
  }
}

std::optional<ApiError> make_embedding_inputs(const ApiSettings& settings, const LoadedModel& model,
                                              int dimensions, bool truncate,
                                              std::vector<RawPrompt>& prompts,
                                              EmbeddingInputs& inputs) {
  const int hidden = model.info.hidden_size;
  if (dimensions != -1 && dimensions != hidden) {
    return invalid_field("dimensions", "'dimensions' is " + std::to_string(dimensions) +
                                           ", but this model's embeddings have " +
                                           std::to_string(hidden));
  }
  const auto context = static_cast<std::size_t>(model.info.context);
  for (RawPrompt& prompt : prompts) {
    std::vector<int> tokens;
    std::vector<int> no_end_tokens;
    if (auto error = raw_tokens(settings, model, prompt, no_end_tokens, tokens, "input")) {
      return error;
    }
    prompt = RawPrompt();
    if (tokens.empty()) return invalid_field("input", "'input' has a text without tokens");
    if (tokens.size() > context && !truncate) {
      return context_exceeded(static_cast<int>(tokens.size()), model.info.context, "input");
    }
    tokens.resize(std::min(tokens.size(), context));
    inputs.n_tokens += tokens.size();
    inputs.tokens.push_back(std::move(tokens));
  }
  return std::nullopt;
}

}  // namespace qsf_tools
