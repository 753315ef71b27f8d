// SPDX-License-Identifier: MIT
//
// What interfaces need to know of the server, and what of a model.

#ifndef QSF_TOOLS_SERVE_API_API_SETTINGS_H_
#define QSF_TOOLS_SERVE_API_API_SETTINGS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qsf/qsf.h"
#include "tools/serve/text_request.h"

namespace qsf_tools {

// A model as /v1/models lists it. Numbers are 0 where the model was not loaded yet.
struct ModelListing {
  std::string id;
  std::string parent;  // of an adapter: the id of its model
  std::string path;
  std::int64_t created = 0;  // seconds since 1970
  bool is_loaded = false;
  int n_ctx = 0;
  int n_ctx_train = 0;
  int n_vocab = 0;
  int n_embd = 0;
  std::uint64_t n_params = 0;
  std::uint64_t size_bytes = 0;  // of the file
  std::string architecture;      // "llama", ...
  std::string quant_type;        // "4bit", ...
  bool has_chat_template = false;
};

// An adapter that requests may choose.
struct AdapterListing {
  std::string name;
  std::string path;
};

// A conversation to be formatted; fields as ChatCall has them.
struct ChatPromptRequest {
  std::string_view messages;
  std::string_view tools;
  std::string_view variables;
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  std::int64_t now_seconds = 0;
};

struct ChatPrompt {
  std::vector<int> tokens;
  std::string text;
  std::vector<int> end_tokens;
  std::vector<std::string> end_texts;
  bool tools_in_system = false;  // described there, since the template has no place for them
};

// What jobs ask of a model, beside texts. Functions that compute belong to the scheduler's thread.
class ModelAccess {
 public:
  virtual ~ModelAccess() = default;

  virtual std::optional<ApiError> chat_prompt(const LoadedModel& model,
                                              const ChatPromptRequest& request,
                                              ChatPrompt& prompt) const = 0;
  // `flags` of qsf_tokenize_flags.
  virtual std::optional<ApiError> tokenize(const LoadedModel& model, std::string_view text,
                                           unsigned flags, std::vector<int>& tokens) const = 0;
  virtual std::optional<ApiError> detokenize(const LoadedModel& model,
                                             const std::vector<int>& tokens,
                                             std::string& text) const = 0;
  // Returns the bytes that a token stands for: perhaps a part of a character.
  virtual std::string token_bytes(const LoadedModel& model, int token) const = 0;
  // Returns why a grammar (GBNF) cannot be compiled; nothing where it can, or no room is left to
  // try.
  virtual std::optional<std::string> check_grammar(const LoadedModel& model,
                                                   const std::string& grammar) const = 0;
  // Computes; shapes  embedding [hidden_size]
  virtual std::optional<ApiError> embed(const LoadedModel& model, const std::vector<int>& tokens,
                                        qsf_pooling pooling, bool normalize,
                                        std::vector<float>& embedding) const = 0;
};

// The access to models by the C interface (engine_access.cc).
const ModelAccess& engine_access();

// Counters for /metrics. Any thread.
struct ApiCounters {
  std::atomic<std::uint64_t> ignored_fields = 0;
};

// Outlives every job.
struct ApiSettings {
  ApiSettings();  // sampling as qsf_sampling_init sets it, the clock, random ids, engine_access()

  bool strict_fields = false;
  qsf_sampling sampling;  // what a request does not name; no pointers
  int max_choices = 16;   // n
  int max_prompts = 64;   // of one /v1/completions
  int max_stop_texts = 16;
  int max_texts = 1;  // that are generated at once, as /props reports
  const ModelAccess* access;

  std::function<std::vector<ModelListing>()> list_models;
  std::vector<AdapterListing> adapters;  // by llama-server's ids, which count from 0
  float adapter_scale = 1.0F;            // of requests that name none

  // Replaced by tests.
  std::function<std::int64_t()> now_seconds;
  std::function<std::uint64_t()> now_ns;                        // of a steady clock
  std::function<std::string(std::string_view prefix)> make_id;  // "chatcmpl-" + 24 characters
  std::function<std::uint64_t()> make_seed;                     // of requests without one

  mutable ApiCounters counters;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_API_SETTINGS_H_
