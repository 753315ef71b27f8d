// SPDX-License-Identifier: MIT

#include "engine/speculation.h"

#include <algorithm>

#include "base/check.h"
#include "memory/arena.h"

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
  if (spec.embeds_only) return "this model generates no text";
  return nullptr;
}

std::uint32_t chosen_drafts(const EngineOptions& options, const ModelSpec& spec) noexcept {
  if (options.speculation == SpeculationKind::kOff) return options.max_drafts;
  const std::uint32_t most = options.max_drafts != 0 ? options.max_drafts : kDefaultDrafts;
  if (options.speculation == SpeculationKind::kLookup) return most;
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
                         std::uint32_t n_vocab, MutableByteSpan region, std::span<float> logits)
    : max_drafts_(options.max_drafts),
      n_vocab_(n_vocab),
      always_drafts_(options.speculation == SpeculationKind::kLookup),
      logits_(logits),
      times_(options.n_sequences + options.max_drafts) {
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

void Speculation::set_key(SequenceId sequence, const std::string* key) {
  SharedTextView& others = sequences_[sequence].others;
  if (key == nullptr || !shared_.has_value()) return others.close();
  others.open(*shared_, *key);
}

std::uint32_t Speculation::draft(SequenceId sequence, std::span<const TokenId> text, TokenId last,
                                 const DraftRequest& request, std::span<TokenId> draft) noexcept {
  QSF_DCHECK(request.most <= draft.size());
  Sequence& of = sequences_[sequence];
  of.drafter.follow(text);
  of.drafter.append(last);
  of.outcome = {.match_tokens = of.drafter.match_tokens(),
                .n_undrafted = static_cast<double>(request.n_tokens)};
  of.first_row = request.n_beside + 1;
  std::uint32_t n = std::min(request.most, max_drafts_);
  if (!always_drafts_) {
    const PassTimes times = times_.from(of.first_row);
    const std::size_t n_timed = std::min<std::size_t>(times.size(), n + 1U);
    n = n_timed == 0 ? 0
                     : of.length.n_tokens(of.outcome.match_tokens, times.first(n_timed),
                                          of.outcome.n_undrafted);
  }
  of.outcome.n_drafted = of.drafter.draft(draft.first(n));
  return of.outcome.n_drafted;
}

void Speculation::learn(SequenceId sequence, std::uint32_t n_accepted) noexcept {
  Sequence& of = sequences_[sequence];
  of.outcome.n_accepted = n_accepted;
  const PassTimes times = times_.from(of.first_row);
  if (times.size() > of.outcome.n_drafted) of.length.update(of.outcome, times);
}

}  // namespace qsf
