// SPDX-License-Identifier: MIT

#include "engine/speculation.h"

#include <algorithm>

#include "base/check.h"
#include "memory/arena.h"
#include "platform/clock.h"

namespace qsf {
namespace {

// Rows that are free where weights are read from the disk: 16 and more with AVX2.
constexpr std::uint32_t kDefaultDrafts = 15;
constexpr std::uint64_t kBudgetShare = 32;

DrafterOptions drafter_options(std::uint32_t max_context) noexcept {
  return {.capacity_tokens = std::min(max_context, kMaxDraftText)};
}

std::uint64_t bytes_of_sequence(std::uint32_t max_context) noexcept {
  return align_up(Drafter::region_bytes(drafter_options(max_context)), kRegionAlign);
}

}  // namespace

const char* speculation_obstacle(const EngineOptions& options, const ModelSpec& spec) noexcept {
  if (spec.has_state()) return "this model has layers with a state that holds every token";
  if (options.kv_policy.policy == KvPolicy::kH2o) {
    return "kv policy h2o chooses positions by the attention of every row";
  }
  if (options.attention == AttentionKind::kSparsePrefill) {
    return "attention h2o chooses positions by the attention of every row";
  }
  if (options.layer_hook.see != nullptr) return "a hook sees every row";
  if (spec.embeds_only) return "this model generates no text";
  return nullptr;
}

std::uint32_t chosen_drafts(const EngineOptions& options, const ModelSpec& spec) noexcept {
  if (options.speculation == SpeculationKind::kOff) return options.max_drafts;
  const std::uint32_t most = options.max_drafts != 0 ? options.max_drafts : kDefaultDrafts;
  if (options.speculation != SpeculationKind::kAuto) return most;
  if (speculation_obstacle(options, spec) != nullptr) return 0;
  if (options.ram_budget_bytes == 0) return most;
  const std::uint64_t row_bytes = std::uint64_t{spec.n_vocab} * sizeof(float);
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(most, options.ram_budget_bytes / kBudgetShare / row_bytes));
}

std::uint64_t Speculation::region_bytes(const EngineOptions& options,
                                        std::uint32_t max_context) noexcept {
  const std::uint64_t shared = options.prefix_cache ? SharedTexts::region_bytes({}) : 0;
  return options.n_sequences * bytes_of_sequence(max_context) + shared;
}

Speculation::Speculation(const EngineOptions& options, std::uint32_t max_context,
                         std::uint32_t n_vocab, MutableByteSpan region, std::span<float> logits,
                         DraftModel* model)
    : max_drafts_(options.max_drafts),
      n_vocab_(n_vocab),
      always_drafts_(options.speculation != SpeculationKind::kAuto),
      logits_(logits),
      times_(options.n_sequences + options.max_drafts),
      model_(model),
      model_times_(options.max_drafts + 1) {
  QSF_CHECK(max_drafts_ > 0 && logits.size() >= std::size_t{max_drafts_} * n_vocab);
  QSF_CHECK(region.size() >= region_bytes(options, max_context));
  const std::size_t n_bytes = bytes_of_sequence(max_context);
  sequences_.reserve(options.n_sequences);
  for (std::uint32_t i = 0; i < options.n_sequences; ++i) {
    sequences_.emplace_back(drafter_options(max_context), region.subspan(i * n_bytes, n_bytes));
  }
  if (!options.prefix_cache) return;
  shared_.emplace(SharedTextsOptions{}, region.subspan(options.n_sequences * n_bytes));
  for (Sequence& sequence : sequences_) sequence.drafter.set_second_source(&sequence.others);
}

void Speculation::begin(SequenceId sequence) noexcept {
  sequences_[sequence].length = DraftLength();
  if (model_ != nullptr) model_->begin(sequence);
}

void Speculation::set_key(SequenceId sequence, const std::string* key) {
  if (model_ != nullptr) model_->set_key(sequence, key);
  SharedTextView& others = sequences_[sequence].others;
  if (key == nullptr || !shared_.has_value()) return others.close();
  others.open(*shared_, *key);
}

Speculation::Choice Speculation::choose(const DraftLength& length, std::uint32_t match_tokens,
                                        PassTimes times, double n_undrafted) noexcept {
  if (match_tokens == 0 || times.empty()) return {};
  const std::uint32_t n = length.n_tokens(match_tokens, times, n_undrafted);
  return {n, n == 0 ? 0.0 : length.rate(match_tokens, n, times, n_undrafted)};
}

