// SPDX-License-Identifier: MIT
//
// What draft models that are blocks for multi-token prediction do otherwise: row i of a block is
// made of the model's row i behind its final norm, and of token i + 1.

#include <algorithm>

#include "base/ranges.h"
#include "engine/draft_model.h"

namespace qsf {

void DraftModel::keep_last_row(std::uint32_t row, std::span<const float> values, void* user) {
  const auto& draft = *static_cast<const DraftModel*>(user);
  if (row + 1 == draft.rows_.size()) ranges::copy(values, draft.drafted_row_.begin());
}

// Keeps the block's rows of the model's before a position.
void DraftModel::keep_before(SequenceId sequence, std::uint32_t position) noexcept {
  if (next_position(sequence) <= position) return;
  const std::uint32_t first = sequences_[sequence].first_position;
  truncate(sequence, position - std::min(position, first));
}

// Returns the position of the first model's row whose block row is missing. Where those between are
// not kept any more, the block's rows begin anew.
std::uint32_t DraftModel::first_missing(SequenceId sequence) noexcept {
  const std::uint32_t begin = hidden_->begin(sequence);
  if (kv_->n_slots(sequence) == 0 || next_position(sequence) < begin) {
    kv_->truncate(sequence, 0);
    sequences_[sequence].first_position = begin;
  }
  return next_position(sequence);
}

void DraftModel::take_row(std::span<const Row> rows, std::uint32_t i,
                          std::span<const float> values) noexcept {
  const Row& row = rows[i];
  const SequenceId sequence = row.sequence;
  const auto position = static_cast<std::uint32_t>(row.position);
  if (failed_ || position >= context_) return;
  const bool is_first = i == 0 || rows[i - 1].sequence != sequence;
  if (is_first) {
    hidden_->cut(sequence, position);
    keep_before(sequence, position);
  }
  TokenId& token = tokens_of(sequence)[position];
  if (token != row.token) keep_before(sequence, std::max(position, 1U) - 1);
  token = row.token;
  // Of drafted rows it is not known yet which ones stay: they find room together.
  const bool generates = row.role == RowRole::kGenerated;
  const std::uint32_t n_wanted = is_first && generates ? options_.max_drafts + 1 : 1;
  if (hidden_->n_free(sequence) < n_wanted) compute_known(sequence);
  hidden_->add(sequence, position, values);
}

// Computes the rows that are kept but for the newest, whose next token is not known, and makes room
// for others.
void DraftModel::compute_known(SequenceId sequence) noexcept {
  const std::uint32_t last = hidden_->end(sequence) - 1;
  sequences_[sequence].last_use = ++n_uses_;
  for (std::uint32_t next = first_missing(sequence); next < last;) {
    const std::uint32_t n = std::min(last - next, rows_per_pass());
    if (!run(sequence, n, RowRole::kPrompt, false, hidden_->rows(sequence, next, n))) break;
    next += n;
  }
  hidden_->drop_before(sequence, last);
}

// Computes what is missing of a text, its last token with logits.
bool DraftModel::follow_rows(SequenceId sequence, const DraftText& text,
                             const DraftCalls& calls) noexcept {
  const auto n_text = static_cast<std::uint32_t>(text.tokens.size());
  const std::span<TokenId> tokens = tokens_of(sequence);
  const std::uint32_t seen =
      kv_->n_slots(sequence) == 0
          ? hidden_->begin(sequence)
          : std::min(hidden_->begin(sequence), sequences_[sequence].first_position);
  const std::span<const TokenId> rest = text.tokens.subspan(std::min(seen, n_text));
  const auto differ =
      std::mismatch(rest.begin(), rest.end(), tokens.begin() + (n_text - rest.size()));
  const auto n_same = static_cast<std::uint32_t>(differ.first - text.tokens.begin());
  hidden_->cut(sequence, n_same);
  keep_before(sequence, std::max(n_same, 1U) - 1);
  ranges::copy(text.tokens, tokens.begin());
  tokens[n_text] = text.last;
  if (hidden_->end(sequence) != n_text) return false;
  for (std::uint32_t next = first_missing(sequence); next < n_text;) {
    if (calls.is_cancelled()) return false;
    const bool few = n_text - next <= options_.max_drafts + 1;
    const std::uint32_t n = std::min(n_text - next, rows_per_pass());
    if (!run(sequence, n, few ? RowRole::kGenerated : RowRole::kPrompt, next + n == n_text,
             hidden_->rows(sequence, next, n))) {
      return false;
    }
    next += n;
  }
  return true;
}

}  // namespace qsf
