// SPDX-License-Identifier: MIT
//
// Generation, scoring and sessions of the C API; the contract is include/qsf/qsf.h.
//
// A call on an engine runs in a session of its own that lives as long as the call.

#include <algorithm>
#include <limits>

#include "capi/capi_handles.h"

namespace qsf::capi {

namespace {

constexpr std::size_t kPieceBytes = 1024;  // longer than the text of any usual token

static_assert(static_cast<int>(QSF_STOP_MAX_TOKENS) == static_cast<int>(StopReason::kTokenLimit));
static_assert(static_cast<int>(QSF_STOP_END_OF_TEXT) == static_cast<int>(StopReason::kEndOfText));
static_assert(static_cast<int>(QSF_STOP_STRING) == static_cast<int>(StopReason::kStopString));
static_assert(static_cast<int>(QSF_STOP_CONTEXT_FULL) ==
              static_cast<int>(StopReason::kContextFull));
static_assert(static_cast<int>(QSF_STOP_CANCELLED) == static_cast<int>(StopReason::kCancelled));
static_assert(static_cast<int>(QSF_STOP_CALLBACK) == static_cast<int>(StopReason::kCallback));

qsf_generate_options default_generate_options() noexcept {
  qsf_generate_options options = {};
  options.struct_size = sizeof options;
  options.max_tokens = static_cast<int>(GenerateOptions().max_tokens);
  return options;
}

Status check_prompt(const QSFEngine& engine, std::size_t n_tokens, std::size_t n_held) {
  const std::size_t context = engine.engine->max_context();
  if (n_tokens <= context - n_held) return ok_status();
  if (n_held == 0) {
    return out_of_budget("prompt: %zu tokens, the context holds %zu", n_tokens, context);
  }
  return out_of_budget("prompt: %zu tokens after %zu in the session, the context holds %zu",
                       n_tokens, n_held, context);
}

// Reads a prompt of text or of token ids.
Status read_prompt(const QSFEngine& engine, const qsf_generate_options& options, std::size_t n_held,
                   std::vector<TokenId>& prompt) {
  if (options.prompt == nullptr && options.prompt_bytes > 0) return null_argument("prompt");
  const bool is_text = options.prompt_tokens == nullptr;
  if (is_text && options.n_prompt_tokens > 0) return null_argument("prompt_tokens");
  if (!is_text && options.prompt != nullptr) {
    return invalid_argument("prompt and prompt_tokens: both are set, expected one of them");
  }
  if (is_text) {
    QSF_RETURN_IF_ERROR(encode(engine, {options.prompt, options.prompt_bytes},
                               options.tokenize_flags, prompt, /*at_text_start=*/n_held == 0));
  } else if (options.n_prompt_tokens > 0) {
    QSF_RETURN_IF_ERROR(read_tokens(engine, options.prompt_tokens, options.n_prompt_tokens, prompt,
                                    "prompt_tokens"));
  }
  if (prompt.empty() && n_held == 0) {
    return invalid_argument(
        is_text ? "prompt: no tokens: it is empty and the model has no beginning-of-text token"
                : "prompt_tokens: none, expected at least one");
  }
  return check_prompt(engine, prompt.size(), n_held);
}

// Completes in the session of `held`, or, without one, in one of its own.
Status generate(QSFEngine* engine, Session* held, const qsf_generate_options* from,
                qsf_generate_result* result) {
  if (result != nullptr) QSF_RETURN_IF_ERROR(write_struct(qsf_generate_result{}, "result", result));
  GenerationRequest request;
  QSF_RETURN_IF_ERROR(read_request(*engine, held == nullptr ? 0 : held->length(), from, request));
  std::unique_ptr<Session> own;
  if (held == nullptr) {
    QSF_ASSIGN_OR_RETURN(own, engine->engine->create_session());
    held = own.get();
  }
  const Result<GenerateResult> outcome = held->generate(request.prompt, request.options);
  GenerateResult done;
  if (outcome.has_value()) {
    done = *outcome;
  } else if (outcome.error().code() == StatusCode::kCancelled) {
    done.reason = StopReason::kCancelled;  // before the first token
  } else {
    return outcome.error();
  }
  return result == nullptr ? ok_status() : write_struct(generate_result(done), "result", result);
}

Status append(QSFSession* handle, std::span<const int> tokens, bool as_prompt, float* logits) {
  Session& session = *handle->session;
  const std::uint32_t n_vocab = handle->engine->engine->spec().n_vocab;
  LogitsCopy copy(logits == nullptr ? std::span<float>() : std::span<float>(logits, n_vocab));
  LogitsSink* sink = logits == nullptr ? nullptr : &copy;
  handle->tokens.clear();
  QSF_RETURN_IF_ERROR(read_tokens(*handle->engine, tokens.data(), tokens.size(), handle->tokens));
  return as_prompt ? session.prefill(handle->tokens, sink) : session.step(handle->tokens[0], sink);
}

class LogitsForwarder final : public LogitsSink {
 public:
  LogitsForwarder(QSFLogitsCallback callback, void* user_data) noexcept
      : callback_(callback), user_data_(user_data) {}
  void consume(std::uint32_t row, std::uint32_t first_token,
               std::span<const float> logits) noexcept override {
    callback_(row, static_cast<int>(first_token), logits.data(), logits.size(), user_data_);
  }

