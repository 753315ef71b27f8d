// SPDX-License-Identifier: MIT
//
// Sequences at work: appending rows in passes, and generating text token by token.

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "engine/engine_impl.h"
#include "engine/stop_matcher.h"
#include "platform/clock.h"
#include "tokenizer/stream_decoder.h"

namespace qsf {

namespace {

void report_layer(std::uint32_t n_layers_done, void* user) {
  const auto& progress = *static_cast<const PromptProgress*>(user);
  progress.report(progress.done_rows * progress.n_layers + progress.pass_rows * n_layers_done,
                  progress.total_rows * progress.n_layers, progress.user);
}

// Numbers the rows of one pass after those of the passes before it.
class NumberedRows final : public LogitsSink {
 public:
  NumberedRows(LogitsSink& to, std::size_t first_row) noexcept
      : to_(to), first_row_(static_cast<std::uint32_t>(first_row)) {}
  void consume(std::uint32_t row, std::uint32_t first_token,
               std::span<const float> logits) noexcept override {
    to_.consume(first_row_ + row, first_token, logits);
  }

 private:
  LogitsSink& to_;
  std::uint32_t first_row_;
};

}  // namespace

Status Engine::Impl::append(SequenceId sequence, std::span<const TokenId> tokens, RowRole role,
                            std::size_t first_output, LogitsSink* sink, PromptProgress* progress) {
  const std::uint32_t n_vocab = reader->spec().n_vocab;
  if (tokens.empty()) return invalid_argument("no tokens to compute");
  for (const TokenId token : tokens) {
    if (token >= n_vocab) {
      return invalid_argument("token %u: the vocabulary ends at %u", token, n_vocab - 1);
    }
  }
  const std::uint32_t before = kv->n_slots(sequence);
  if (tokens.size() > max_context - before) {
    return out_of_budget("%zu tokens do not fit: the context has %u positions, %u of them in use",
                         tokens.size(), max_context, before);
  }
  const std::uint64_t start = monotonic_ns();
  Status status;
  std::size_t done = 0;
  while (done < tokens.size() && status.ok()) {
    const std::size_t n = std::min<std::size_t>(rows_per_pass, tokens.size() - done);
    const std::size_t first = first_output > done ? first_output - done : 0;
    status = run_pass(sequence, tokens.subspan(done, n), role, first, sink, progress);
    if (status.ok()) done += n;
  }
  if (!status.ok()) {
    const bool can_return = longest_kept(sequence, before) == before;
    truncate(sequence, can_return ? before : before + static_cast<std::uint32_t>(done));
  }
  count_work(role, done, monotonic_ns() - start);
  return status;
}

// Work that was cancelled or failed counts as well: its time was spent.
void Engine::Impl::count_work(RowRole role, std::size_t n_rows, std::uint64_t elapsed_ns) {
  const bool prompt = role == RowRole::kPrompt;
  (prompt ? stats.prompt_tokens : stats.generated_tokens) += n_rows;
  (prompt ? stats.prompt_ns : stats.generate_ns) += elapsed_ns;
  stats.operators = backend->profile();
  stats.matmul_ns = stats.operators.product_ns();
  stats.attention_ns = stats.operators[OperatorKind::kAttend].ns;
  stats.other_ns = stats.prompt_ns + stats.generate_ns - stats.matmul_ns - stats.attention_ns;
}

void Engine::Impl::truncate(SequenceId sequence, std::uint32_t n_slots) noexcept {
  if (!h2o.empty()) n_slots = h2o[sequence].truncate(n_slots);
  if (!heavy.empty()) n_slots = heavy[sequence].truncate(n_slots);
  kv->truncate(sequence, n_slots);
}

bool Engine::Impl::take_cancel() noexcept {
  return cancel.exchange(false, std::memory_order_relaxed);
}

void Engine::Impl::keep_within_limits() {
  const std::uint64_t excess = watch->bytes_to_give_back(monotonic_ns());
  if (excess == 0) return;
  const std::uint64_t given_back = pager->drop_residents(excess);
  char line[240];
  std::snprintf(
      line, sizeof line,
      "the memory limit fell to %.1f MB below what is planned: %.1f MB of weights are given "
      "back and read from the disk from now on%s",
      static_cast<double>(excess) / 1e6, static_cast<double>(given_back) / 1e6,
      given_back < excess ? "; that is not enough, and the system may end this process" : "");
  options.log.warning(line);
}

std::uint32_t Engine::Impl::longest_kept(SequenceId sequence,
                                         std::uint32_t n_slots) const noexcept {
  const KvPolicyOptions& policy = options.kv_policy;
  if (policy.policy == KvPolicy::kH2o) return n_slots;  // what was evicted is computed again
  const auto can_go_on = [&](std::uint32_t n) {
    const std::uint32_t first =
        policy.policy == KvPolicy::kFull || n <= policy.window ? 0 : n - policy.window;
    return kv->holds(sequence, first, n);
  };
  if (can_go_on(n_slots)) return n_slots;
  const std::uint32_t in_sink_pages = kv_sink_pages(kv->limits()) * kKvPageSlots;
  return std::min(n_slots, in_sink_pages);
}

// What the policy leaves of the slots up to this one.
VisibleSet Engine::Impl::visible_at(std::uint32_t slot) const noexcept {
  const KvPolicyOptions& policy = options.kv_policy;
  const std::uint32_t prefix = slot + 1;
  if (policy.policy == KvPolicy::kH2o) {  // and heavy hitters, which are no slots
    return {.prefix = prefix,
            .ancestors = 0,
            .sinks = 0,
            .first = first_recent_position(slot, policy.window)};
  }
  if (policy.policy == KvPolicy::kFull || prefix <= policy.window) {
    return {.prefix = prefix, .ancestors = 0};
  }
  return {.prefix = prefix,
          .ancestors = 0,
          .sinks = std::min(policy.sinks, prefix),
          .first = prefix - policy.window};
}

Status Engine::Impl::add_rows(SequenceId sequence, std::span<const TokenId> tokens, RowRole role,
                              std::size_t first_output) {
  keep_within_limits();
  QSF_ASSIGN_OR_RETURN(const Appended appended,
                       kv->append(sequence, static_cast<std::uint32_t>(tokens.size())));
  if (appended.copy.has_value()) {
    backend->copy_page(appended.copy->from_page, appended.copy->to_page);
  }
  rows.clear();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::uint32_t slot = appended.first_slot + static_cast<std::uint32_t>(i);
    rows.push_back({.sequence = sequence,
                    .token = tokens[i],
                    .position = static_cast<std::int32_t>(slot),
                    .kv_slot = slot,
                    .role = role,
                    .visible = visible_at(slot),
                    .adapter = 0,
                    .wants_output = i >= first_output});
  }
  return ok_status();
}

