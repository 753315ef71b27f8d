// SPDX-License-Identifier: MIT
//
// What the scheduler computes for a request: texts to be generated after prompts of tokens, and the
// events that it reports. Interfaces (tools/serve/api/) make these from bodies, and answers from
// the events.

#ifndef QSF_TOOLS_SERVE_TEXT_REQUEST_H_
#define QSF_TOOLS_SERVE_TEXT_REQUEST_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qsf/qsf.h"

namespace qsf_tools {

// An error of a request, in OpenAI's terms; other interfaces translate it.
struct ApiError {
  int status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::string param;            // empty: null
  std::string code;             // empty: null
  int retry_after_seconds = 0;  // 0: no Retry-After header
  int n_prompt_tokens = 0;      // with code context_length_exceeded
  int n_ctx = 0;                // the same
};

// How a text is constrained.
struct TextConstraint {
  enum class Kind : std::uint8_t { kNone, kGrammar, kJsonSchema, kJsonObject };
  Kind kind = Kind::kNone;
  std::string source;   // GBNF, or the text of a JSON Schema
  std::string trigger;  // the constraint begins behind this text; empty: at once
  std::string param;    // the field that it came from, for errors
};

// The adapter of a text, as qsf_session_set_adapter takes it.
struct TextAdapter {
  int number = 0;  // 0: none
  float scale = 1.0F;
  friend bool operator==(const TextAdapter&, const TextAdapter&) = default;
};

// One text to be generated.
struct TextRequest {
  std::vector<int> prompt;
  int max_tokens = -1;          // -1: not named
  bool names_limit = false;     // set by the scheduler: max_tokens was named
  bool ignore_end = false;      // end-of-text tokens do not end it, and are not drawn
  std::vector<int> end_tokens;  // beside the model's own
  std::vector<std::string> stop;
  qsf_sampling sampling = {};  // its pointers are set from the members below
  std::vector<qsf_logit_bias> logit_bias;
  std::vector<std::string> dry_breakers;
  bool keep_special = false;  // the text of special tokens is delivered, too
  TextConstraint constraint;
  std::optional<TextAdapter> adapter;  // none: that of the model's name
  bool log_probs = false;
  int n_top_log_probs = 0;
  bool prompt_log_probs = false;  // of the prompt, too, and of the token that ends the text
};

// A generated token, or one of the prompt. Valid during the call that receives it.
struct TextToken {
  int token = 0;
  bool is_rest = false;   // text that was held back until after the last token
  bool is_end = false;    // ended the text, and is not counted; with prompt_log_probs alone
  std::string_view text;  // whole characters, possibly none
  float log_prob = 0.0F;  // NaN: nothing predicts the token
  std::span<const qsf_log_prob> top;
};

enum class TextEnd : std::uint8_t {
  kStop,  // an end-of-text token, or the end of a grammar
  kStopString,
  kLength,    // max_tokens, or the context is full
  kReceiver,  // on_token returned false
};

struct TextResult {
  TextEnd end = TextEnd::kStop;
  std::string stop_string;  // with kStopString, where known
  int prompt_tokens = 0;
  int cached_tokens = 0;  // of the prompt, read from the prefix cache
  int generated_tokens = 0;
  std::uint64_t queue_ns = 0;  // from the request to its admission
  std::uint64_t prompt_ns = 0;
  std::uint64_t generate_ns = 0;
};

// A model that is loaded. Its text functions may be used by any thread.
struct LoadedModel {
  std::string id;
  QSFEngine* engine = nullptr;
  qsf_model_info info = {};
  std::string path;
  std::int64_t created = 0;  // seconds since 1970
  std::uint64_t load_ns = 0;
};

// One request of a client, from its body to the last byte of its answer. The scheduler calls it on
// its own thread, one call at a time.
class ServeJob {
 public:
  virtual ~ServeJob() = default;

  virtual const std::string& model() const noexcept = 0;  // as the client named it; may be empty
  // Whose request it is: the API key's number and cache_salt. Prefixes are shared, and turns taken,
  // by this key.
  virtual const std::string& tenant() const noexcept = 0;

  // Makes the texts to be generated, once its model is loaded. None: compute_step() makes the
  // answer, without any of the calls behind it.
  virtual std::optional<ApiError> prepare(const LoadedModel& model,
                                          std::vector<TextRequest>& texts) = 0;
  // Does one step of a job without texts, about as long as a pass, so that others' passes come
  // between. Returns false when the job has ended: the answer, or an error, is sent.
  virtual bool compute_step(const LoadedModel& model) = 0;
  // Positions of the KV cache that the next compute_step() takes; it waits until they are free.
  virtual std::size_t step_positions() const noexcept { return 0; }
  // All texts will be computed: nothing can refuse them any more.
  virtual void on_admitted() = 0;
  // A token of the prompt, in order, before all that is generated; with prompt_log_probs.
  virtual void on_prompt_token(std::size_t /*text*/, const TextToken& /*token*/) {}
  // Returns false to end this text behind the token.
  virtual bool on_token(std::size_t text, const TextToken& token) = 0;
  virtual void on_text_end(std::size_t text, const TextResult& result) = 0;
  // All texts have ended.
  virtual void on_end() = 0;
  // Before on_admitted: refused. After it: the job ends here.
  virtual void on_error(const ApiError& error) = 0;

  // Whether the client takes no more output for now, or has gone.
  virtual bool is_full() const noexcept = 0;
  virtual bool is_gone() const noexcept = 0;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_TEXT_REQUEST_H_
