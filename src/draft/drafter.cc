// SPDX-License-Identifier: MIT

#include "draft/drafter.h"

#include <algorithm>

#include "base/check.h"

namespace qsf {

std::uint32_t OwnText::copy_to(std::span<std::uint32_t> draft) const noexcept {
  const SuffixMatch match = automaton_.match();
  if (match.length == 0) return 0;
  const std::span<const std::uint32_t> behind = automaton_.text().subspan(match.next);
  const bool text_is_kept = automaton_.text().size() == automaton_.n_tokens();
  for (std::size_t i = 0; i < draft.size(); ++i) {
    if (i < behind.size()) {
      draft[i] = behind[i];
    } else if (text_is_kept) {
      draft[i] = draft[i - behind.size()];
    } else {
      return static_cast<std::uint32_t>(i);
    }
  }
  return static_cast<std::uint32_t>(draft.size());
}

Drafter::Drafter(const DrafterOptions& options, MutableByteSpan region)
    : own_(options.capacity_tokens, region), min_match_tokens_(options.min_match_tokens) {
  QSF_CHECK(min_match_tokens_ > 0);
}

void Drafter::append(std::uint32_t token) noexcept {
  own_.append(token);
  if (second_ != nullptr) second_->append(token);
}

void Drafter::append(std::span<const std::uint32_t> tokens) noexcept {
  for (const std::uint32_t token : tokens) append(token);
}

void Drafter::truncate(std::uint32_t n_tokens) noexcept {
  own_.truncate(n_tokens);
  if (second_ != nullptr) second_->truncate(n_tokens);
}

void Drafter::follow(std::span<const std::uint32_t> text) noexcept {
  const std::span<const std::uint32_t> kept = own_.text();
  const auto differ = std::mismatch(kept.begin(), kept.end(), text.begin(), text.end());
  const auto n_alike = static_cast<std::size_t>(differ.first - kept.begin());
  const std::size_t n_same =
      n_alike == kept.size() ? std::min<std::size_t>(n_tokens(), text.size()) : n_alike;
  if (n_same < n_tokens()) truncate(static_cast<std::uint32_t>(n_same));
  append(text.subspan(n_same));
}

const DraftSource& Drafter::best_source() const noexcept {
  if (second_ != nullptr && second_->match_tokens() > own_.match_tokens()) return *second_;
  return own_;
}

std::uint32_t Drafter::match_tokens() const noexcept {
  const std::uint32_t n = best_source().match_tokens();
  return n >= min_match_tokens_ ? n : 0;
}

std::uint32_t Drafter::draft(std::span<std::uint32_t> tokens) const noexcept {
  return match_tokens() == 0 ? 0 : best_source().copy_to(tokens);
}

}  // namespace qsf
