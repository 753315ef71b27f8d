// SPDX-License-Identifier: MIT
//
// The C API for programs that serve many generations; the contract is include/qsf/serving.h.

#include <algorithm>
#include <string>

#include "capi/capi_generation.h"

namespace qsf::capi {

namespace {

// Runs the body of an entry of a generation that has not ended, and takes its end.
template <typename Body>
qsf_code generation_call(QSFGeneration* handle, qsf_error* error, Body&& body) noexcept {
  if (handle == nullptr) return guarded(error, [] { return null_argument("generation"); });
  return engine_call(handle->engine, error, [&]() -> Status {
    if (handle->generation == nullptr) return invalid_argument("generation: has ended");
    Status status = body(*handle->generation);
    if (handle->generation->finished()) handle->end();
    return status;
  });
}

// Whether a generation got its pages: a failure that has not ended it only says that too few are
// free now.
Status take_pages(const Generation& generation, Status status, int* done) {
  *done = status.ok() ? 1 : 0;
  return status.code() == StatusCode::kOutOfBudget && !generation.finished() ? ok_status() : status;
}

void add_memory(QSFConfig& config, const char* name, const char* reason, std::uint64_t bytes) {
  const qsf_code code = guarded(nullptr, [&] {
    config.memory.push_back(
        {name == nullptr ? "" : name, reason == nullptr ? "of the caller" : reason, bytes});
    return ok_status();
  });
  if (code != QSF_OK) config.memory_lost = true;
}

Status read_kv_pages(const QSFEngine* engine, qsf_kv_page_counts* counts) {
  if (engine == nullptr) return null_argument("engine");
  const KvPageCounts pages = engine->engine->kv_pages();
  qsf_kv_page_counts out = {};
  out.pages = static_cast<int>(pages.n_pages);
  out.free_pages = static_cast<int>(pages.n_free);
  out.unreserved_pages = static_cast<int>(pages.n_unreserved);
  out.page_positions = static_cast<int>(kKvPageSlots);
  return write_struct(out, "counts", counts);
}

Status get_token_bytes(const QSFEngine* engine, int token, char* bytes, std::size_t capacity,
                       std::size_t* n_bytes) {
  if (n_bytes == nullptr) return null_argument("n_bytes");
  *n_bytes = 0;
  if (engine == nullptr) return null_argument("engine");
  if (bytes == nullptr && capacity > 0) return null_argument("bytes");
  const std::uint32_t n_vocab = engine->engine->spec().n_vocab;
  if (token < 0 || static_cast<std::uint32_t>(token) >= n_vocab) {
    return invalid_argument("token: %d, expected 0 to %u", token, n_vocab - 1);
  }
  const Tokenizer* tokenizer = engine->engine->tokenizer();
  if (tokenizer == nullptr) return unsupported("the model file has no tokenizer");
  std::string text;
  tokenizer->append_bytes(static_cast<TokenId>(token), /*skip_special=*/false, text);
  std::copy_n(text.data(), std::min(capacity, text.size()), bytes);
  *n_bytes = text.size();
  return ok_status();
}

}  // namespace

}  // namespace qsf::capi

using namespace qsf::capi;  // NOLINT: every entry below is a thin shell around these

void qsf_config_add_memory(QSFConfig* config, const char* name, const char* reason,
                           uint64_t bytes) {
  if (config != nullptr) add_memory(*config, name, reason, bytes);
}

qsf_code qsf_generation_admit(QSFGeneration* generation, int* admitted, qsf_error* error) {
  if (admitted == nullptr) return guarded(error, [] { return null_argument("admitted"); });
  *admitted = 0;
  return generation_call(generation, error, [&](qsf::Generation& member) {
    return take_pages(member, member.admit(), admitted);
  });
}

qsf_code qsf_generation_take_prompt(QSFGeneration* generation, const QSFSession* from,
                                    int* n_tokens, qsf_error* error) {
  if (n_tokens == nullptr) return guarded(error, [] { return null_argument("n_tokens"); });
  *n_tokens = 0;
  return generation_call(generation, error, [&](qsf::Generation& member) -> qsf::Status {
    if (from == nullptr) return null_argument("from");
    QSF_ASSIGN_OR_RETURN(const std::uint32_t n, member.take_prompt(*from->session));
    *n_tokens = static_cast<int>(n);
    return qsf::ok_status();
  });
}

qsf_code qsf_generation_park(QSFGeneration* generation, const char* path, qsf_error* error) {
  return generation_call(generation, error, [&](qsf::Generation& member) {
    return path == nullptr ? null_argument("path") : member.park(path);
  });
}

qsf_code qsf_generation_resume(QSFGeneration* generation, int* resumed, qsf_error* error) {
  if (resumed == nullptr) return guarded(error, [] { return null_argument("resumed"); });
  *resumed = 0;
  return generation_call(generation, error, [&](qsf::Generation& member) {
    return take_pages(member, member.resume(), resumed);
  });
}

int qsf_generation_is_parked(const QSFGeneration* generation) {
  return generation != nullptr && generation->generation != nullptr &&
                 generation->generation->is_parked()
             ? 1
             : 0;
}

qsf_code qsf_engine_kv_pages(const QSFEngine* engine, qsf_kv_page_counts* counts,
                             qsf_error* error) {
  return guarded(error, [&] { return read_kv_pages(engine, counts); });
}

qsf_code qsf_engine_get_token_bytes(const QSFEngine* engine, int token, char* bytes,
                                    size_t capacity, size_t* n_bytes, qsf_error* error) {
  return guarded(error, [&] { return get_token_bytes(engine, token, bytes, capacity, n_bytes); });
}
