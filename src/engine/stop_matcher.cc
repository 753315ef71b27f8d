// SPDX-License-Identifier: MIT
//
// Matching of stop strings; the contract is in stop_matcher.h.
//
// Plain comparisons: a few stop strings of a few bytes against a piece of a few bytes.

#include "engine/stop_matcher.h"

#include <algorithm>

namespace qsf {

namespace {

bool is_continuation(char c) noexcept {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

// Moves a cut back to the beginning of the character it falls into.
std::size_t character_start(std::string_view text, std::size_t cut) noexcept {
  while (cut > 0 && cut < text.size() && is_continuation(text[cut])) --cut;
  return cut;
}

}  // namespace

StopMatcher::StopMatcher(std::span<const std::string> stops, std::size_t piece_bytes) {
  std::size_t longest = 0;
  for (const std::string& stop : stops) {
    if (stop.empty()) continue;
    stops_.push_back(stop);
    longest = std::max(longest, stop.size());
  }
  // Held back: less than the longest stop string, and up to three bytes of a character before it.
  buffer_.reserve(longest + 3 + piece_bytes);
}

std::string_view StopMatcher::push(std::string_view piece) {
  if (stopped_) return {};
  if (stops_.empty()) return piece;
  buffer_.erase(0, shown_);
  const std::size_t n_held = buffer_.size();
  buffer_.append(piece);

  for (std::size_t end = n_held + 1; end <= buffer_.size(); ++end) {
    const std::size_t n_matched = longest_stop_ending_at(end);
    if (n_matched == 0) continue;
    stopped_ = true;
    shown_ = character_start(buffer_, end - n_matched);
    buffer_.resize(shown_);
    return buffer_;
  }
  shown_ = character_start(buffer_, buffer_.size() - held_bytes());
  return std::string_view(buffer_).substr(0, shown_);
}

std::string_view StopMatcher::finish() {
  if (stopped_) return {};
  buffer_.erase(0, shown_);
  shown_ = buffer_.size();
  return buffer_;
}

std::size_t StopMatcher::longest_stop_ending_at(std::size_t end) const noexcept {
  const std::string_view text = std::string_view(buffer_).substr(0, end);
  std::size_t longest = 0;
  for (const std::string& stop : stops_) {
    if (stop.size() > longest && text.ends_with(stop)) longest = stop.size();
  }
  return longest;
}

// Returns the length of the longest end of the buffer with which a stop string begins.
std::size_t StopMatcher::held_bytes() const noexcept {
  const std::string_view text = buffer_;
  std::size_t held = 0;
  for (const std::string_view stop : stops_) {
    for (std::size_t n = std::min(stop.size() - 1, text.size()); n > held; --n) {
      if (text.ends_with(stop.substr(0, n))) held = n;
    }
  }
  return held;
}

}  // namespace qsf