 private:
  QSFLogitsCallback callback_;
  void* user_data_;
};

}  // namespace

TokenForwarder::TokenForwarder(QSFTokenCallback on_token, QSFProgressCallback on_prompt,
                               void* user_data, QSFGeneratedCallback on_generated,
                               QSFGeneratedCallback on_prompt_token)
    : on_token_(on_token),
      on_prompt_(on_prompt),
      user_data_(user_data),
      on_generated_(on_generated),
      on_prompt_token_(on_prompt_token) {
  piece_.reserve(kPieceBytes);
}

void TokenForwarder::attach(GenerateOptions& options) {
  options.user = this;
  if (on_prompt_ != nullptr) options.on_prompt = report;
  if (on_token_ != nullptr) options.on_token = forward;
  if (on_generated_ != nullptr) options.on_generated = forward_generated;
  if (on_prompt_token_ != nullptr) options.on_prompt_token = forward_prompt_token;
  top_.reserve(options.n_top_log_probs);
}

void TokenForwarder::forward(TokenId token, std::string_view text, void* user) {
  auto& self = *static_cast<TokenForwarder*>(user);
  self.copy_piece(text);
  self.on_token_(static_cast<int>(token), self.piece_.c_str(), self.user_data_);
}

int TokenForwarder::forward_generated(const GeneratedToken& token, void* user) {
  auto& self = *static_cast<TokenForwarder*>(user);
  return self.pass_on(token, self.on_generated_);
}

int TokenForwarder::forward_prompt_token(const GeneratedToken& token, void* user) {
  auto& self = *static_cast<TokenForwarder*>(user);
  return self.pass_on(token, self.on_prompt_token_);
}

int TokenForwarder::pass_on(const GeneratedToken& token, QSFGeneratedCallback to) {
  copy_piece(token.text);
  top_.clear();
  for (const TokenLogProb& entry : token.top_log_probs) {
    top_.push_back({static_cast<int>(entry.token), entry.log_prob});
  }
  qsf_generated_token out = {};
  out.struct_size = sizeof out;
  out.token = static_cast<int>(token.token);
  out.is_rest = token.is_rest ? 1 : 0;
  out.text = piece_.c_str();
  out.top = top_.empty() ? nullptr : top_.data();
  out.n_top = static_cast<int>(top_.size());
  out.log_prob = token.log_prob;
  out.is_end = token.is_end ? 1 : 0;
  return to(&out, user_data_);
}

void TokenForwarder::copy_piece(std::string_view text) {
  piece_.clear();
  for (const char c : text) {
    if (c != '\0') {
      piece_.push_back(c);
    } else {
      piece_.append("\xEF\xBF\xBD");
    }
  }
}

void TokenForwarder::report(std::uint64_t done, std::uint64_t total, void* user) {
  const auto& self = *static_cast<const TokenForwarder*>(user);
  self.on_prompt_(done, total, self.user_data_);
}

qsf_generate_result generate_result(const GenerateResult& result) {
  qsf_generate_result out = {};
  out.reason = static_cast<qsf_stop_reason>(result.reason);
  out.prompt_tokens = static_cast<int>(result.prompt_tokens);
  out.generated_tokens = static_cast<int>(result.generated_tokens);
  out.prompt_ns = result.prompt_ns;
  out.first_token_ns = result.first_token_ns;
  out.generate_ns = result.generate_ns;
  out.cached_tokens = static_cast<int>(result.cached_tokens);
  out.drafted_tokens = static_cast<int>(result.drafted_tokens);
  out.accepted_tokens = static_cast<int>(result.accepted_tokens);
  return out;
}

Status read_request(const QSFEngine& engine, std::size_t n_held, const qsf_generate_options* from,
                    GenerationRequest& request) {
  qsf_generate_options options = default_generate_options();
  QSF_RETURN_IF_ERROR(read_struct(from, "options", options));
  GenerateOptions& settings = request.options;
  QSF_RETURN_IF_ERROR(read_count("max_tokens", options.max_tokens, settings.max_tokens));
  QSF_RETURN_IF_ERROR(
      read_sampling(engine, options.sampling, settings.sampling, request.callbacks));
  QSF_RETURN_IF_ERROR(read_stops(options.stop, options.n_stop, settings.stop));
  settings.echo_prompt = options.echo_prompt != 0;
  QSF_RETURN_IF_ERROR(
      read_count("n_top_log_probs", options.n_top_log_probs, settings.n_top_log_probs));
  QSF_RETURN_IF_ERROR(
      read_count("reserve_tokens", options.reserve_tokens, settings.reserve_tokens));
  if (settings.n_top_log_probs > kMaxTopLogProbs) {
    return invalid_argument("n_top_log_probs: %u, expected 0 to %u", settings.n_top_log_probs,
                            kMaxTopLogProbs);
  }
  settings.log_probs = options.log_probs != 0;
  if (options.n_end_tokens > 0) {
    QSF_RETURN_IF_ERROR(read_tokens(engine, options.end_tokens, options.n_end_tokens,
                                    settings.end_tokens, "end_tokens"));
  }
  settings.ignore_end_of_text = options.ignore_end_of_text != 0;
  settings.keep_special = options.keep_special != 0;
  settings.reports_end = options.report_end != 0;
  if (options.prefix_key == nullptr && options.prefix_key_bytes > 0) {
    return null_argument("prefix_key");
  }
  if (options.prefix_key != nullptr) {
    settings.prefix_key.emplace(options.prefix_key, options.prefix_key_bytes);
  }
  request.forwarder.emplace(options.on_token, options.on_prompt, options.user_data,
                            options.on_generated, options.on_prompt_token);
  request.forwarder->attach(settings);
  return read_prompt(engine, options, n_held, request.prompt);
}

Status read_count(const char* name, int value, std::uint32_t& out) {
  if (value < 0) return invalid_argument("%s: %d, expected at least 0", name, value);
  out = static_cast<std::uint32_t>(value);
  return ok_status();
}

Status read_stops(const char* const* stop, std::size_t n_stop, std::vector<std::string>& out) {
  if (stop == nullptr && n_stop > 0) return null_argument("stop");
  for (std::size_t i = 0; i < n_stop; ++i) {
    if (stop[i] == nullptr) return null_argument("stop");
    if (stop[i][0] == '\0') {
      return invalid_argument("stop[%zu]: empty, expected a text to stop at", i);
    }
    out.emplace_back(stop[i]);
  }
  return ok_status();
}

}  // namespace qsf::capi

