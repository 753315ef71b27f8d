// SPDX-License-Identifier: MIT

#include "draft/shared_texts.h"

#include <algorithm>

#include "base/check.h"
#include "base/ranges.h"

namespace qsf {

std::uint64_t SharedTexts::region_bytes(const SharedTextsOptions& options) noexcept {
  return options.n_keys * SuffixAutomaton::region_bytes(options.tokens_per_key);
}

SharedTexts::SharedTexts(const SharedTextsOptions& options, MutableByteSpan region) {
  QSF_CHECK(options.n_keys > 0 && region.size() >= region_bytes(options));
  const std::size_t n_bytes = SuffixAutomaton::region_bytes(options.tokens_per_key);
  slots_.reserve(options.n_keys);
  for (std::uint32_t i = 0; i < options.n_keys; ++i) {
    slots_.emplace_back(options.tokens_per_key, region.subspan(i * n_bytes, n_bytes));
  }
}

SharedTexts::Slot* SharedTexts::find(std::string_view key) noexcept {
  const auto found = ranges::find_if(
      slots_, [key](const Slot& slot) { return slot.last_use != 0 && slot.key == key; });
  return found == slots_.end() ? nullptr : &*found;
}

void SharedTexts::add(std::string_view key, std::span<const std::uint32_t> text) {
  Slot* slot = find(key);
  if (slot == nullptr) {
    slot = &*ranges::min_element(slots_, {}, &Slot::last_use);
    slot->key = key;
    slot->automaton.clear();
    ++slot->epoch;
  }
  slot->last_use = ++n_uses_;
  SuffixAutomaton& automaton = slot->automaton;
  if (text.size() + 1 > automaton.capacity_tokens() - automaton.n_tokens()) {
    automaton.clear();
    ++slot->epoch;
  }
  for (const std::uint32_t token : text) {
    if (automaton.n_tokens() + 1 >= automaton.capacity_tokens()) break;
    automaton.append(token);
  }
  automaton.append(kSeparator);
}

void SharedTextView::open(SharedTexts& texts, std::string_view key) {
  texts_ = &texts;
  key_ = key;
  slot_ = nullptr;
  place_ = {};
}

const SuffixAutomaton* SharedTextView::seen() const noexcept {
  if (texts_ == nullptr || slot_ == nullptr || slot_->epoch != epoch_) return nullptr;
  return &slot_->automaton;
}

void SharedTextView::append(std::uint32_t token) noexcept {
  if (texts_ == nullptr) return;
  if (seen() == nullptr) {
    slot_ = texts_->find(key_);
    if (slot_ == nullptr) return;
    epoch_ = slot_->epoch;
    place_ = {};
  }
  place_ = slot_->automaton.follow(place_, token);
}

void SharedTextView::truncate(std::uint32_t) noexcept {
  place_ = {};
}

std::uint32_t SharedTextView::match_tokens() const noexcept {
  return seen() == nullptr ? 0 : place_.length;
}

std::uint32_t SharedTextView::copy_to(std::span<std::uint32_t> draft) const noexcept {
  const SuffixAutomaton* const automaton = seen();
  if (automaton == nullptr) return 0;
  const SuffixMatch match = automaton->match_at(place_);
  if (match.length == 0) return 0;
  const std::span<const std::uint32_t> behind = automaton->text().subspan(match.next);
  const std::size_t n = std::min(draft.size(), behind.size());
  const auto end = std::find(behind.begin(), behind.begin() + static_cast<std::ptrdiff_t>(n),
                             SharedTexts::kSeparator);
  std::copy(behind.begin(), end, draft.begin());
  return static_cast<std::uint32_t>(end - behind.begin());
}

}  // namespace qsf