Status Engine::Impl::run_pass(SequenceId sequence, std::span<const TokenId> tokens, RowRole role,
                              std::size_t first_output, LogitsSink* sink,
                              PromptProgress* progress) {
  QSF_RETURN_IF_ERROR(add_rows(sequence, tokens, role, first_output));
  Pass pass = {.rows = rows, .kv = &*kv, .cancel = &cancel, .sink = sink};
  if (progress != nullptr && progress->report != nullptr) {
    progress->pass_rows = tokens.size();
    progress->n_layers = reader->spec().n_layers;
    pass.on_layer = report_layer;
    pass.on_layer_user = progress;
  }
  if (role == RowRole::kPrompt) ++stats.prompt_passes;
  Status status = decoder->run(pass);
  if (progress != nullptr) progress->done_rows += tokens.size();
  // A cancellation is used up by the pass it ended.
  if (status.code() == StatusCode::kCancelled) take_cancel();
  return status;
}

Status Engine::Impl::run_part(SequenceId sequence, std::span<const TokenId> tokens,
                              std::uint32_t first, std::uint32_t last, std::span<float> hidden) {
  QSF_RETURN_IF_ERROR(add_rows(sequence, tokens, RowRole::kPrompt, tokens.size()));
  ++stats.prompt_passes;
  Status status = decoder->run_part({.rows = rows, .kv = &*kv, .cancel = &cancel, .sink = nullptr},
                                    first, last, hidden);
  if (status.code() == StatusCode::kCancelled) take_cancel();
  return status;
}

Session::Session(Engine::Impl& engine, SequenceId sequence) : engine_(engine), sequence_(sequence) {
  tokens_.reserve(engine.max_context);
}

Session::~Session() {
  engine_.truncate(sequence_, 0);
  engine_.kv->free_sequence(sequence_);
}

std::size_t Session::n_computed() const noexcept {
  return engine_.kv->n_slots(sequence_);
}

