// SPDX-License-Identifier: MIT
//
// Shared by the files of the C API: the structs behind its handles, the guard around every entry,
// and the conversion of structs, options and text between C and the engine.
//
// The engine neither throws nor catches; the standard library may throw bad_alloc. The guard turns
// that into a code, so that no exception reaches C.

#ifndef QSF_CAPI_CAPI_HANDLES_H_
#define QSF_CAPI_CAPI_HANDLES_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/status.h"
#include "capi/struct_sizes.h"
#include "engine/chat.h"
#include "engine/chat_prompts.h"
#include "engine/engine.h"
#include "engine/engine_plan.h"
#include "engine/sampler.h"
#include "qsf/qsf.h"
#include "ranks/rank_group.h"

namespace qsf::capi {

// The defaults are those of kv/kv_policy.h. Padding is 0, so that every copy has the same bytes.
inline qsf_h2o_options default_h2o_options() noexcept {
  const SparsePrefillOptions defaults;
  qsf_h2o_options options;
  std::memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.local = static_cast<int>(defaults.local);
  options.heavy = static_cast<int>(defaults.heavy);
  options.chunk = static_cast<int>(defaults.chunk);
  options.sinks = static_cast<int>(defaults.sinks);
  options.ranking = defaults.ranking == H2oRanking::kSum ? QSF_H2O_SUM : QSF_H2O_MEAN;
  return options;
}

// The sampler's callbacks of C, as the engine calls them.
struct SamplingCallbacks {
  QSFLogitsFilterCallback on_logits = nullptr;
  QSFMaskCallback on_mask = nullptr;
  void* user_data = nullptr;
};

}  // namespace qsf::capi

struct QSFConfig {
  std::size_t ram_budget_mb = 0;
  int threads = 0;
  int max_seq_len = 0;
  float quality = 1.0F;
  std::string kv_spill;        // a path; empty: none
  bool kv_spill_lost = false;  // no memory for it
  std::vector<qsf::CallerMemory> memory;
  bool memory_lost = false;  // the same
  int k_type = QSF_KV_F16;   // a qsf_kv_type, unchecked
  int v_type = QSF_KV_F16;
  int attention = QSF_ATTENTION_FULL;  // a qsf_attention, unchecked
  qsf_h2o_options h2o = qsf::capi::default_h2o_options();
  int h2o_ranking = h2o.ranking;       // its ranking, unchecked
  qsf::Status h2o_read;                // how reading it from C ended
  int kv_policy = QSF_KV_POLICY_FULL;  // a qsf_kv_policy, unchecked
  int kv_window = static_cast<int>(qsf::KvPolicyOptions{}.window);
  int kv_sinks = static_cast<int>(qsf::KvPolicyOptions{}.sinks);
  int kv_heavy = static_cast<int>(qsf::KvPolicyOptions{}.heavy);
  bool rope_reindex = false;
  int rows_per_pass = 0;
  int rank_window = 0;
  bool force_ranks = false;
  int read_path = QSF_READ_AUTO;  // a qsf_read_path, unchecked
  bool preload = true;
  bool exact = false;
  bool pin = false;
  int experts = 0;
  float expert_preference = 0.0F;
  int speculation = QSF_SPECULATE_AUTO;  // a qsf_speculation, unchecked
  int head = QSF_HEAD_CERTIFIED;         // a qsf_head, unchecked
  int max_drafts = 0;
  std::vector<qsf::AdapterFile> adapters;
  bool adapters_lost = false;  // no memory for them
  int adapter = 0;             // of sessions
  float adapter_scale = 1.0F;
  std::string draft_model;        // a path; empty: none
  bool draft_model_lost = false;  // no memory for it
  int max_sessions = 1;
  int kv_positions = 0;
  int max_grammars = 0;
  std::uint64_t grammar_mask_bytes = 0;
  bool prefix_cache = false;
  bool reuse_answers = false;
  std::string prefix_folder;        // a path; empty: none
  bool prefix_folder_lost = false;  // no memory for it
  std::uint64_t prefix_folder_bytes = 0;
  QSFLogCallback log = nullptr;
  void* log_user = nullptr;
  QSFErrorCallback error = nullptr;
  void* error_user = nullptr;
  QSFProgressCallback progress = nullptr;
  void* progress_user = nullptr;
  QSFLayerCallback on_layer = nullptr;
  void* layer_user = nullptr;
  QSFRankCallback rank = nullptr;
  void* rank_user = nullptr;
};

struct QSFPlan {
  qsf::EnginePlan plan;
};

