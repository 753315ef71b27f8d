// SPDX-License-Identifier: MIT

#include "tokenizer/added_matcher.h"

#include <algorithm>

#include "tokenizer/utf8.h"

namespace qsf {

namespace {

// Returns where the character before `position` begins.
std::size_t previous_char(std::string_view text, std::size_t position) noexcept {
  std::size_t begin = position - 1;
  while (begin > 0 && position - begin < 4 && is_utf8_continuation(text[begin])) --begin;
  return begin;
}

// A word character, as far as ASCII decides it; beyond ASCII everything but space and the general
// punctuation, symbol and CJK punctuation blocks counts, which is where \w has its members.
bool is_word_char(std::uint32_t c) noexcept {
  if (c < 0x80U) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  }
  if (is_unicode_space(c) || (c >= 0x2000U && c <= 0x206FU) || (c >= 0x20A0U && c <= 0x20CFU) ||
      (c >= 0x2190U && c <= 0x2BFFU) || (c >= 0x3000U && c <= 0x3004U) ||
      (c >= 0x3008U && c <= 0x3020U) || (c >= 0xFF00U && c <= 0xFF0FU) ||
      (c >= 0x1F000U && c <= 0x1FAFFU)) {
    return false;
  }
  return c >= 0xC0U ? c != 0xD7U && c != 0xF7U && c != 0xFFFDU
                    : c == 0xAAU || c == 0xB5U || c == 0xBAU;
}

bool touches_word(std::string_view text, std::size_t begin, std::size_t end) noexcept {
  if (begin > 0 && is_word_char(decode_utf8(text, previous_char(text, begin)).code_point))
    return true;
  return end < text.size() && is_word_char(decode_utf8(text, end).code_point);
}

}  // namespace

AddedMatcher::AddedMatcher(const SectionView& section, bool normalized) : section_(section) {
  // The section keeps the entries matched before the normaliser first.
  std::uint32_t boundary = 0;
  while (boundary < section.n_added() && (section.added(boundary).flags & kAddedNormalized) == 0) {
    ++boundary;
  }
  first_ = normalized ? boundary : 0;
  last_ = normalized ? section.n_added() : boundary;
  for (std::uint32_t i = first_; i < last_; ++i) {
    first_bytes_.set(static_cast<unsigned char>(section.added(i).text[0]));
  }
}

std::uint32_t AddedMatcher::longest_at(std::string_view text, std::size_t position,
                                       const SpecialMask* mask) const noexcept {
  std::uint32_t low = first_;
  std::uint32_t high = last_;
  std::uint32_t best = last_;
  // Invariant: the entries of [low, high) are those that begin with the `depth` bytes read so far.
  for (std::size_t depth = 0; position + depth < text.size() && low < high; ++depth) {
    const char wanted = text[position + depth];
    const auto bound = [&](std::uint32_t from, bool past) {
      std::uint32_t to = high;
      while (from < to) {
        const std::uint32_t middle = from + (to - from) / 2;
        const std::string_view entry = section_.added(middle).text;
        const auto have = entry.size() > depth ? static_cast<unsigned char>(entry[depth]) : -1;
        const auto want = static_cast<int>(static_cast<unsigned char>(wanted));
        (have < want || (past && have == want)) ? from = middle + 1 : to = middle;
      }
      return from;
    };
    low = bound(low, false);
    high = bound(low, true);
    // The shortest of the range sorts first: it is the match when nothing of it is left.
    if (low >= high || section_.added(low).text.size() != depth + 1) continue;
    if (mask == nullptr || (section_.added(low).flags & kAddedSpecial) == 0 ||
        mask->allows(position, position + depth + 1)) {
      best = low;
    }
  }
  return best;
}

std::uint32_t AddedMatcher::match_at(std::string_view text, const SpecialMask& mask,
                                     std::size_t& position) const noexcept {
  if (!first_bytes_.test(static_cast<unsigned char>(text[position]))) {
    ++position;
    return last_;
  }
  const std::uint32_t longest = longest_at(text, position, nullptr);
  if (longest == last_) {
    ++position;
    return last_;
  }
  const AddedView entry = section_.added(longest);
  const std::size_t end = position + entry.text.size();
  if ((entry.flags & kAddedSpecial) == 0 || mask.allows(position, end)) return longest;
  if (!mask.allows_any(position, end)) {
    position = end;
    return last_;
  }
  // The match crosses a border: matches inside it that the mask allows still count.
  const std::uint32_t allowed = longest_at(text, position, &mask);
  if (allowed == last_) ++position;
  return allowed;
}

void AddedMatcher::split(std::string_view text, const SpecialMask& mask,
                         std::vector<Segment>& out) const {
  const auto piece = [](std::size_t begin, std::size_t end) {
    return Piece{static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
  };
  std::size_t done = 0;
  for (std::size_t at = 0; !empty() && at < text.size();) {
    const std::uint32_t index = match_at(text, mask, at);
    if (index == last_) continue;
    const AddedView entry = section_.added(index);
    std::size_t begin = at;
    std::size_t end = at + entry.text.size();
    at = end;
    if ((entry.flags & kAddedSingleWord) != 0 && touches_word(text, begin, end)) continue;
    if ((entry.flags & kAddedLeftStrip) != 0) {
      while (begin > done) {
        const std::size_t before = previous_char(text, begin);
        if (before < done || !is_unicode_space(decode_utf8(text, before).code_point)) break;
        begin = before;
      }
    }
    if ((entry.flags & kAddedRightStrip) != 0) {
      while (end < text.size()) {
        const Utf8Char next = decode_utf8(text, end);
        if (!is_unicode_space(next.code_point)) break;
        end += next.n_bytes;
      }
    }
    begin = std::max(begin, done);
    if (done < begin) out.push_back({piece(done, begin), kNoToken});
    out.push_back({piece(begin, end), entry.id});
    done = std::max(end, done);
    at = std::max(at, done);
  }
  if (done < text.size()) out.push_back({piece(done, text.size()), kNoToken});
}

}  // namespace qsf