using namespace qsf::capi;  // NOLINT: every entry below is a thin shell around these

void(qsf_generate_options_init)(qsf_generate_options* options) {
  init_struct(default_generate_options(), kKnownSizes<qsf_generate_options>.front(), options);
}
void qsf_generate_options_init_sized(qsf_generate_options* options, size_t struct_size) {
  init_struct(default_generate_options(), struct_size, options);
}

qsf_code qsf_engine_generate(QSFEngine* engine, const qsf_generate_options* options,
                             qsf_generate_result* result, qsf_error* error) {
  return engine_call(engine, error, [&] { return generate(engine, nullptr, options, result); });
}

void qsf_generate(QSFEngine* engine, const char* prompt, int max_tokens, float temperature,
                  float top_p, QSFTokenCallback callback, void* user_data) {
  if (engine == nullptr) return;
  engine_call_with_callback(engine, [&] {
    if (prompt == nullptr) return null_argument("prompt");
    qsf_sampling sampling;
    qsf_sampling_init(&sampling);
    sampling.temperature = temperature;
    sampling.top_p = top_p;
    qsf_generate_options options;
    qsf_generate_options_init(&options);
    options.prompt = prompt;
    options.prompt_bytes = std::strlen(prompt);
    options.max_tokens = max_tokens;
    options.sampling = &sampling;
    options.on_token = callback;
    options.user_data = user_data;
    return generate(engine, nullptr, &options, nullptr);
  });
}

