// SPDX-License-Identifier: MIT
//
// Sessions and their files: what a file has to fit, and the session's part of saving and loading.

#include "engine/session_file.h"

#include <utility>

#include "engine/engine_impl.h"
#include "format/model_fingerprint.h"

namespace qsf {

namespace {

FileOps& file_ops_of(const Engine::Impl& engine) {
  return engine.options.file_ops != nullptr ? *engine.options.file_ops : system_file_ops();
}

SessionIdentity identity_of(const Engine::Impl& engine) {
  const ModelSpec& spec = engine.reader->spec();
  SessionIdentity identity;
  identity.fingerprint = model_fingerprint(*engine.reader);
  identity.architecture = spec.architecture;
  identity.n_vocab = spec.n_vocab;
  identity.long_rotation =
      spec.positions == PositionEncoding::kRope && spec.rope.scaling == RopeScaling::kLongrope &&
      longest_distance(engine.options, engine.max_context) > spec.rope.original_context;
  identity.policy = engine.options.kv_policy;
  return identity;
}

SessionPlace place_of(Engine::Impl& engine, SequenceId sequence) {
  return {.kv = *engine.kv,
          .store = *engine.kv_store,
          .sequence = sequence,
          .h2o = engine.h2o.empty() ? nullptr : &engine.h2o[sequence],
          .heavy = engine.heavy.empty() ? nullptr : &engine.heavy[sequence],
          .cancel = &engine.cancel,
          .drop_cached = engine.options.ram_budget_bytes != 0};
}

}  // namespace

Status Session::save(const std::string& path, ByteSpan chat) {
  if (tokens_.empty()) {
    return invalid_argument("%s: the session has no tokens yet; there is nothing to save",
                            path.c_str());
  }
  QSF_RETURN_IF_ERROR(compute_lost_rows());
  Status status = write_session_file(path, file_ops_of(engine_), identity_of(engine_),
                                     place_of(engine_, sequence_), tokens_, pending_token_, chat);
  if (status.code() == StatusCode::kCancelled) engine_.take_cancel();
  return status;
}

Status Session::load(const std::string& path, std::vector<std::byte>* chat) {
  if (!tokens_.empty() || pending_token_ != kNoToken) {
    return invalid_argument("%s: the session holds %zu tokens; load into a new one", path.c_str(),
                            tokens_.size());
  }
  QSF_ASSIGN_OR_RETURN(const File file, File::open(path, file_ops_of(engine_)));
  SessionText text;
  Status status = read_session_file(file, identity_of(engine_), place_of(engine_, sequence_),
                                    {.verify_crc = true, .wants_chat = chat != nullptr}, text);
  if (status.code() == StatusCode::kCancelled) engine_.take_cancel();
  QSF_RETURN_IF_ERROR(std::move(status));
  tokens_.assign(text.rows.begin(), text.rows.end());
  pending_token_ = text.pending_token;
  if (chat != nullptr) *chat = std::move(text.chat);
  return ok_status();
}

}  // namespace qsf
