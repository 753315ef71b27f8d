// SPDX-License-Identifier: MIT
//
// Generations that step together, of the C API; the contract is include/qsf/qsf.h.

#include "capi/capi_generation.h"

void QSFGeneration::end() {
  result = generation->result();
  status = generation->status();
  generation.reset();
  session->generation = nullptr;
  if (session->waits_for_generation) delete session;
  session = nullptr;
}

QSFGeneration::~QSFGeneration() {
  if (generation == nullptr) return;
  // Takes back a part of the prompt.
  if (!generation->finished()) generation->fail(qsf::cancelled("generation: freed"));
  end();
}

bool QSFSession::is_generating() const noexcept {
  return generation != nullptr;
}

void QSFSession::release() {
  if (is_generating()) {
    waits_for_generation = true;
  } else {
    delete this;
  }
}

namespace qsf::capi {

namespace {

Status create_generation(QSFSession* session, const qsf_generate_options* options,
                         QSFGeneration** out) {
  auto handle = std::make_unique<QSFGeneration>();
  handle->engine = session->engine;
  GenerationRequest& request = handle->request;
  Session& held = *session->session;
  QSF_RETURN_IF_ERROR(read_request(*session->engine, held.length(), options, request));
  QSF_ASSIGN_OR_RETURN(handle->generation,
                       Generation::create(held, request.prompt, request.options));
  handle->session = session;
  session->generation = handle.get();
  *out = handle.release();
  return ok_status();
}

Status read_step_options(const qsf_step_options* from, StepOptions& out) {
  if (from == nullptr) return ok_status();
  qsf_step_options options = {};
  QSF_RETURN_IF_ERROR(read_struct(from, "options", options));
  return read_count("max_prompt_rows", options.max_prompt_rows, out.max_prompt_rows);
}

Status step(QSFEngine* engine, QSFGeneration* const* members, std::size_t n_members,
            const qsf_step_options* options, qsf_step_counts* counts) {
  StepOptions settings;
  QSF_RETURN_IF_ERROR(read_step_options(options, settings));
  if (members == nullptr && n_members > 0) return null_argument("members");
  if (counts != nullptr) QSF_RETURN_IF_ERROR(write_struct(qsf_step_counts{}, "counts", counts));
  std::vector<Generation*>& generations = engine->stepping;
  generations.clear();
  for (std::size_t i = 0; i < n_members; ++i) {
    QSFGeneration* const member = members[i];
    if (member == nullptr) return invalid_argument("members[%zu]: NULL", i);
    if (member->engine != engine) return invalid_argument("members[%zu]: of another engine", i);
    if (member->generation != nullptr) generations.push_back(member->generation.get());
  }
  qsf_step_counts out = {};
  out.n_finished = static_cast<int>(n_members - generations.size());
  const Result<StepCounts> done = engine->engine->step(generations, settings);
  // Also after the error of a pass: a member may have been refused before it.
  for (std::size_t i = 0; i < n_members; ++i) {
    const auto& generation = members[i]->generation;
    if (generation != nullptr && generation->finished()) members[i]->end();
  }
  if (!done.has_value()) return done.error();
  out.prompt_rows = static_cast<int>(done->prompt_rows);
  out.generated_rows = static_cast<int>(done->generated_rows);
  out.n_finished += static_cast<int>(done->n_finished);
  out.n_waiting = static_cast<int>(done->n_waiting);
  out.n_reading = static_cast<int>(done->n_reading);
  out.pass_ns = done->pass_ns;
  out.drafted_rows = static_cast<int>(done->drafted_rows);
  out.accepted_rows = static_cast<int>(done->accepted_rows);
  out.read_wait_ns = done->read_wait_ns;
  out.weight_bytes_read = done->weight_bytes_read;
  return counts == nullptr ? ok_status() : write_struct(out, "counts", counts);
}

Status step_sessions(QSFEngine* engine, QSFSession* const* sessions, const int* tokens,
                     std::size_t n, float* logits) {
  if (n > 0 && sessions == nullptr) return null_argument("sessions");
  if (n > 0 && tokens == nullptr) return null_argument("tokens");
  const std::uint32_t n_vocab = engine->engine->spec().n_vocab;
  std::vector<SessionToken>& steps = engine->session_tokens;
  std::vector<LogitsCopy>& sinks = engine->logits_sinks;
  steps.clear();
  sinks.clear();
  sinks.reserve(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (sessions[i] == nullptr) return invalid_argument("sessions[%zu]: NULL", i);
    if (tokens[i] < 0 || static_cast<std::uint32_t>(tokens[i]) >= n_vocab) {
      return invalid_argument("tokens[%zu]: %d, expected 0 to %u", i, tokens[i], n_vocab - 1);
    }
    if (logits != nullptr) sinks.emplace_back(std::span<float>(logits + i * n_vocab, n_vocab));
    steps.push_back({sessions[i]->session.get(), static_cast<TokenId>(tokens[i]),
                     logits == nullptr ? nullptr : &sinks.back()});
  }
  return engine->engine->step_sessions(steps);
}

}  // namespace

}  // namespace qsf::capi

