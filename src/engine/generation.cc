// SPDX-License-Identifier: MIT

#include "engine/generation.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "grammar/grammar_engine.h"
#include "platform/clock.h"

namespace qsf {

void GenerationDeleter::operator()(Generation* generation) const noexcept {
  if (!generation->in_flight_) {
    delete generation;
    return;
  }
  generation->released_ = true;
  generation->text_.mute();
  generation->progress_.report = nullptr;
  generation->options_.on_prompt_token = nullptr;
  generation->cancel();
}

Result<GenerationPtr> Generation::create(Session& session, std::span<const TokenId> prompt,
                                         const GenerateOptions& options) {
  const Engine::Impl& engine = session.engine_;
  QSF_RETURN_IF_ERROR(engine.check_generates());
  if (!engine.tokenizer.has_value()) {
    return unsupported(
        "%s: the file has no tokenizer, so it cannot generate text; convert the model again from a "
        "folder with a tokenizer",
        engine.reader->file().path().c_str());
  }
  QSF_RETURN_IF_ERROR(validate(options.sampling, engine.reader->spec().n_vocab));
  if (session.generation_ != nullptr) {
    return invalid_argument("the session has a generation already; free that one first");
  }
  if (const std::shared_ptr<Grammar>& grammar = options.sampling.grammar;
      grammar != nullptr && &grammar->engine() != engine.grammars.get()) {
    return invalid_argument("grammar: it was made for another engine");
  }
  QSF_RETURN_IF_ERROR(engine.check_prefix_key(options.prefix_key));
  if (options.on_prompt_token != nullptr && engine.prompts_are_whole()) {
    return unsupported(
        "attention symmetric: the tokens of a prompt attend to those after them, so their "
        "probabilities mean nothing; use full");
  }
  return GenerationPtr(new Generation(session, prompt, options));
}

Generation::Generation(Session& session, std::span<const TokenId> prompt,
                       const GenerateOptions& options)
    : session_(session),
      options_(options),
      prompt_(prompt.begin(), prompt.end()),
      text_(*session.engine_.tokenizer, options_) {
  Engine::Impl& engine = session.engine_;
  if (engine.ignores_prefix_keys) options_.prefix_key.reset();
  if (options_.prefix_key.has_value()) {
    engine.add_adapter_to_key(session.sequence_, *options_.prefix_key);
  }
  const std::size_t n_vocab = engine.reader->spec().n_vocab;
  const std::size_t n_ids = engine.n_drawable();
  if (options_.ignore_end_of_text) options_.sampling.excluded = engine.end_of_text_ids();
  options_.sampling.grammar_end_tokens = options_.end_tokens;
  sampler_.emplace(options_.sampling,
                   engine.sample_logits.subspan(session.sequence_ * n_vocab, n_ids),
                   engine.sample_order.first(n_ids));
  if (engine.speculation.has_value()) {
    drafted_.resize(std::size_t{engine.speculation->max_drafts()} + 1);
    engine.speculation->set_key(session.sequence_,
                                options_.prefix_key.has_value() ? &*options_.prefix_key : nullptr);
  }
  if (options_.log_probs) {
    log_probs_.emplace(options_.n_top_log_probs);
    sampler_->need_all();
  }
  if (options_.on_prompt_token != nullptr && !prompt_.empty()) {
    prompt_log_probs_.emplace(engine.n_drawable(),
                              std::min<std::size_t>(engine.rows_per_pass, prompt_.size() - 1),
                              options_.n_top_log_probs, *sampler_);
  }
  progress_ = {.report = options_.on_prompt, .user = options_.user};
  session.generation_ = this;
}

Generation::~Generation() {
  QSF_CHECK(!in_flight_);
  if (!finished()) {
    if (n_prompt_done_ == result_.cached_tokens) return_prefix();
    end(ok_status());
  }
  retire();
  session_.generation_ = nullptr;
}

Status Generation::admit() {
  if (is_parked()) return invalid_argument("the generation is parked; resume it");
  if (phase_ != Phase::kNew) return status_;
  if (Status status = check_prompt(); !status.ok()) {
    fail(std::move(status));
    return status_;
  }
  adopt_prefix();
  if (Status status = reserve_pages(); !status.ok()) {
    return_prefix();
    return status;
  }
  count_prefix();
  started_ns_ = monotonic_ns();
  progress_.total_rows =
      prompt_.size() - n_prompt_done_ + session_.tokens_.size() - session_.n_computed();
  if (prompt_.empty() && session_.pending_token_ == kNoToken) {
    const TokenId last = session_.tokens_.back();
    if (Status status = session_.truncate_to(session_.tokens_.size() - 1); !status.ok()) {
      fail(std::move(status));
      return status_;
    }
    prompt_.push_back(last);
    recomputes_last_ = true;
  }
  prompt_start_ =
      session_.tokens_.size() - n_prompt_done_ + (session_.pending_token_ == kNoToken ? 0 : 1);
  if (session_.n_computed() == prompt_start_) session_.engine_.keep_length(sequence());
  phase_ = Phase::kPrompt;
  return ok_status();
}

Status Generation::check_prompt() const {
  const Engine::Impl& engine = session_.engine_;
  if (prompt_.empty() && session_.tokens_.empty()) return invalid_argument("no tokens to compute");
  const std::uint32_t n_vocab = engine.reader->spec().n_vocab;
  for (const TokenId token : prompt_) {
    if (token < n_vocab) continue;
    return invalid_argument("token %u: the vocabulary ends at %u", token, n_vocab - 1);
  }
  QSF_RETURN_IF_ERROR(session_.check_room(prompt_.size()));
  return engine.check_pass_of(prompt_.size());
}

Status Generation::reserve_pages() {
  Engine::Impl& engine = session_.engine_;
  const std::uint32_t wished =
      options_.reserve_tokens != 0 ? options_.reserve_tokens : kDefaultReserve;
  const std::uint32_t most = options_.max_tokens - result_.generated_tokens;
  const std::size_t n_slots = session_.tokens_.size() +
                              (session_.pending_token_ == kNoToken ? 0 : 1) +
                              (prompt_.size() - n_prompt_done_) + std::min(wished, most);
  Status status = engine.kv->reserve(
      sequence(), static_cast<std::uint32_t>(std::min<std::size_t>(n_slots, engine.max_context)));
  if (status.ok()) return status;
  return std::move(status).with_context("the generation is not admitted");
}

Result<std::uint32_t> Generation::take_prompt(const Session& from) {
  Engine::Impl& engine = session_.engine_;
  if (in_flight_ || is_parked() || phase_ != Phase::kPrompt || !begins_session_ ||
      n_prompt_done_ != result_.cached_tokens) {
    return invalid_argument(
        "take_prompt: the generation is not one that was admitted to an empty session and has no "
        "rows of its own yet");
  }
  if (&from.engine_ != &engine || &from == &session_) {
    return invalid_argument(
        "take_prompt: the session is the generation's own, or of another "
        "engine");
  }
  if (from.adapter() != session_.adapter()) {
    return invalid_argument("take_prompt: the rows of the other session have another adapter");
  }
  QSF_RETURN_IF_ERROR(from.check_at_rest());
  if (prompt_log_probs_.has_value() || engine.states.has_value()) return 0U;
  if (engine.options.kv_policy.policy != KvPolicy::kFull || !engine.sparse_prefill.empty() ||
      engine.prompts_are_whole() || engine.options.record_passes) {
    return unsupported(
        "take_prompt: needs kv policy full and attention full or chunked, without record_passes");
  }
  const auto n_had = static_cast<std::uint32_t>(n_prompt_done_);
  const std::span<const TokenId> rows =
      from.tokens().first(std::min<std::size_t>(engine.n_shareable[from.sequence_], from.length()));
  const auto differ = std::mismatch(prompt_.begin(), prompt_.end() - 1, rows.begin(), rows.end());
  const auto n_alike = static_cast<std::uint32_t>(differ.first - prompt_.begin());
  KvCache& kv = *engine.kv;
  // A part of a page that was taken before is not continued. Behind a page of the prefix cache
  // stand the pages that follow it there: both have it, or the rows stay apart.
  if (n_alike <= n_had || n_had % kKvPageSlots != 0 ||
      (n_had != 0 && kv.page_of(sequence(), n_had - 1) != kv.page_of(from.sequence_, n_had - 1))) {
    return 0U;
  }
  QSF_ASSIGN_OR_RETURN(const std::optional<PageCopy> copy,
                       kv.share_slots(from.sequence_, sequence(), n_alike));
  if (copy.has_value()) engine.backend->copy_page(copy->from_page, copy->to_page);
  engine.n_shareable[sequence()] = n_alike;
  n_prompt_done_ = result_.cached_tokens = n_alike;
  progress_.total_rows -= n_alike - n_had;
  if (std::exchange(n_to_read_, 0) != 0) count_prefix();
  session_.tokens_.assign(prompt_.begin(), prompt_.begin() + n_alike);
  return n_alike - n_had;
}

Status Generation::park(const std::string& path) {
  QSF_CHECK(!in_flight_);
  if (finished()) return invalid_argument("the generation has ended; it cannot be parked");
  if (is_parked()) return invalid_argument("the generation is parked in %s", parked_->path.c_str());
  const std::size_t n_rows = session_.n_computed();
  QSF_RETURN_IF_ERROR(session_.park_rows(path));
  const Status given_back = session_.engine_.kv->reserve(sequence(), 0);
  QSF_DCHECK(given_back.ok());
  parked_ = {path, n_rows};
  waits_for_pages = false;
  return ok_status();
}

Status Generation::resume() {
  if (!is_parked()) return invalid_argument("the generation is not parked");
  QSF_RETURN_IF_ERROR(reserve_pages());
  Status status;
  if (parked_->n_rows != 0) status = session_.resume_rows(parked_->path, parked_->n_rows);
  if (status.code() == StatusCode::kCancelled) {
    const Status given_back = session_.engine_.kv->reserve(sequence(), 0);
    QSF_DCHECK(given_back.ok());
    return status;
  }
  if (!status.ok()) {
    fail(std::move(status));
    retire();
    return status_;
  }
  remove_parked_file();
  parked_.reset();
  return ok_status();
}

// Of one that ends: nothing has the rows of the session any more.
void Generation::discard_parked() {
  if (!is_parked()) return;
  remove_parked_file();
  parked_.reset();
  session_.tokens_.clear();
  session_.pending_token_ = result_.pending_token = kNoToken;
}

void Generation::remove_parked_file() {
  if (parked_->n_rows != 0) session_.engine_.file_ops().remove(parked_->path);
}

void Generation::retire() {
  if (finished()) {
    const Status ended = session_.engine_.kv->reserve(sequence(), 0);
    QSF_DCHECK(ended.ok());
  }
}

void Generation::take_cancel() {
  if (!finished() && is_cancelled()) finish(StopReason::kCancelled);
}

NextRows Generation::next_rows() const {
  QSF_DCHECK(phase_ == Phase::kPrompt || phase_ == Phase::kGenerating);
  const std::span<const TokenId> tokens = session_.tokens_;
  const std::size_t n_computed = session_.n_computed();
  if (n_computed < tokens.size()) return {.tokens = tokens.subspan(n_computed)};
  const bool prompt_done = n_prompt_done_ == prompt_.size();
  if (session_.pending_token_ != kNoToken) {
    return {.tokens = {&session_.pending_token_, 1},
            .role = RowRole::kGenerated,
            .wants_output = prompt_done && options_.max_tokens > 0};
  }
  QSF_DCHECK(!prompt_done);
  return {.tokens = std::span<const TokenId>(prompt_).subspan(n_prompt_done_),
          .wants_output = options_.max_tokens > 0};
}

NextRows Generation::draft(const NextRows& next, const DraftRequest& request,
                           std::uint32_t n_drafted) {
  Engine::Impl& engine = session_.engine_;
  if (!next.wants_output || drafted_.empty()) return next;
  // The draft's tokens, and one behind it, are all generated, and each has a place in the context.
  const std::size_t n_left = std::min<std::size_t>(options_.max_tokens - result_.generated_tokens,
                                                   engine.max_context - session_.tokens_.size());
  DraftRequest wanted = request;
  wanted.most = static_cast<std::uint32_t>(
      std::min<std::size_t>({request.most, drafted_.size() - 1, n_left - 1}));
  drafted_.front() = session_.pending_token_;
  Rng random = sampler_->random();
  const auto draw = [&](std::span<float> logits, std::span<const TokenId> history) {
    if (is_cancelled()) return kNoToken;
    const TokenId token = sampler_->guess(logits, history, random);
    return ends_text(token) ? kNoToken : token;
  };
  const auto is_cancelled_now = [this] { return is_cancelled(); };
  const std::uint32_t n = engine.speculation->draft(
      sequence(),
      {.tokens = session_.tokens_,
       .last = session_.pending_token_,
       .prompt_begin = static_cast<std::uint32_t>(prompt_start_),
       .prompt_end = static_cast<std::uint32_t>(prompt_start_ + prompt_.size()),
       .n_left = static_cast<std::uint32_t>(n_left)},
      wanted, {.draw = draw, .is_cancelled = is_cancelled_now}, std::span(drafted_).subspan(1));
  sampler_->gather_also(engine.speculation->logits_from(n_drafted), engine.reader->spec().n_vocab);
  return {.tokens = std::span(drafted_).first(n + 1U), .role = next.role, .wants_output = true};
}

bool Generation::is_prompt(std::span<const TokenId> rows) const noexcept {
  return n_prompt_done_ < prompt_.size() && rows.data() == prompt_.data() + n_prompt_done_;
}

LogitsSink* Generation::plan_outputs(const NextRows& next, std::size_t n_rows,
                                     std::size_t& first_output) {
  first_output = next.role == RowRole::kPrompt ? n_rows - 1 : 0;
  const bool has_last = next.wants_output && n_rows == next.tokens.size();
  if (!prompt_log_probs_.has_value() || !is_prompt(next.tokens)) {
    return has_last ? &*sampler_ : nullptr;
  }
  const std::span<const TokenId> behind =
      std::span<const TokenId>(prompt_).subspan(n_prompt_done_ + 1);
  prompt_log_probs_->begin(behind.first(std::min(n_rows, behind.size())));
  if (prompt_log_probs_->targets().empty()) return has_last ? &*sampler_ : nullptr;
  first_output = 0;
  return &*prompt_log_probs_;
}

// Delivers the prompt's tokens behind the rows that a pass computed, and before the first pass's
// the one that nothing predicts. Returns false when that has ended the generation.
bool Generation::deliver_prompt(bool is_first) {
  const auto deliver = [this](const GeneratedToken& token) {
    return options_.on_prompt_token == nullptr ||
           options_.on_prompt_token(token, options_.user) == 0;
  };
  bool goes_on = !is_first || deliver({.token = prompt_.front(),
                                       .log_prob = std::numeric_limits<float>::quiet_NaN()});
  const std::span<const TokenId> targets = prompt_log_probs_->targets();
  for (std::size_t row = 0; row < targets.size() && goes_on; ++row) {
    if (!prompt_log_probs_->is_sound(row)) {
      fail(damaged_logits());
      return false;
    }
    goes_on = deliver({.token = targets[row],
                       .log_prob = prompt_log_probs_->of(row),
                       .top_log_probs = prompt_log_probs_->top(row)});
  }
  if (!goes_on) finish(StopReason::kCallback);
  return goes_on;
}

std::uint32_t Generation::commit(const NextRows& done) {
  std::vector<TokenId>& tokens = session_.tokens_;
  bool has_output = done.wants_output;
  if (done.role == RowRole::kGenerated) {
    tokens.push_back(session_.pending_token_);
    session_.pending_token_ = result_.pending_token = kNoToken;
  } else if (is_prompt(done.tokens)) {
    const bool is_first = n_prompt_done_ == 0;
    tokens.insert(tokens.end(), done.tokens.begin(), done.tokens.end());
    n_prompt_done_ += done.tokens.size();
    share_prefix();
    if (prompt_log_probs_.has_value() && !deliver_prompt(is_first)) return 0;
    has_output = has_output && n_prompt_done_ == prompt_.size();
  } else {
    return 0;  // tokens of the session, computed again
  }
  if (phase_ == Phase::kPrompt && n_prompt_done_ == prompt_.size() &&
      session_.pending_token_ == kNoToken) {
    phase_ = Phase::kGenerating;
    result_.prompt_ns = monotonic_ns() - started_ns_;
    result_.prompt_tokens = static_cast<std::uint32_t>(recomputes_last_ ? 0 : prompt_.size());
    if (options_.echo_prompt && !recomputes_last_) {
      for (const TokenId token : prompt_) text_.echo(token);
    }
    if (options_.max_tokens == 0) {
      finish(StopReason::kTokenLimit);
      return 0;
    }
  }
  if (!has_output) return 0;
  sampler_->select(0);
  sample();
  return done.tokens.data() == drafted_.data() ? sample_drafts(done.tokens.subspan(1)) : 0;
}

// Goes on with the rows of a draft as long as its tokens are those that were drawn, and drops what
// the other rows computed.
std::uint32_t Generation::sample_drafts(std::span<const TokenId> drafts) {
  Engine::Impl& engine = session_.engine_;
  std::uint32_t n_accepted = 0;
  // A cancellation ends the text where it would without drafts: at the end of this token's pass.
  const auto goes_on = [&] {
    return !finished() && !is_cancelled() && !engine.cancel.load(std::memory_order_relaxed);
  };
  while (n_accepted < drafts.size() && goes_on() && session_.pending_token_ == drafts[n_accepted]) {
    session_.tokens_.push_back(session_.pending_token_);
    session_.pending_token_ = result_.pending_token = kNoToken;
    sampler_->select(++n_accepted);
    sample();
  }
  engine.truncate(sequence(), static_cast<std::uint32_t>(session_.tokens_.size()));
  engine.speculation->learn(sequence(), n_accepted);
  result_.drafted_tokens += static_cast<std::uint32_t>(drafts.size());
  result_.accepted_tokens += n_accepted;
  engine.stats.drafted_tokens += drafts.size();
  engine.stats.accepted_tokens += n_accepted;
  engine.stats.generated_tokens -= drafts.size() - n_accepted;
  return n_accepted;
}

Status Generation::damaged_logits() const {
  return corrupt(
      "%s: the model's logits are not finite; its weights or its configuration are damaged",
      session_.engine_.reader->file().path().c_str());
}

void Generation::sample() {
  Engine::Impl& engine = session_.engine_;
  if (!sampler_->has_candidate()) {
    return fail(damaged_logits());
  }
  if (log_probs_.has_value()) log_probs_->take(sampler_->logits(), engine.sample_kept);
  if (Status status = sampler_->prepare(); !status.ok()) return fail(std::move(status));
  const std::uint64_t start = monotonic_ns();
  const TokenId token = sampler_->draw(session_.tokens_);
  const std::uint64_t now = monotonic_ns();
  engine.stats.sample_ns += now - start;
  if (token == kNoToken) return fail(sampler_->grammar_status());
  GeneratedToken generated = {.token = token};
  if (log_probs_.has_value()) {
    generated.log_prob = log_probs_->of(token);
    generated.top_log_probs = log_probs_->top();
  }
  if (ends_text(token)) {
    finish(StopReason::kEndOfText);
    generated.is_end = true;
    if (options_.reports_end) text_.deliver_end(generated);
    return;
  }
  if (result_.generated_tokens == 0) {
    first_token_ns_ = now;
    result_.first_token_ns = now - started_ns_;
  }
  if (options_.sampling.grammar != nullptr) {
    if (Status status = sampler_->accept(token); !status.ok()) return fail(std::move(status));
  }
  ++result_.generated_tokens;
  result_.pending_token = session_.pending_token_ = token;
  if (!text_.push(generated)) {
    return finish(text_.ended_by_receiver() ? StopReason::kCallback : StopReason::kStopString);
  }
  if (sampler_->grammar_is_finished()) return finish(StopReason::kEndOfText);
  if (result_.generated_tokens == options_.max_tokens) return finish(StopReason::kTokenLimit);
  if (session_.tokens_.size() == engine.max_context) finish(StopReason::kContextFull);
}

bool Generation::ends_text(TokenId token) const {
  const auto holds = [token](const auto& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  const Engine::Impl& engine = session_.engine_;
  return holds(engine.reader->spec().eos_ids) || holds(options_.end_tokens) ||
         engine.tokenizer->is_stop(token);
}

void Generation::drop_prompt() {
  if (is_parked()) return;
  if (n_prompt_done_ != 0 && n_prompt_done_ < prompt_.size() &&
      session_.longest_kept(prompt_start_) == prompt_start_) {
    const Status truncated = session_.truncate_to(prompt_start_);
    QSF_DCHECK(truncated.ok());
  }
  if (recomputes_last_ && n_prompt_done_ == 0) session_.pending_token_ = prompt_.front();
}

void Generation::finish(StopReason reason) {
  if (phase_ == Phase::kPrompt) {
    drop_prompt();
    result_.prompt_ns = monotonic_ns() - started_ns_;
    if (options_.echo_prompt && !recomputes_last_) {
      for (const TokenId token : prompt_) text_.echo(token);
    }
  }
  result_.reason = reason;
  text_.finish();
  end(ok_status());
}

void Generation::fail(Status status) {
  if (phase_ == Phase::kPrompt) drop_prompt();
  end(std::move(status));
}

// Lets later generations of the key copy from what was generated. The prompt's last tokens tell
// where the answer fits.
void Generation::share_answer() {
  constexpr std::size_t kBefore = 4;
  Engine::Impl& engine = session_.engine_;
  if (!options_.prefix_key.has_value() || !engine.speculation.has_value() ||
      !engine.speculation->shares_answers() || result_.generated_tokens == 0) {
    return;
  }
  const std::size_t n_pending = session_.pending_token_ == kNoToken ? 0 : 1;
  const std::size_t n_answer =
      std::min(result_.generated_tokens - n_pending, session_.tokens_.size());
  const std::size_t n = std::min(n_answer + kBefore, session_.tokens_.size());
  engine.speculation->share(*options_.prefix_key, std::span(session_.tokens_).last(n));
}

void Generation::end(Status status) {
  share_prefix();
  share_answer();
  if (result_.generated_tokens > 0) result_.generate_ns = monotonic_ns() - first_token_ns_;
  status_ = std::move(status);
  phase_ = Phase::kFinished;
  discard_parked();
  session_.cancelled_.store(false, std::memory_order_relaxed);  // not meant for the next one
}

}  // namespace qsf
