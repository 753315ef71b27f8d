// SPDX-License-Identifier: MIT
//
// The passes of an engine: rows are made of tokens, run through the layers, and taken back when a
// pass fails.

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "engine/engine_impl.h"
#include "engine/generation.h"
#include "engine/layer_view.h"
#include "platform/clock.h"

namespace qsf {

namespace {

struct LayerReport {
  Engine::Impl& engine;
  PassInFlight& pass;
};

// Shows a layer to the hook, reports it to every part of a pass that wants to know, and stops a
// pass of which every member was cancelled.
void report_layer(std::uint32_t n_layers_done, void* user) {
  const LayerReport& report = *static_cast<const LayerReport*>(user);
  PassInFlight& pass = report.pass;
  if (const LayerHook& hook = report.engine.options.layer_hook; hook.see != nullptr) {
    hook.see(LayerView(report.engine, pass.rows, n_layers_done - 1), hook.user);
  }
  for (const PassPart& part : pass.parts) {
    const PromptProgress* const progress = part.progress;
    if (progress == nullptr || progress->report == nullptr) continue;
    const std::uint64_t total = progress->total_rows * progress->n_layers;
    const std::uint64_t done =
        progress->done_rows * progress->n_layers + progress->pass_rows * n_layers_done;
    // After a failed pass rows that it invalidated may be computed again.
    progress->report(std::min(done, total), total, progress->user);
  }
  if (pass.planned.empty()) return;
  pass.all_cancelled = std::all_of(pass.planned.begin(), pass.planned.end(),
                                   [](const Planned& p) { return p.member->is_cancelled(); });
  if (pass.all_cancelled) report.engine.cancel.store(true, std::memory_order_relaxed);
}

// Sends each row's logits to the sink of its part.
class PartSinks final : public LogitsSink {
 public:
  explicit PartSinks(std::span<const PassOutput> outputs) noexcept : outputs_(outputs) {}
  void consume(std::uint32_t row, std::uint32_t first_token,
               std::span<const float> logits) noexcept override {
    outputs_[row].sink->consume(outputs_[row].row, first_token, logits);
  }
  HeadNeed head_need(std::uint32_t row) const noexcept override {
    return outputs_[row].sink->head_need(outputs_[row].row);
  }
  void expect_some(std::uint32_t row) noexcept override {
    outputs_[row].sink->expect_some(outputs_[row].row);
  }