float* qsf_forward(QSFEngine* engine, const int* tokens, int num_tokens) {
  if (engine == nullptr) return nullptr;
  const bool done = engine_call_with_callback(engine, [&]() -> qsf::Status {
    if (num_tokens < 1) {
      return qsf::invalid_argument("num_tokens: %d, expected at least 1", num_tokens);
    }
    std::vector<qsf::TokenId> ids;
    QSF_RETURN_IF_ERROR(read_tokens(*engine, tokens, static_cast<std::size_t>(num_tokens), ids));
    engine->logits.resize(engine->engine->spec().n_vocab);
    QSF_ASSIGN_OR_RETURN(const std::unique_ptr<qsf::Session> session,
                         engine->engine->create_session());
    qsf::LogitsCopy copy(engine->logits);
    return session->prefill(ids, &copy);
  });
  return done ? engine->logits.data() : nullptr;
}

qsf_code qsf_engine_score(QSFEngine* engine, const int* tokens, size_t n_tokens, size_t first,
                          double* log_probs, qsf_error* error) {
  return engine_call(engine, error, [&]() -> qsf::Status {
    if (log_probs == nullptr) return null_argument("log_probs");
    if (tokens == nullptr) return null_argument("tokens");
    if (n_tokens < 2) {
      return qsf::invalid_argument("n_tokens: %zu, expected at least two tokens", n_tokens);
    }
    if (n_tokens > engine->engine->max_context()) {
      return qsf::out_of_budget("n_tokens: %zu, the context holds %u", n_tokens,
                                engine->engine->max_context());
    }
    std::vector<qsf::TokenId> ids;
    QSF_RETURN_IF_ERROR(read_tokens(*engine, tokens, n_tokens, ids));
    if (first < 1 || first >= n_tokens) {
      return qsf::invalid_argument("first: %zu, expected 1 to %zu", first, n_tokens - 1);
    }
    return engine->engine->score(ids, first, {log_probs, n_tokens - first});
  });
}

static_assert(static_cast<int>(qsf::Pooling::kMean) == QSF_POOLING_MEAN);
static_assert(static_cast<int>(qsf::Pooling::kLast) == QSF_POOLING_LAST);
static_assert(static_cast<int>(qsf::Pooling::kFirst) == QSF_POOLING_FIRST);

qsf_code qsf_engine_embed(QSFEngine* engine, const int* tokens, size_t n_tokens,
                          qsf_pooling pooling, int normalize, float* embedding, qsf_error* error) {
  return engine_call(engine, error, [&]() -> qsf::Status {
    if (embedding == nullptr) return null_argument("embedding");
    int kind = 0;  // copied as bytes: C may pass any number
    static_assert(sizeof kind == sizeof pooling);
    std::memcpy(&kind, &pooling, sizeof kind);
    if (kind < QSF_POOLING_MEAN || kind > QSF_POOLING_MODEL) {
      return qsf::invalid_argument(
          "pooling: %d, expected a qsf_pooling: %d (mean), %d (last), %d (first) or %d (model)",
          kind, QSF_POOLING_MEAN, QSF_POOLING_LAST, QSF_POOLING_FIRST, QSF_POOLING_MODEL);
    }
    std::optional<qsf::Pooling> own;
    if (kind != QSF_POOLING_MODEL) own = static_cast<qsf::Pooling>(kind);
    std::vector<qsf::TokenId> ids;
    QSF_RETURN_IF_ERROR(read_tokens(*engine, tokens, n_tokens, ids));
    return engine->engine->embed(ids, own, normalize != 0,
                                 {embedding, engine->engine->spec().hidden});
  });
}

