// SPDX-License-Identifier: MIT
//
// Sessions: appending tokens, generating text token by token, and saving and loading.

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "engine/engine_impl.h"
#include "engine/generation.h"
#include "engine/numbered_rows.h"
#include "engine/session_file.h"
#include "format/model_fingerprint.h"

namespace qsf {

namespace {

SessionIdentity identity_of(const Engine::Impl& engine, SequenceId sequence) {
  const ModelSpec& spec = engine.reader->spec();
  SessionIdentity identity;
  identity.fingerprint = model_fingerprint(*engine.reader);
  identity.architecture = spec.architecture;
  identity.n_vocab = spec.n_vocab;
  identity.long_rotation =
      spec.positions == PositionEncoding::kRope && spec.rope.scaling == RopeScaling::kLongrope &&
      longest_distance(engine.options, engine.max_context) > spec.rope.original_context;
  identity.policy = engine.options.kv_policy;
  identity.attention = engine.options.attention;
  identity.prompt_mask = engine.options.prompt_mask;
  if (const AdapterUse use = engine.sequence_adapters[sequence]; use.number != 0) {
    identity.adapter_fingerprint = engine.adapters[use.number - 1U].fingerprint;
    identity.adapter_scale = use.scale;
  }
  return identity;
}

SessionPlace place_of(Engine::Impl& engine, SequenceId sequence) {
  return {
      .kv = *engine.kv,
      .store = *engine.kv_store,
      .sequence = sequence,
      .sparse_prefill = engine.sparse_prefill.empty() ? nullptr : &engine.sparse_prefill[sequence],
      .h2o_eviction = engine.h2o_eviction.empty() ? nullptr : &engine.h2o_eviction[sequence],
      .states = engine.states.has_value() ? &*engine.states : nullptr,
      .cancel = &engine.cancel,
      .drop_cached = engine.options.ram_budget_bytes != 0};
}

}  // namespace

Session::Session(Engine::Impl& engine, SequenceId sequence) : engine_(engine), sequence_(sequence) {
  tokens_.reserve(engine.max_context);
  if (engine.speculation.has_value()) engine.speculation->begin(sequence);
}

Session::~Session() {
  QSF_CHECK(generation_ == nullptr);
  engine_.truncate(sequence_, 0);
  engine_.kv->free_sequence(sequence_);
  engine_.record(SequenceChange::Kind::kFree, sequence_);
}

Status Session::check_idle() const {
  if (generation_ == nullptr || generation_->finished()) return ok_status();
  return invalid_argument(
      "the session is generating; wait for the end of its generation, or cancel and free it");
}

Status Session::check_at_rest() const {
  if (generation_ == nullptr) return ok_status();
  if (generation_->is_parked()) {
    return invalid_argument("the session is parked; resume its generation, or end it");
  }
  if (!generation_->in_flight()) return ok_status();
  return invalid_argument("the session is in a pass in flight; end its step first");
}

std::size_t Session::n_computed() const noexcept {
  return engine_.kv->n_slots(sequence_);
}

// Tokens that a cancelled call or a truncation invalidated.
Status Session::compute_invalidated(PromptProgress* progress) {
  if (n_computed() == tokens_.size()) return ok_status();
  const auto tokens = std::span<const TokenId>(tokens_).subspan(n_computed());
  if (progress != nullptr) progress->total_rows += tokens.size();
  return engine_.append(sequence_, tokens, RowRole::kPrompt, tokens.size(), nullptr, progress);
}

Status Session::check_room(std::size_t n_tokens) const {
  const std::size_t n_used = tokens_.size() + (pending_token_ == kNoToken ? 0 : 1);
  if (n_used <= engine_.max_context && n_tokens <= engine_.max_context - n_used) return ok_status();
  return out_of_budget("%zu tokens do not fit: the context has %u positions, %zu of them in use",
                       n_tokens, engine_.max_context, n_used);
}

Status Session::compute_pending(LogitsSink* sink) {
  if (pending_token_ == kNoToken) return ok_status();
  QSF_RETURN_IF_ERROR(compute_invalidated());
  const TokenId token = pending_token_;
  QSF_RETURN_IF_ERROR(
      engine_.append(sequence_, {&token, 1}, RowRole::kGenerated, sink == nullptr ? 1 : 0, sink));
  tokens_.push_back(token);
  pending_token_ = kNoToken;
  return ok_status();
}

Status Session::append(std::span<const TokenId> tokens, RowRole role, LogitsSink* sink,
                       PromptProgress* progress) {
  QSF_RETURN_IF_ERROR(check_idle());
  if (pending_token_ != kNoToken) {
    QSF_RETURN_IF_ERROR(check_room(tokens.size()));
    QSF_RETURN_IF_ERROR(compute_pending(nullptr));
  }
  QSF_RETURN_IF_ERROR(compute_invalidated(progress));
  Status status = engine_.append(sequence_, tokens, role, tokens.size() - 1, sink, progress);
  // All tokens, none, or the completed passes that a failed call could not undo.
  if (n_computed() > tokens_.size()) {
    const std::span<const TokenId> appended = tokens.first(n_computed() - tokens_.size());
    tokens_.insert(tokens_.end(), appended.begin(), appended.end());
  }
  return status;
}

Status Session::prefill(std::span<const TokenId> tokens, LogitsSink* sink) {
  return append(tokens, RowRole::kPrompt, sink);
}

Status Session::prefill_rows(std::span<const TokenId> tokens, LogitsSink& sink) {
  QSF_RETURN_IF_ERROR(check_idle());
  QSF_RETURN_IF_ERROR(check_room(tokens.size()));
  QSF_RETURN_IF_ERROR(engine_.check_pass_of(tokens.size()));
  QSF_RETURN_IF_ERROR(compute_pending(nullptr));
  const std::size_t before = tokens_.size();
  if (tokens.size() > engine_.rows_per_pass) engine_.keep_length(sequence_);
  Status status = tokens.empty() ? invalid_argument("no tokens to compute") : compute_invalidated();
  for (std::size_t done = 0; done < tokens.size() && status.ok();) {
    const std::size_t n = std::min<std::size_t>(engine_.rows_per_pass, tokens.size() - done);
    const std::span<const TokenId> part = tokens.subspan(done, n);
    NumberedRows numbered(sink, done);
    status = engine_.append(sequence_, part, RowRole::kPrompt, 0, &numbered);
    if (status.ok()) tokens_.insert(tokens_.end(), part.begin(), part.end());
    done += n;
  }
  if (!status.ok() && longest_kept(before) == before) QSF_RETURN_IF_ERROR(truncate(before));
  return status;
}

Status Session::step(TokenId token, LogitsSink* sink) {
  return append({&token, 1}, RowRole::kGenerated, sink);
}

Status Engine::step_sessions(std::span<const SessionToken> tokens) {
  if (tokens.size() > impl_->rows_per_pass) {
    return invalid_argument("%zu sessions in a step, expected at most the %u rows of a pass",
                            tokens.size(), impl_->rows_per_pass);
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto same = [&](const SessionToken& other) { return other.session == tokens[i].session; };
    if (tokens[i].session == nullptr || &tokens[i].session->engine_ != impl_.get() ||
        std::any_of(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(i), same)) {
      return invalid_argument("session %zu of a step is null, given twice or of another engine", i);
    }
    if (tokens[i].token >= spec().n_vocab) {
      return invalid_argument("token %u: the vocabulary ends at %u", tokens[i].token,
                              spec().n_vocab - 1);
    }
    QSF_RETURN_IF_ERROR(tokens[i].session->check_idle());
    QSF_RETURN_IF_ERROR(tokens[i].session->check_room(1));
  }
  for (const SessionToken& each : tokens) {
    QSF_RETURN_IF_ERROR(each.session->compute_pending(nullptr));
    QSF_RETURN_IF_ERROR(each.session->compute_invalidated());
  }
  QSF_ASSIGN_OR_RETURN(PassInFlight* const pass, impl_->take_pass());
  Status status;
  for (const SessionToken& each : tokens) {
    if (!status.ok()) break;
    status = impl_->add_part(*pass, {.sequence = each.session->sequence_,
                                     .tokens = {&each.token, 1},
                                     .role = RowRole::kGenerated,
                                     .sink = each.sink});
  }
  status = impl_->finish_parts(*pass, std::move(status));
  if (!status.ok()) return status;
  for (const SessionToken& each : tokens) each.session->tokens_.push_back(each.token);
  return status;
}

Status Session::truncate(std::size_t n_tokens) {
  QSF_RETURN_IF_ERROR(check_idle());
  return truncate_to(n_tokens);
}

Status Session::truncate_to(std::size_t n_tokens) {
  if (n_tokens > tokens_.size()) {
    return invalid_argument("cannot keep %zu tokens of %zu", n_tokens, tokens_.size());
  }
  const std::size_t longest = longest_kept(n_tokens);
  if (longest != n_tokens && engine_.states.has_value()) {
    return invalid_argument(
        "cannot keep %zu tokens of %zu: layers of this model have a state, which returns to kept "
        "points alone; keep %zu and recompute the others, or fork the session where it should "
        "return to",
        n_tokens, tokens_.size(), longest);
  }
  if (longest != n_tokens) {
    return invalid_argument(
        "cannot keep %zu tokens of %zu: the next one attends to the last %u, and some of those "
        "were evicted; keep %zu and recompute the others, or use a larger window",
        n_tokens, tokens_.size(), engine_.options.kv_policy.window, longest);
  }
  const std::uint32_t n_slots = engine_.kv->n_slots(sequence_);
  engine_.truncate(sequence_, std::min(n_slots, static_cast<std::uint32_t>(n_tokens)));
  tokens_.resize(n_tokens);
  pending_token_ = kNoToken;
  return ok_status();
}

std::size_t Session::longest_kept(std::size_t n_tokens) const noexcept {
  QSF_DCHECK(n_tokens <= tokens_.size());
  const std::size_t n = std::min<std::size_t>(n_tokens, engine_.kv->n_slots(sequence_));
  const std::uint32_t longest = engine_.longest_kept(sequence_, static_cast<std::uint32_t>(n));
  return longest == n ? n_tokens : longest;  // invalidated tokens can be computed again
}

// No other member of the step could give pages back.
void Session::end_without_pages(Generation& generation) {
  char line[200];
  const KvPageCounts pages = engine_.kv_pages();
  std::snprintf(line, sizeof line,
                "generation ends at %zu positions: the next one needs a page of the KV cache, and "
                "%u of %u are free and not reserved; truncate or free a session, or plan for more",
                tokens_.size(), pages.n_unreserved, pages.n_pages);
  engine_.options.log.warning(line);
  generation.finish(StopReason::kContextFull);
}

Result<GenerateResult> Session::generate(std::span<const TokenId> prompt,
                                         const GenerateOptions& options) {
  QSF_ASSIGN_OR_RETURN(const GenerationPtr generation, Generation::create(*this, prompt, options));
  Generation* const member = generation.get();
  while (!member->finished()) {
    const Result<StepCounts> counts = engine_.step({&member, 1});
    if (counts.has_value()) {
      if (counts->n_waiting != 0) end_without_pages(*member);
    } else if (counts.error().code() == StatusCode::kCancelled) {
      member->finish(StopReason::kCancelled);
    } else {
      member->fail(counts.error());
    }
  }
  QSF_RETURN_IF_ERROR(member->status());
  GenerateResult result = member->result();
  // A cancellation while the last token was delivered: no pass was left to stop.
  if (engine_.take_cancel()) result.reason = StopReason::kCancelled;
  return result;
}

Result<std::unique_ptr<Session>> Session::fork() {
  if (!engine_.sparse_prefill.empty() || !engine_.h2o_eviction.empty()) {
    return unsupported(
        "a session cannot be forked under attention h2o or kv policy h2o: their sums belong to one "
        "session; save it and load it into another");
  }
  QSF_RETURN_IF_ERROR(check_at_rest());
  QSF_ASSIGN_OR_RETURN(const SequenceId sequence, engine_.fork(sequence_));
  engine_.record(SequenceChange::Kind::kFork, sequence, sequence_);
  std::unique_ptr<Session> child(new Session(engine_, sequence));
  if (engine_.speculation.has_value()) engine_.speculation->fork(sequence_, sequence);
  child->tokens_.assign(tokens_.begin(), tokens_.end());
  child->pending_token_ = pending_token_;
  return child;
}

Status Session::visible_positions(std::uint32_t layer, std::uint32_t kv_head,
                                  std::vector<std::uint32_t>& positions) {
  QSF_DCHECK(layer < engine_.reader->spec().n_layers);
  QSF_DCHECK(kv_head < engine_.reader->spec().n_kv_heads);
  if (!engine_.reader->spec().attends(layer)) {
    return unsupported("layer %u has no attention: no positions are visible", layer);
  }
  QSF_RETURN_IF_ERROR(check_at_rest());
  QSF_RETURN_IF_ERROR(compute_invalidated());
  positions.clear();
  engine_.add_visible(sequence_, layer, kv_head, positions);
  return ok_status();
}

Status Session::save(const std::string& path, ByteSpan chat) {
  QSF_RETURN_IF_ERROR(engine_.check_whole("saving a session"));
  if (tokens_.empty()) {
    return invalid_argument("%s: the session has no tokens yet; there is nothing to save",
                            path.c_str());
  }
  if (Status status = check_at_rest(); !status.ok()) {
    return std::move(status).with_context(path);
  }
  QSF_RETURN_IF_ERROR(compute_invalidated());
  Status status = write_session_file(path, engine_.file_ops(), identity_of(engine_, sequence_),
                                     place_of(engine_, sequence_), tokens_, pending_token_, chat);
  if (status.code() == StatusCode::kCancelled) engine_.take_cancel();
  return status;
}

Status Session::park_rows(const std::string& path) {
  QSF_RETURN_IF_ERROR(engine_.check_whole("parking a generation"));
  const std::uint32_t n_rows = engine_.kv->n_slots(sequence_);
  if (n_rows == 0) return ok_status();
  const std::span<const TokenId> rows = std::span<const TokenId>(tokens_).first(n_rows);
  Status status = write_session_file(path, engine_.file_ops(), identity_of(engine_, sequence_),
                                     place_of(engine_, sequence_), rows, kNoToken, {});
  if (status.code() == StatusCode::kCancelled) engine_.take_cancel();
  if (status.ok()) engine_.truncate(sequence_, 0);
  return status;
}

Status Session::resume_rows(const std::string& path, std::size_t n_rows) {
  QSF_ASSIGN_OR_RETURN(const File file, File::open(path, engine_.file_ops()));
  SessionText text;
  Status status = read_session_file(file, identity_of(engine_, sequence_),
                                    place_of(engine_, sequence_), {.verify_crc = true}, text);
  if (status.code() == StatusCode::kCancelled) engine_.take_cancel();
  QSF_RETURN_IF_ERROR(std::move(status));
  const std::span<const TokenId> rows = std::span<const TokenId>(tokens_).first(n_rows);
  if (std::equal(rows.begin(), rows.end(), text.rows.begin(), text.rows.end())) return ok_status();
  engine_.truncate(sequence_, 0);
  return corrupt("%s: holds another text than the one that was parked there", path.c_str());
}

Status Session::load(const std::string& path, std::vector<std::byte>* chat) {
  QSF_RETURN_IF_ERROR(engine_.check_whole("loading a session"));
  QSF_RETURN_IF_ERROR(check_idle());
  if (!tokens_.empty() || pending_token_ != kNoToken) {
    return invalid_argument("%s: the session holds %zu tokens; load into a new one", path.c_str(),
                            tokens_.size());
  }
  QSF_ASSIGN_OR_RETURN(const File file, File::open(path, engine_.file_ops()));
  SessionText text;
  Status status =
      read_session_file(file, identity_of(engine_, sequence_), place_of(engine_, sequence_),
                        {.verify_crc = true, .wants_chat = chat != nullptr}, text);
  if (status.code() == StatusCode::kCancelled) engine_.take_cancel();
  QSF_RETURN_IF_ERROR(std::move(status));
  tokens_.assign(text.rows.begin(), text.rows.end());
  pending_token_ = text.pending_token;
  if (chat != nullptr) *chat = std::move(text.chat);
  return ok_status();
}

}  // namespace qsf