// What a text is ahead of the model's rows is computed once for all drafts to come: each pays a
// share of it.
std::uint64_t Speculation::investment_ns(const DraftTimes& times,
                                         const DraftText& text) const noexcept {
  constexpr std::uint32_t kMostDrafts = 64;
  return times.follow_ns / std::clamp<std::uint32_t>(text.n_left, 1, kMostDrafts);
}

Speculation::Choice Speculation::choose_model(SequenceId sequence, const DraftText& text,
                                              PassTimes times, double n_undrafted) noexcept {
  if (times.empty()) return {};
  const DraftTimes of_model = model_->times_of(sequence, text);
  std::uint64_t drafting_ns = investment_ns(of_model, text) + of_model.first_ns;
  model_times_[0] = times[0];
  for (std::size_t k = 1; k < times.size(); ++k) {
    model_times_[k] = times[k] + drafting_ns;
    drafting_ns += of_model.next_ns;
  }
  return choose(model_length_, DraftLength::kOfModel, std::span(model_times_).first(times.size()),
                n_undrafted);
}

std::uint32_t Speculation::draft_by_model(SequenceId sequence, const DraftText& text,
                                          const DraftCalls& calls,
                                          std::span<TokenId> draft) noexcept {
  const DraftTimes expected = model_->times_of(sequence, text);
  const std::uint64_t start = monotonic_ns();
  const std::uint32_t n = model_->draft(sequence, text, calls, draft);
  const std::uint64_t ns = monotonic_ns() - start;
  model_drafts_.ns += ns;
  DraftOutcome& outcome = sequences_[sequence].outcome;
  outcome.match_tokens = DraftLength::kOfModel;
  outcome.drafting_ns = ns - std::min(ns, expected.follow_ns) + investment_ns(expected, text);
  return n;
}

std::uint32_t Speculation::draft(SequenceId sequence, const DraftText& text,
                                 const DraftRequest& request, const DraftCalls& calls,
                                 std::span<TokenId> draft) noexcept {
  QSF_DCHECK(request.most <= draft.size());
  Sequence& of = sequences_[sequence];
  of.drafter.follow(text.tokens);
  of.drafter.append(text.last);
  of.match_tokens = of.drafter.match_tokens();
  of.outcome = {.match_tokens = of.match_tokens,
                .n_undrafted = static_cast<double>(request.n_tokens)};
  of.first_row = request.n_beside + 1;
  const bool has_model = model_ != nullptr && model_->follows(sequence, text);
  std::uint32_t n = std::min(request.most, max_drafts_);
  bool by_model = false;
  if (always_drafts_) {
    by_model = has_model && (of.match_tokens == 0 || model_length_.chance(DraftLength::kOfModel) >=
                                                         of.length.chance(of.match_tokens));
  } else {
    const PassTimes times = times_.from(of.first_row);
    const PassTimes allowed = times.first(std::min<std::size_t>(times.size(), n + 1U));
    const double n_undrafted = of.outcome.n_undrafted;
    const Choice copied = choose(of.length, of.match_tokens, allowed, n_undrafted);
    const Choice computed =
        has_model ? choose_model(sequence, text, allowed, n_undrafted) : Choice{};
    by_model = computed.rate > copied.rate;
    n = by_model ? computed.n_tokens : copied.n_tokens;
  }
  of.outcome.n_drafted = by_model ? draft_by_model(sequence, text, calls, draft.first(n))
                                  : of.drafter.draft(draft.first(n));
  return of.outcome.n_drafted;
}

void Speculation::learn(SequenceId sequence, std::uint32_t n_accepted) noexcept {
  Sequence& of = sequences_[sequence];
  of.outcome.n_accepted = n_accepted;
  const bool by_model = of.outcome.match_tokens == DraftLength::kOfModel;
  if (by_model) {
    model_drafts_.n_drafted += of.outcome.n_drafted;
    model_drafts_.n_accepted += n_accepted;
  }
  const PassTimes times = times_.from(of.first_row);
  if (times.size() <= of.outcome.n_drafted) return;
  // Whoever did not draft has cost nothing.
  const DraftOutcome of_model = {.match_tokens = DraftLength::kOfModel};
  const DraftOutcome of_match = {.match_tokens = of.match_tokens};
  if (model_ != nullptr) model_length_.update(by_model ? of.outcome : of_model, times);
  of.length.update(by_model ? of_match : of.outcome, times);
}

}  // namespace qsf