namespace qsf::capi {

// A handle that belongs to an engine. Freed in a callback of that engine it lives until the call
// that runs the callback returns.
struct Owned {
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  virtual ~Owned() = default;
  virtual void release() { delete this; }

  QSFEngine* engine = nullptr;
  Owned* next_freed = nullptr;
  bool freed = false;  // in a callback
};

// Frees a handle, or NULL, now or when the call in progress returns.
void free_owned(Owned* handle);

}  // namespace qsf::capi

struct QSFEngine {
  std::atomic<bool> in_call{false};  // a call that computes or changes something is in progress
  qsf::capi::Owned* first_freed = nullptr;  // handles freed by its callbacks, in that order
  bool freed = false;                       // the engine itself
  QSFConfig config;                         // the callbacks are used as long as the engine lives
  QSFPlan plan;
  std::shared_ptr<qsf::Ring> ring;  // of several ranks; outlives the engine
  std::unique_ptr<qsf::Engine> engine;
  std::optional<qsf::ChatPrompts> chat_prompts;  // empty without a tokenizer
  std::string quant_type;
  std::string instruction_set;
  std::vector<float> logits;                      // of qsf_forward
  std::vector<qsf::Generation*> stepping;         // members of the step in progress
  std::vector<qsf::SessionToken> session_tokens;  // of qsf_engine_step_sessions, as its sinks
  std::vector<qsf::LogitsCopy> logits_sinks;
};

struct QSFGrammar {
  std::shared_ptr<qsf::Grammar> grammar;
};

struct QSFSampler {
  qsf::SamplingOptions options;
  qsf::capi::SamplingCallbacks callbacks;
  std::uint32_t n_vocab = 0;
  std::vector<float> logits;
  std::vector<std::uint32_t> order;
  std::vector<qsf::TokenId> history;
  std::optional<qsf::Sampler> sampler;
};

struct QSFSession : qsf::capi::Owned {
  std::unique_ptr<qsf::Session> session;
  std::vector<qsf::TokenId>
      tokens;  // of the call in progress; kept, so that a step allocates nothing
  QSFGeneration* generation = nullptr;  // the one in progress
  bool waits_for_generation = false;    // freed before it

  bool is_generating() const noexcept;
  void release() override;
};

struct QSFChat : qsf::capi::Owned {
  std::unique_ptr<qsf::Chat> chat;
  std::string template_name;
};