 private:
  std::span<const PassOutput> outputs_;
};

// Hands the model's rows to the block that drafts for it.
struct RowFeed {
  DraftModel* to;
  std::span<const Row> rows;
};

void feed_row(std::uint32_t row, std::span<const float> values, void* user) {
  const RowFeed& feed = *static_cast<const RowFeed*>(user);
  feed.to->take_row(feed.rows, row, values);
}

}  // namespace

Status Engine::Impl::append(SequenceId sequence, std::span<const TokenId> tokens, RowRole role,
                            std::size_t first_output, LogitsSink* sink, PromptProgress* progress) {
  QSF_RETURN_IF_ERROR(check_generates());
  const std::uint32_t n_vocab = reader->spec().n_vocab;
  if (tokens.empty()) return invalid_argument("no tokens to compute");
  for (const TokenId token : tokens) {
    if (token >= n_vocab) {
      return invalid_argument("token %u: the vocabulary ends at %u", token, n_vocab - 1);
    }
  }
  if (role == RowRole::kPrompt) QSF_RETURN_IF_ERROR(check_pass_of(tokens.size()));
  const std::uint32_t before = kv->n_slots(sequence);
  if (tokens.size() > max_context - before) {
    return out_of_budget("%zu tokens do not fit: the context has %u positions, %u of them in use",
                         tokens.size(), max_context, before);
  }
  if (tokens.size() > rows_per_pass) keep_length(sequence);
  Status status;
  std::size_t done = 0;
  while (done < tokens.size() && status.ok()) {
    const std::size_t n = std::min<std::size_t>(rows_per_pass, tokens.size() - done);
    const std::size_t first = first_output > done ? first_output - done : 0;
    const PassPart part = {.sequence = sequence,
                           .tokens = tokens.subspan(done, n),
                           .role = role,
                           .first_output = first,
                           .sink = sink,
                           .progress = progress};
    status = run_parts({&part, 1});
    if (status.ok()) done += n;
  }
  // A failed pass may have invalidated slots from before it.
  if (!status.ok() && kv->n_slots(sequence) > before && longest_kept(sequence, before) == before) {
    truncate(sequence, before);
  }
  return status;
}

// Cancelled and failed work counts as well: its time was spent. A pass of both roles shares its
// time among them by rows.
void Engine::Impl::count_work(std::span<const PassPart> parts, bool done,
                              std::uint64_t elapsed_ns) {
  std::uint64_t n_prompt = 0;
  std::uint64_t n_generated = 0;
  for (const PassPart& part : parts) {
    (part.role == RowRole::kPrompt ? n_prompt : n_generated) += part.tokens.size();
  }
  if (n_prompt != 0) ++stats.prompt_passes;
  const std::uint64_t prompt_ns = elapsed_ns * n_prompt / (n_prompt + n_generated);
  stats.prompt_ns += prompt_ns;
  stats.generate_ns += elapsed_ns - prompt_ns;
  if (done) {
    stats.prompt_tokens += n_prompt;
    stats.generated_tokens += n_generated;
  }
  stats.operators = backend->profile();
  stats.matmul_ns = stats.operators.product_ns();
  stats.attention_ns = stats.operators[OperatorKind::kAttend].ns;
  stats.other_ns = stats.prompt_ns + stats.generate_ns - stats.matmul_ns - stats.attention_ns;
}

void Engine::Impl::truncate(SequenceId sequence, std::uint32_t n_slots) noexcept {
  if (!sparse_prefill.empty()) n_slots = sparse_prefill[sequence].truncate(n_slots);
  if (!h2o_eviction.empty()) n_slots = h2o_eviction[sequence].truncate(n_slots);
  if (states.has_value()) n_slots = states->truncate(sequence, n_slots);
  if (n_slots == kv->n_slots(sequence)) return;
  kv->truncate(sequence, n_slots);
  n_shareable[sequence] = std::min(n_shareable[sequence], n_slots);
  record(SequenceChange::Kind::kTruncate, sequence, n_slots);
}

Result<SequenceId> Engine::Impl::fork(SequenceId origin) {
  QSF_ASSIGN_OR_RETURN(const SequenceId created, kv->fork(origin));
  n_shareable[created] = n_shareable[origin];
  sequence_adapters[created] = sequence_adapters[origin];
  if (states.has_value()) states->fork(origin, created);
  return created;
}

// The engines that execute recorded passes do not hear of this.
void Engine::Impl::keep_length(SequenceId sequence) noexcept {
  if (states.has_value() && !options.record_passes) states->keep(sequence);
}

void Engine::Impl::begin_states(const PassInFlight& pass) noexcept {
  if (!states.has_value()) return;
  for (const PassPart& part : pass.parts) states->begin(part.sequence, part.role);
}

void Engine::Impl::commit_states(const PassInFlight& pass) noexcept {
  if (!states.has_value()) return;
  for (const PassPart& part : pass.parts) {
    states->commit(part.sequence, static_cast<std::uint32_t>(part.tokens.size()));
  }
}

void Engine::Impl::record(SequenceChange::Kind kind, SequenceId sequence, std::uint32_t value) {
  if (options.record_passes) changes.push_back({kind, sequence, value});
}

bool Engine::Impl::take_cancel() noexcept {
  return cancel.exchange(false, std::memory_order_relaxed);
}

void Engine::Impl::keep_within_limits() {
  const std::uint64_t excess = watch->bytes_to_give_back(monotonic_ns());
  if (excess == 0) return;
  const std::uint64_t given_back = pager->drop_residents(excess);
  decoder->set_sketched_head(nullptr);  // its units are of any tiles, all of them resident
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
  if (states.has_value()) return states->longest_kept(sequence, n_slots);
  const KvPolicyOptions& policy = options.kv_policy;
  if (policy.policy == KvPolicy::kH2o) return n_slots;  // evicted positions are computed again
  const auto can_go_on = [&](std::uint32_t n) {
    const std::uint32_t first =
        policy.policy == KvPolicy::kFull || n <= policy.window ? 0 : n - policy.window;
    return kv->holds(sequence, first, n);
  };
  if (can_go_on(n_slots)) return n_slots;
  const std::uint32_t in_sink_pages = kv_sink_pages(kv->limits()) * kKvPageSlots;
  return std::min(n_slots, in_sink_pages);
}

Status Engine::Impl::check_generates() const {
  if (!reader->spec().embeds_only) return ok_status();
  return unsupported(
      "%s: this model embeds texts alone, without an output head: it cannot generate or score; ask "
      "for embeddings",
      reader->file().path().c_str());
}

Status Engine::Impl::check_whole(const char* what) const {
  if (options.cut == nullptr) return ok_status();
  return unsupported("%s: layers of this model run in other processes; use one process", what);
}

Status Engine::Impl::check_pass_of(std::size_t n_prompt_rows) const {
  if (!prompts_are_whole() || n_prompt_rows <= rows_per_pass) return ok_status();
  if (reader->spec().bidirectional) {
    return out_of_budget(
        "%zu tokens: those of a text attend to each other in one pass of this model, and a pass "
        "has at most %u rows; use a shorter text, or more memory and rows per pass",
        n_prompt_rows, rows_per_pass);
  }
  return out_of_budget(
      "attention symmetric: %zu prompt tokens attend to each other in one pass, but a pass has at "
      "most %u rows; use a shorter prompt, or more memory and rows per pass",
      n_prompt_rows, rows_per_pass);
}

// Of the slots that the policy keeps those up to this one, unless a prompt's mask says otherwise.
VisibleSet Engine::Impl::visible_at(std::uint32_t slot, RowRole role,
                                    std::uint32_t end) const noexcept {
  const KvPolicyOptions& policy = options.kv_policy;
  const std::uint32_t prefix = slot + 1;
  if (role == RowRole::kPrompt && options.attention == AttentionKind::kChunked) {
    return {.prefix = prefix,
            .first = slot / options.prompt_mask.chunk * options.prompt_mask.chunk};
  }
  if (role == RowRole::kPrompt && options.attention == AttentionKind::kSymmetric) {
    const std::uint32_t side = options.prompt_mask.window;
    if (side == 0) return {.prefix = end};
    return {.prefix = std::min(end, prefix + side), .first = slot - std::min(slot, side)};
  }
  if (policy.policy == KvPolicy::kH2o) {  // and heavy hitters, which are not slots
    return {.prefix = prefix,
            .ancestors = 0,
            .sinks = 0,
            .first = first_recent_position(slot, policy.window)};
  }
  return visible_under(policy, slot);
}

Result<PassInFlight*> Engine::Impl::take_pass() {
  if (running) {
    return invalid_argument("a callback of a pass cannot start another pass; return first");
  }
  PassInFlight* const pass = find_pass(0);
  if (pass == nullptr) {
    return invalid_argument("%zu passes are in flight, as many as planned; end one first",
                            passes.size());
  }
  pass->id = ++last_pass;
  if (prefix_folder != nullptr) prefix_folder->begin_pass();
  return pass;
}

PassInFlight* Engine::Impl::find_pass(PassId id) noexcept {
  const auto found = std::find_if(passes.begin(), passes.end(),
                                  [id](const PassInFlight& pass) { return pass.id == id; });
  return found == passes.end() ? nullptr : &*found;
}

Status Engine::Impl::add_part(PassInFlight& pass, PassPart part) {
  part.before = kv->n_slots(part.sequence);
  QSF_ASSIGN_OR_RETURN(const Appended appended,
                       kv->append(part.sequence, static_cast<std::uint32_t>(part.tokens.size())));
  if (appended.copy.has_value()) {
    backend->copy_page(appended.copy->from_page, appended.copy->to_page);
  }
  const std::uint32_t end = kv->n_slots(part.sequence);
  const bool may_enter =
      part.role == RowRole::kPrompt || (part.role == RowRole::kGenerated && options.reuse_answers);
  std::uint32_t& n_entering = n_shareable[part.sequence];
  if (may_enter && n_entering == part.before) n_entering = end;
  const AdapterUse adapter = sequence_adapters[part.sequence];
  std::uint32_t n_outputs = 0;
  for (std::size_t i = 0; i < part.tokens.size(); ++i) {
    const std::uint32_t slot = appended.first_slot + static_cast<std::uint32_t>(i);
    const bool wants_output = part.sink != nullptr && i >= part.first_output;
    pass.rows.push_back({.sequence = part.sequence,
                         .token = part.tokens[i],
                         .position = static_cast<std::int32_t>(slot),
                         .kv_slot = slot,
                         .role = part.role,
                         .visible = visible_at(slot, part.role, end),
                         .adapter = adapter.number,
                         .adapter_scale = adapter.number == 0 ? 0.0F : adapter.scale,
                         .wants_output = wants_output});
    if (wants_output) pass.outputs.push_back({part.sink, n_outputs++});
  }
  pass.parts.push_back(part);
  return ok_status();
}

void Engine::Impl::take_back(const PassInFlight& pass) noexcept {
  for (const PassPart& part : pass.parts) truncate(part.sequence, part.before);
}

Status Engine::Impl::run_pass(PassInFlight& in_flight) {
  const std::uint64_t start = monotonic_ns();
  keep_within_limits();
  for (const PassPart& part : in_flight.parts) {
    if (part.progress == nullptr) continue;
    part.progress->pass_rows = part.tokens.size();
    part.progress->n_layers = reader->spec().n_layers;
  }
  PartSinks sinks(in_flight.outputs);
  LayerReport report = {*this, in_flight};
  RowFeed feed = {draft_model.get(), in_flight.rows};
  const bool feeds = draft_model != nullptr && draft_model->takes_rows();
  begin_states(in_flight);
  Status status = announce(in_flight);
  if (status.ok()) {
    status = decoder->run({.rows = in_flight.rows,
                           .kv = &*kv,
                           .cancel = &cancel,
                           .sink = in_flight.outputs.empty() ? nullptr : &sinks,
                           .on_layer = report_layer,
                           .on_layer_user = &report,
                           .normed = {feeds ? feed_row : nullptr, &feed}});
  }
  if (options.pass_hook.end != nullptr) options.pass_hook.end(options.pass_hook.user);
  // The pass that a cancellation stopped consumes it.
  if (status.code() == StatusCode::kCancelled || in_flight.all_cancelled) take_cancel();
  if (status.ok()) {
    commit_states(in_flight);
  } else {
    take_back(in_flight);
  }
  for (const PassPart& part : in_flight.parts) {
    if (part.progress != nullptr && status.ok()) part.progress->done_rows += part.tokens.size();
  }
  count_work(in_flight.parts, status.ok(), monotonic_ns() - start);
  return status;
}

// Tells the engines that run the other layers.
Status Engine::Impl::announce(const PassInFlight& pass) {
  if (options.pass_hook.announce == nullptr) return ok_status();
  return options.pass_hook.announce({pass.id, pass.changes, pass.rows}, options.pass_hook.user);
}

Status Engine::Impl::run_parts(std::span<const PassPart> parts) {
  QSF_ASSIGN_OR_RETURN(PassInFlight* const pass, take_pass());
  Status status;
  for (const PassPart& part : parts) {
    if (status.ok()) status = add_part(*pass, part);
  }
  return finish_parts(*pass, std::move(status));
}

Status Engine::Impl::finish_parts(PassInFlight& pass, Status added) {
  Status status = std::move(added);
  if (!status.ok()) {
    take_back(pass);
  } else if (!pass.rows.empty()) {
    pass.changes.swap(changes);
    running = true;
    status = run_pass(pass);
    running = false;
  }
  pass.clear();
  return status;
}

template <typename Run>
Status Engine::Impl::run_alone(SequenceId sequence, std::span<const TokenId> tokens,
                               LogitsSink* sink, Run run) {
  QSF_RETURN_IF_ERROR(check_whole("a part of a pass"));
  QSF_ASSIGN_OR_RETURN(PassInFlight* const pass, take_pass());
  keep_within_limits();
  running = true;
  Status status = add_part(*pass, {.sequence = sequence, .tokens = tokens, .sink = sink});
  if (status.ok()) {
    ++stats.prompt_passes;
    begin_states(*pass);
    PartSinks sinks(pass->outputs);
    status = run({.rows = pass->rows,
                  .kv = &*kv,
                  .cancel = &cancel,
                  .sink = sink == nullptr ? nullptr : &sinks});
  }
  if (status.ok()) commit_states(*pass);
  if (status.code() == StatusCode::kCancelled) take_cancel();
  running = false;
  pass->clear();
  return status;
}

Status Engine::Impl::run_part(SequenceId sequence, std::span<const TokenId> tokens,
                              std::uint32_t first, std::uint32_t last, std::span<float> hidden,
                              LogitsSink* sink) {
  return run_alone(sequence, tokens, sink,
                   [&](const Pass& pass) { return decoder->run_part(pass, first, last, hidden); });
}

Status Engine::Impl::run_to_norm(SequenceId sequence, std::span<const TokenId> tokens,
                                 const NormedRows& to) {
  return run_alone(sequence, tokens, nullptr,
                   [&](const Pass& pass) { return decoder->run_to_norm(pass, to); });
}

void Engine::Impl::add_visible(SequenceId sequence, std::uint32_t layer, std::uint32_t kv_head,
                               std::vector<std::uint32_t>& positions) const {
  const std::uint32_t next = kv->n_slots(sequence);
  if (!sparse_prefill.empty()) {
    for (const std::int32_t member : sparse_prefill[sequence].members(layer, kv_head)) {
      positions.push_back(static_cast<std::uint32_t>(member));
    }
    for (std::uint32_t slot = sparse_prefill[sequence].chunk_start(layer); slot < next; ++slot) {
      positions.push_back(slot);
    }
    return;
  }
  if (!h2o_eviction.empty()) {
    const auto members = h2o_eviction[sequence].members(layer, kv_head);
    for (const std::int32_t member : members.first(h2o_eviction[sequence].n_members(layer))) {
      positions.push_back(static_cast<std::uint32_t>(member));
    }
    std::sort(positions.begin(), positions.end());
  }
  const VisibleSet visible = visible_at(next, RowRole::kPrompt, next + 1);
  const std::uint32_t window = reader->spec().window_at(layer, next);
  const KvPolicyOptions& policy = options.kv_policy;
  const bool at_cache_position = policy.rope_reindex && visible.first > visible.sinks;
  const std::uint32_t behind_sinks = at_cache_position ? policy.sinks + policy.window - 1 : next;
  const auto add = [&](std::uint32_t first, std::uint32_t last, std::uint32_t seen_from) {
    for (std::uint32_t slot = first; slot < last; ++slot) {
      if (window == 0 || seen_from - slot < window) positions.push_back(slot);
    }
  };
  add(0, std::min(visible.sinks, visible.first), behind_sinks);
  add(visible.first, next, next);
}

}  // namespace qsf