// Those that a cancelled call or a truncation took along.
Status Session::compute_lost_rows(PromptProgress* progress) {
  if (n_computed() == tokens_.size()) return ok_status();
  const auto lost = std::span<const TokenId>(tokens_).subspan(n_computed());
  if (progress != nullptr) progress->total_rows += lost.size();
  return engine_.append(sequence_, lost, RowRole::kPrompt, lost.size(), nullptr, progress);
}

Status Session::check_room(std::size_t n_tokens) const {
  const std::size_t n_used = tokens_.size() + (pending_token_ == kNoToken ? 0 : 1);
  if (n_used <= engine_.max_context && n_tokens <= engine_.max_context - n_used) return ok_status();
  return out_of_budget("%zu tokens do not fit: the context has %u positions, %zu of them in use",
                       n_tokens, engine_.max_context, n_used);
}

Status Session::compute_pending(LogitsSink* sink) {
  if (pending_token_ == kNoToken) return ok_status();
  QSF_RETURN_IF_ERROR(compute_lost_rows());
  const TokenId token = pending_token_;
  QSF_RETURN_IF_ERROR(
      engine_.append(sequence_, {&token, 1}, RowRole::kGenerated, sink == nullptr ? 1 : 0, sink));
  tokens_.push_back(token);
  pending_token_ = kNoToken;
  return ok_status();
}