using namespace qsf::capi;  // NOLINT: every entry below is a thin shell around these

qsf_code qsf_generation_create(QSFSession* session, const qsf_generate_options* options,
                               QSFGeneration** generation, qsf_error* error) {
  if (generation == nullptr) return guarded(error, [] { return null_argument("generation"); });
  *generation = nullptr;
  return session_call(session, error,
                      [&] { return create_generation(session, options, generation); });
}

void qsf_generation_free(QSFGeneration* generation) {
  free_owned(generation);
}

qsf_code qsf_engine_step(QSFEngine* engine, QSFGeneration* const* members, size_t n_members,
                         qsf_step_counts* counts, qsf_error* error) {
  return engine_call(engine, error,
                     [&] { return step(engine, members, n_members, nullptr, counts); });
}

void(qsf_step_options_init)(qsf_step_options* options) {
  init_struct(qsf_step_options{}, kKnownSizes<qsf_step_options>.front(), options);
}
void qsf_step_options_init_sized(qsf_step_options* options, size_t struct_size) {
  init_struct(qsf_step_options{}, struct_size, options);
}

qsf_code qsf_engine_step_with(QSFEngine* engine, QSFGeneration* const* members, size_t n_members,
                              const qsf_step_options* options, qsf_step_counts* counts,
                              qsf_error* error) {
  return engine_call(engine, error,
                     [&] { return step(engine, members, n_members, options, counts); });
}

qsf_code qsf_engine_step_sessions(QSFEngine* engine, QSFSession* const* sessions, const int* tokens,
                                  size_t n_sessions, float* logits, qsf_error* error) {
  return engine_call(engine, error,
                     [&] { return step_sessions(engine, sessions, tokens, n_sessions, logits); });
}

int qsf_generation_is_finished(const QSFGeneration* generation) {
  return generation != nullptr && generation->generation == nullptr ? 1 : 0;
}

int qsf_generation_is_waiting(const QSFGeneration* generation) {
  return generation != nullptr && generation->generation != nullptr &&
                 generation->generation->waits_for_pages
             ? 1
             : 0;
}

qsf_code qsf_generation_get_result(const QSFGeneration* generation, qsf_generate_result* result,
                                   qsf_error* error) {
  return guarded(error, [&]() -> qsf::Status {
    if (generation == nullptr) return null_argument("generation");
    if (generation->generation != nullptr) {
      return qsf::invalid_argument("generation: has not ended; step it on");
    }
    QSF_RETURN_IF_ERROR(write_struct(generate_result(generation->result), "result", result));
    return generation->status;
  });
}

qsf_code qsf_session_fork(QSFSession* session, QSFSession** fork, qsf_error* error) {
  if (fork == nullptr) return guarded(error, [] { return null_argument("fork"); });
  *fork = nullptr;
  return session_call(session, error, [&]() -> qsf::Status {
    auto handle = std::make_unique<QSFSession>();
    handle->engine = session->engine;
    QSF_ASSIGN_OR_RETURN(handle->session, session->session->fork());
    *fork = handle.release();
    return qsf::ok_status();
  });
}

void qsf_session_cancel(QSFSession* session) {
  if (session != nullptr) session->session->cancel();
}

qsf_code qsf_session_get_tokens(const QSFSession* session, int* tokens, size_t capacity,
                                size_t* n_tokens, qsf_error* error) {
  return guarded(error, [&]() -> qsf::Status {
    if (session == nullptr) return null_argument("session");
    if (tokens == nullptr && capacity != 0) return null_argument("tokens");
    if (n_tokens == nullptr) return null_argument("n_tokens");
    const std::span<const qsf::TokenId> held = session->session->tokens();
    for (std::size_t i = 0; i < std::min(capacity, held.size()); ++i) {
      tokens[i] = static_cast<int>(held[i]);
    }
    *n_tokens = held.size();
    return qsf::ok_status();
  });
}
