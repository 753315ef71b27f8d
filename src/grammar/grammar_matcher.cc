// SPDX-License-Identifier: MIT
//
// GrammarMatcher: one text under a grammar, and the mask of its next token.

#include "base/check.h"
#include "base/ranges.h"
#include "grammar/grammar_engine.h"
#include "grammar/token_mask.h"

namespace qsf {

namespace {

void set_bit(std::span<std::uint32_t> mask, std::uint32_t token, bool value) noexcept {
  std::uint32_t& word = mask[token / 32];
  const std::uint32_t bit = 1U << token % 32;
  word = value ? word | bit : word & ~bit;
}

}  // namespace

GrammarMatcher::GrammarMatcher(std::shared_ptr<Grammar> grammar, std::string_view trigger,
                               std::span<const std::uint32_t> end_tokens)
    : grammar_(std::move(grammar)),
      engine_(grammar_->engine_),
      automaton_(*grammar_->automaton_),
      trigger_(trigger),
      fallback_(trigger.size(), 0),
      end_tokens_(end_tokens.begin(), end_tokens.end()) {
  for (std::size_t i = 1, n = 0; i < trigger_.size(); ++i) {
    while (n > 0 && trigger_[i] != trigger_[n]) n = fallback_[n - 1];
    if (trigger_[i] == trigger_[n]) ++n;
    fallback_[i] = static_cast<std::uint32_t>(n);
  }
  {
    const std::lock_guard lock(engine_.mutex_);
    automaton_.hold(&state_);
  }
  reset();
}

GrammarMatcher::~GrammarMatcher() {
  const std::lock_guard lock(engine_.mutex_);
  automaton_.release(&state_);
}

void GrammarMatcher::reset() {
  const std::lock_guard lock(engine_.mutex_);
  state_ = automaton_.start();
  trigger_position_ = 0;
  waiting_ = !trigger_.empty();
  ended_ = false;
}

bool GrammarMatcher::is_end(std::uint32_t token) const noexcept {
  const auto holds = [token](std::span<const std::uint32_t> ids) {
    return ranges::find(ids, token) != ids.end();
  };
  return holds(end_tokens_) || holds(engine_.vocabulary_.end_tokens());
}

// The bytes of a token, valid until the next call; none where a grammar never allows it.
std::string_view GrammarMatcher::bytes_of(std::uint32_t token) {
  const TokenTexts& texts = engine_.vocabulary_.texts();
  std::string& bytes = engine_.token_bytes_;
  bytes.clear();
  if (token >= engine_.vocabulary_.n_tokens()) return bytes;
  if (!waiting_ && texts.kind(token) != TokenTexts::Kind::kText) return bytes;
  texts.append(token, waiting_, bytes);
  return bytes;
}

// Goes on with the trigger; returns the bytes up to its end, or all of them without one.
std::size_t GrammarMatcher::match_trigger(std::string_view bytes,
                                          std::size_t& position) const noexcept {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    while (position > 0 && bytes[i] != trigger_[position]) position = fallback_[position - 1];
    if (bytes[i] == trigger_[position]) ++position;
    if (position == trigger_.size()) return i + 1;
  }
  return bytes.size();
}

// The state behind `bytes`, or none.
std::optional<StateId> GrammarMatcher::state_behind(std::string_view bytes) {
  if (bytes.size() > kMaxMaskedBytes) return std::nullopt;
  automaton_.clear_overflow();
  StateId state = state_;
  for (const char byte : bytes) {
    state = automaton_.next_byte(state, static_cast<std::uint8_t>(byte));
    if (state == kDeadState) return std::nullopt;
  }
  return state;
}

bool GrammarMatcher::allows_locked(std::uint32_t token) {
  if (ended_) return false;
  if (!waiting_) {
    if (is_end(token)) return automaton_.can_end(state_);
    const std::string_view bytes = bytes_of(token);
    return !bytes.empty() && state_behind(bytes).has_value();
  }
  if (is_end(token)) return true;
  const std::string_view bytes = bytes_of(token);
  std::size_t position = trigger_position_;
  const std::size_t n = match_trigger(bytes, position);
  return position < trigger_.size() || state_behind(bytes.substr(n)).has_value();
}

bool GrammarMatcher::allows(std::uint32_t token) {
  const std::lock_guard lock(engine_.mutex_);
  return allows_locked(token);
}

Status GrammarMatcher::accept(std::uint32_t token) {
  const std::lock_guard lock(engine_.mutex_);
  if (!allows_locked(token)) {
    if (automaton_.overflowed()) return too_ambiguous_error();
    return invalid_argument("grammar: token %u may not come next", token);
  }
  if (is_end(token)) {
    ended_ = true;
    return ok_status();
  }
  std::string_view bytes = bytes_of(token);
  if (waiting_) {
    bytes.remove_prefix(match_trigger(bytes, trigger_position_));
    if (trigger_position_ < trigger_.size()) return ok_status();
  }
  const std::optional<StateId> behind = state_behind(bytes);
  QSF_CHECK(behind.has_value());
  state_ = *behind;
  waiting_ = false;
  return ok_status();
}

bool GrammarMatcher::can_end() {
  const std::lock_guard lock(engine_.mutex_);
  return waiting_ || ended_ || automaton_.can_end(state_);
}

bool GrammarMatcher::is_finished() {
  const std::lock_guard lock(engine_.mutex_);
  return ended_ || (!waiting_ && automaton_.can_end(state_) && automaton_.items(state_).empty());
}

Status GrammarMatcher::fill_mask(std::span<std::uint32_t> mask) {
  QSF_CHECK(mask.size() >= mask_words(engine_.vocabulary_.n_tokens()));
  const std::lock_guard lock(engine_.mutex_);
  QSF_RETURN_IF_ERROR(fill_locked(mask));
  if (ranges::any_of(mask, [](std::uint32_t word) { return word != 0; })) return ok_status();
  return not_found("grammar: no token of the vocabulary may come next");
}

Status GrammarMatcher::fill_locked(std::span<std::uint32_t> mask) {
  const TokenVocabulary& vocabulary = engine_.vocabulary_;
  const std::size_t n_words = mask_words(vocabulary.n_tokens());
  ranges::fill(mask.subspan(n_words), 0);
  if (waiting_ || ended_) {
    ranges::fill(mask.first(n_words), 0);
    for (std::uint32_t token = 0; token < vocabulary.n_tokens(); ++token) {
      if (allows_locked(token)) set_bit(mask, token, true);
    }
    return ok_status();
  }
  const MaskSlot known = automaton_.mask(state_);
  if (known != kNoMask) {
    engine_.masks_->touch(known);
    ranges::copy(engine_.masks_->words(known), mask.begin());
  } else {
    TokenMaskMaker maker(automaton_, vocabulary, mask.first(n_words));
    QSF_RETURN_IF_ERROR(maker.make(state_));
    if (automaton_.can_end(state_)) {
      for (const std::uint32_t token : vocabulary.end_tokens()) set_bit(mask, token, true);
    }
    const MaskSlot slot = engine_.masks_->take(&automaton_, state_);
    automaton_.set_mask(state_, slot);
    ranges::copy(mask.first(n_words), engine_.masks_->words(slot).begin());
  }
  for (const std::uint32_t token : end_tokens_) {
    if (token / 32 < mask.size()) set_bit(mask, token, automaton_.can_end(state_));
  }
  return ok_status();
}

}  // namespace qsf