Status Session::append(std::span<const TokenId> tokens, RowRole role, LogitsSink* sink,
                       PromptProgress* progress) {
  if (pending_token_ != kNoToken) {
    QSF_RETURN_IF_ERROR(check_room(tokens.size()));
    QSF_RETURN_IF_ERROR(compute_pending(nullptr));
  }
  QSF_RETURN_IF_ERROR(compute_lost_rows(progress));
  Status status = engine_.append(sequence_, tokens, role, tokens.size() - 1, sink, progress);
  // All of them, or none, or those of the passes that a failed call could not take back.
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
  QSF_RETURN_IF_ERROR(check_room(tokens.size()));
  QSF_RETURN_IF_ERROR(compute_pending(nullptr));
  const std::size_t before = tokens_.size();
  Status status = tokens.empty() ? invalid_argument("no tokens to compute") : compute_lost_rows();
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

Status Session::truncate(std::size_t n_tokens) {
  if (n_tokens > tokens_.size()) {
    return invalid_argument("cannot keep %zu tokens of %zu", n_tokens, tokens_.size());
  }
  if (const std::size_t longest = longest_kept(n_tokens); longest != n_tokens) {
    return invalid_argument(
        "cannot keep %zu tokens of %zu: the next one would see the last %u, and keys and values "
        "of some of those were evicted, which does not come back; keep %zu and compute the others "
        "anew, or take a larger window",
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
  return longest == n ? n_tokens : longest;  // rows that were lost can be computed again
}

namespace {

// Turns tokens into text for the caller: whole characters, nothing of a stop string.
class TextStream {
 public:
  TextStream(const Tokenizer& tokenizer, const GenerateOptions& options)
      : options_(options),
        decoder_(tokenizer, {.skip_special = true, .at_text_start = false}),
        stops_(options.stop, tokenizer.longest_token_bytes() + 8) {}

  // Delivers a token of the prompt; stop strings are looked for in what is generated alone.
  void echo(TokenId token) { emit(token, decoder_.push(token)); }
  // Returns false when a stop string was found.
  bool push(TokenId token) {
    emit(token, stops_.push(decoder_.push(token)));
    return !stops_.stopped();
  }
  // Delivers what was held back, if anything, under the id of the last token.
  void finish() {
    if (stops_.stopped()) return;
    const std::string_view text = stops_.push(decoder_.finish());
    if (!text.empty()) emit(last_, text);
    if (stops_.stopped()) return;
    const std::string_view rest = stops_.finish();
    if (!rest.empty()) emit(last_, rest);
  }

 private:
  void emit(TokenId token, std::string_view text) {
    last_ = token;
    if (options_.on_token != nullptr) options_.on_token(token, text, options_.user);
  }

  const GenerateOptions& options_;
  StreamDecoder decoder_;
  StopMatcher stops_;
  TokenId last_ = 0;  // delivered last; text is held back only after some token
};

bool ends_text(const Engine::Impl& engine, const GenerateOptions& options, TokenId token) {
  const auto holds = [token](const auto& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  return holds(engine.reader->spec().eos_ids) || holds(options.end_tokens) ||
         engine.tokenizer->is_stop(token);
}

// Returns how many ids may be drawn. Embeddings are padded with rows that no token belongs to; an
// end of text that the tokenizer does not list still ends it.
std::size_t n_drawable(const Engine::Impl& engine) {
  std::size_t n = engine.tokenizer->n_tokens();
  for (const std::uint32_t id : engine.reader->spec().eos_ids) {
    n = std::max<std::size_t>(n, std::size_t{id} + 1);
  }
  return std::min<std::size_t>(n, engine.sample_logits.size());
}

}  // namespace

// Appends the prompt, or computes what comes after the session as it is. A last row that is
// computed again and fails is a token without a row from then on.
Status Session::begin(std::span<const TokenId> prompt, LogitsSink* sink, PromptProgress* progress) {
  if (!prompt.empty() || tokens_.empty()) return append(prompt, RowRole::kPrompt, sink, progress);
  if (pending_token_ != kNoToken) {
    QSF_RETURN_IF_ERROR(check_room(0));
    return compute_pending(sink);
  }
  const TokenId last = tokens_.back();
  QSF_RETURN_IF_ERROR(truncate(tokens_.size() - 1));
  Status status = append({&last, 1}, RowRole::kPrompt, sink);
  if (!status.ok()) pending_token_ = last;
  return status;
}

Result<GenerateResult> Session::generate(std::span<const TokenId> prompt,
                                         const GenerateOptions& options) {
  if (!engine_.tokenizer.has_value()) {
    return unsupported(
        "%s: the file has no tokenizer, so it cannot generate text; convert the model "
        "again from a folder that holds one",
        engine_.reader->file().path().c_str());
  }
  QSF_RETURN_IF_ERROR(validate(options.sampling, engine_.reader->spec().n_vocab));
  GenerateResult result;
  const std::uint64_t start = monotonic_ns();
  const std::size_t n_ids = n_drawable(engine_);
  Sampler sampler(options.sampling, engine_.sample_logits.first(n_ids),
                  engine_.sample_order.first(n_ids));
  TextStream text(*engine_.tokenizer, options);

  PromptProgress progress = {.report = options.on_prompt, .user = options.user};
  progress.total_rows = prompt.size();
  Status status = begin(prompt, options.max_tokens > 0 ? &sampler : nullptr, &progress);
  result.prompt_ns = monotonic_ns() - start;
  if (options.echo_prompt && (status.ok() || status.code() == StatusCode::kCancelled)) {
    for (const TokenId token : prompt) text.echo(token);
  }
  if (status.code() == StatusCode::kCancelled) {
    text.finish();
    result.reason = StopReason::kCancelled;
    return result;
  }
  QSF_RETURN_IF_ERROR(std::move(status));
  result.prompt_tokens = static_cast<std::uint32_t>(prompt.size());

  std::uint64_t first_token_at = start;
  while (result.generated_tokens < options.max_tokens) {
    if (!sampler.has_candidate()) {
      return corrupt(
          "%s: the model's logits are not finite; its weights or its configuration are "
          "damaged",
          engine_.reader->file().path().c_str());
    }
    const std::uint64_t sample_start = monotonic_ns();
    const TokenId token = sampler.draw(tokens_);
    const std::uint64_t now = monotonic_ns();
    engine_.stats.sample_ns += now - sample_start;
    if (ends_text(engine_, options, token)) {
      result.reason = StopReason::kEndOfText;
      break;
    }
    if (result.generated_tokens == 0) {
      first_token_at = now;
      result.first_token_ns = now - start;
    }
    ++result.generated_tokens;
    result.pending_token = pending_token_ = token;
    if (!text.push(token)) {
      result.reason = StopReason::kStopString;
      break;
    }
    if (result.generated_tokens == options.max_tokens) break;
    if (tokens_.size() == engine_.max_context) {
      result.reason = StopReason::kContextFull;
      break;
    }
    status = compute_pending(&sampler);
    if (status.code() == StatusCode::kCancelled) {
      result.reason = StopReason::kCancelled;
      break;
    }
    QSF_RETURN_IF_ERROR(std::move(status));
    result.pending_token = kNoToken;
  }
  text.finish();
  // Asked for while the last token was delivered, when no pass was left to end.
  if (engine_.take_cancel()) result.reason = StopReason::kCancelled;
  if (result.generated_tokens > 0) result.generate_ns = monotonic_ns() - first_token_at;
  return result;
}

}  // namespace qsf