qsf_code qsf_session_create(QSFEngine* engine, QSFSession** session, qsf_error* error) {
  if (session == nullptr) return guarded(error, [] { return null_argument("session"); });
  *session = nullptr;
  return engine_call(engine, error, [&]() -> qsf::Status {
    auto handle = std::make_unique<QSFSession>();
    handle->engine = engine;
    QSF_ASSIGN_OR_RETURN(handle->session, engine->engine->create_session());
    *session = handle.release();
    return qsf::ok_status();
  });
}

void qsf_session_free(QSFSession* session) {
  free_owned(session);
}

qsf_code qsf_session_prefill(QSFSession* session, const int* tokens, size_t n_tokens, float* logits,
                             qsf_error* error) {
  return session_call(session, error, [&] {
    return append(session, {tokens, n_tokens}, /*as_prompt=*/true, logits);
  });
}

qsf_code qsf_session_prefill_logits(QSFSession* session, const int* tokens, size_t n_tokens,
                                    QSFLogitsCallback on_logits, void* user_data,
                                    qsf_error* error) {
  return session_call(session, error, [&]() -> qsf::Status {
    if (on_logits == nullptr) return null_argument("on_logits");
    session->tokens.clear();
    QSF_RETURN_IF_ERROR(read_tokens(*session->engine, tokens, n_tokens, session->tokens));
    LogitsForwarder forwarder(on_logits, user_data);
    return session->session->prefill_rows(session->tokens, forwarder);
  });
}

qsf_code qsf_session_step(QSFSession* session, int token, float* logits, qsf_error* error) {
  return session_call(session, error, [&] {
    return append(session, {&token, 1}, /*as_prompt=*/false, logits);
  });
}

qsf_code qsf_session_generate(QSFSession* session, const qsf_generate_options* options,
                              qsf_generate_result* result, qsf_error* error) {
  return session_call(session, error, [&] {
    return generate(session->engine, session->session.get(), options, result);
  });
}

qsf_code qsf_session_truncate(QSFSession* session, size_t n_tokens, qsf_error* error) {
  return session_call(session, error, [&]() -> qsf::Status {
    if (n_tokens > session->session->length()) {
      return qsf::invalid_argument("n_tokens: %zu, the session has %zu", n_tokens,
                                   session->session->length());
    }
    return session->session->truncate(n_tokens);
  });
}

size_t qsf_session_length(const QSFSession* session) {
  return session == nullptr ? 0 : session->session->length();
}

qsf_code qsf_session_visible_positions(QSFSession* session, int layer, int kv_head, int* positions,
                                       size_t capacity, size_t* n_positions, qsf_error* error) {
  return session_call(session, error, [&]() -> qsf::Status {
    if (positions == nullptr && capacity != 0) return null_argument("positions");
    if (n_positions == nullptr) return null_argument("n_positions");
    const qsf::ModelSpec& spec = session->engine->engine->spec();
    const auto within = [](int value, std::uint32_t end) {
      return value >= 0 && static_cast<std::uint32_t>(value) < end;
    };
    if (!within(layer, spec.n_layers) || !within(kv_head, spec.n_kv_heads)) {
      return qsf::invalid_argument("layer %d, KV head %d: expected less than %u and %u", layer,
                                   kv_head, spec.n_layers, spec.n_kv_heads);
    }
    std::vector<std::uint32_t> visible;
    QSF_RETURN_IF_ERROR(session->session->visible_positions(
        static_cast<std::uint32_t>(layer), static_cast<std::uint32_t>(kv_head), visible));
    std::copy_n(visible.begin(), std::min(capacity, visible.size()), positions);
    *n_positions = visible.size();
    return qsf::ok_status();
  });
}

qsf_code qsf_session_save(QSFSession* session, const char* path, qsf_error* error) {
  return session_call(session, error, [&] {
    if (path == nullptr) return null_argument("path");
    return session->session->save(path);
  });
}

qsf_code qsf_session_load(QSFSession* session, const char* path, qsf_error* error) {
  return session_call(session, error, [&] {
    if (path == nullptr) return null_argument("path");
    return session->session->load(path);
  });
}