namespace qsf::capi {

// Fills `error`, which may be NULL, and returns its code. The message becomes one line of valid
// UTF-8, cut at a character.
qsf_code fill_error(qsf_error* error, qsf_code code, std::string_view message) noexcept;
qsf_code fill_error(qsf_error* error, const Status& status) noexcept;

// Runs the body of an entry, which returns a Status.
template <typename Body>
qsf_code guarded(qsf_error* error, Body&& body) noexcept {
  try {
    return fill_error(error, std::forward<Body>(body)());
  } catch (const std::bad_alloc&) {
    return fill_error(error, QSF_INTERNAL, "no memory for a small allocation");
  } catch (...) {
    return fill_error(error, QSF_INTERNAL, "unexpected exception: this is a bug of the library");
  }
}

// Ends a call: frees what its callbacks freed, perhaps the engine.
void end_call(QSFEngine* engine) noexcept;

// Runs the body of an entry that computes with an engine or changes what it holds.
// Fails  kInvalidArgument inside such a call: in a callback, or on another thread
template <typename Body>
qsf_code engine_call(QSFEngine* engine, qsf_error* error, Body&& body) noexcept {
  if (engine == nullptr) return guarded(error, [] { return null_argument("engine"); });
  if (engine->in_call.exchange(true, std::memory_order_acquire)) {
    return fill_error(error, QSF_INVALID_ARGUMENT,
                      "engine: another call is in progress: a callback may only cancel, read and "
                      "free, and one thread at a time may use an engine");
  }
  const qsf_code code = guarded(error, std::forward<Body>(body));
  end_call(engine);
  return code;
}

// The same for an entry of a session, which must not be generating.
template <typename Body>
qsf_code session_call(QSFSession* session, qsf_error* error, Body&& body) noexcept {
  if (session == nullptr) return guarded(error, [] { return null_argument("session"); });
  return engine_call(session->engine, error, [&]() -> Status {
    if (session->is_generating()) {
      return invalid_argument(
          "session: a generation is in progress in it: step it to its end, cancel it, or free it");
    }
    return body();
  });
}

// engine_call() for an entry without a qsf_error.
template <typename Body>
bool engine_call_with_callback(QSFEngine* engine, Body&& body) noexcept {
  const QSFErrorCallback report = engine->config.error;  // a callback may free the engine
  void* const user = engine->config.error_user;
  qsf_error error;
  if (engine_call(engine, &error, std::forward<Body>(body)) == QSF_OK) return true;
  if (report != nullptr) report(&error, user);
  return false;
}

// guarded() for entries without a qsf_error: a failure goes to the configuration's error callback.
// Returns whether the body succeeded.
template <typename Body>
bool guarded_with_callback(const QSFConfig* config, Body&& body) noexcept {
  qsf_error error;
  if (guarded(&error, std::forward<Body>(body)) == QSF_OK) return true;
  if (config != nullptr && config->error != nullptr) config->error(&error, config->error_user);
  return false;
}

// Reads a configuration into what the engine takes, callbacks aside.
// Fails  kInvalidArgument or kUnsupported, naming the setting
Result<EngineOptions> read_config(const QSFConfig& config);
// Opens an engine: on all ranks of the group that this process joined, else here. Fails  as either
Result<RankedEngine> open_on_ranks(const std::string& path, const EngineOptions& options,
                                   const QSFConfig& config);
void leave_ranks() noexcept;
// Has an engine call the hooks of `config`, which outlives it.
void set_hooks(QSFConfig& config, EngineOptions& options) noexcept;

// Fails  kInvalidArgument: no number of an adapter
Result<AdapterUse> adapter_use_of(int adapter, float scale);

// Turns ids of C into tokens.
// Fails  kInvalidArgument for NULL, no tokens at all or an id outside the vocabulary
Status read_tokens(const QSFEngine& engine, const int* tokens, std::size_t n_tokens,
                   std::vector<TokenId>& out, const char* name = "tokens");

// Returns a NUL-terminated copy for qsf_string_free; NUL characters inside become U+FFFD, which C
// can see.
Result<char*> copy_text(std::string_view text);

// Encodes a text as qsf_tokenize_flags say; one that others come before has no beginning-of-text
// token.
Status encode(const QSFEngine& engine, std::string_view text, unsigned flags,
              std::vector<TokenId>& out, bool at_text_start = true);

// Passes progress and each piece of text to the caller, text with a NUL. The buffer is reused, so
// that a token costs an allocation only when its text is the longest so far.
class TokenForwarder {
 public:
  // The callbacks may be null.
  TokenForwarder(QSFTokenCallback on_token, QSFProgressCallback on_prompt, void* user_data,
                 QSFGeneratedCallback on_generated = nullptr,
                 QSFGeneratedCallback on_prompt_token = nullptr);

  // Makes `options` report here. Requires  the forwarder stays where it is as long as they are used
  void attach(GenerateOptions& options);

 private:
  static void forward(TokenId token, std::string_view text, void* user);
  static int forward_generated(const GeneratedToken& token, void* user);
  static int forward_prompt_token(const GeneratedToken& token, void* user);
  int pass_on(const GeneratedToken& token, QSFGeneratedCallback to);
  void copy_piece(std::string_view text);
  static void report(std::uint64_t done, std::uint64_t total, void* user);

  QSFTokenCallback on_token_;
  QSFProgressCallback on_prompt_;
  void* user_data_;
  QSFGeneratedCallback on_generated_;
  QSFGeneratedCallback on_prompt_token_;
  std::vector<qsf_log_prob> top_;
  std::string piece_;
};

// What a generation was asked for. Stays where it is: its options point into it.
struct GenerationRequest {
  GenerateOptions options;
  std::vector<TokenId> prompt;
  SamplingCallbacks callbacks;
  std::optional<TokenForwarder> forwarder;

  GenerationRequest() = default;
  GenerationRequest(const GenerationRequest&) = delete;
  GenerationRequest& operator=(const GenerationRequest&) = delete;
};

// Reads a request for a session of `n_held` tokens, and checks that its prompt has room.
Status read_request(const QSFEngine& engine, std::size_t n_held, const qsf_generate_options* from,
                    GenerationRequest& request);
qsf_generate_result generate_result(const GenerateResult& result);

// Fails  kInvalidArgument for a negative value
Status read_count(const char* name, int value, std::uint32_t& out);

// Reads settings of C; NULL leaves the defaults. `callbacks` is used as long as `out`.
// Fails  kInvalidArgument or kUnsupported, naming the field
Status read_sampling(const QSFEngine& engine, const qsf_sampling* from, SamplingOptions& out,
                     SamplingCallbacks& callbacks);
Status read_stops(const char* const* stop, std::size_t n_stop, std::vector<std::string>& out);

}  // namespace qsf::capi

#endif  // QSF_CAPI_CAPI_HANDLES_H_
