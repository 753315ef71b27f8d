// SPDX-License-Identifier: MIT
//
// Markers in a text that may still grow.

#ifndef QSF_TOOLS_SERVE_SYNTAX_MARKER_SEARCH_H_
#define QSF_TOOLS_SERVE_SYNTAX_MARKER_SEARCH_H_

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

namespace qsf_tools {

enum class MarkerFound : unsigned char {
  kNo,
  kPart,  // the text is the beginning of one, and may go on
  kYes,
};

// Whether `text` begins with the marker. An empty marker is never found.
inline MarkerFound marker_at_start(std::string_view text, std::string_view marker, bool at_end) {
  if (marker.empty()) return MarkerFound::kNo;
  if (text.starts_with(marker)) return MarkerFound::kYes;
  return !at_end && marker.starts_with(text) ? MarkerFound::kPart : MarkerFound::kNo;
}

// The same for the one of several that fits best.
inline MarkerFound marker_at_start(std::string_view text, std::span<const std::string_view> markers,
                                   bool at_end) {
  MarkerFound best = MarkerFound::kNo;
  for (const std::string_view marker : markers) {
    best = std::max(best, marker_at_start(text, marker, at_end));
  }
  return best;
}

// Finds where the blanks at a place of a growing text end, and looks at each of them once as long
// as it is asked for the same place.
class BlankSkipper {
 public:
  std::size_t end_of_blanks(std::string_view text, std::size_t from) {
    if (from != from_) from_ = end_ = from;
    end_ = std::min(text.find_first_not_of(" \t\r\n", end_), text.size());
    return end_;
  }

 private:
  std::size_t from_ = 0;
  std::size_t end_ = 0;
};

// Where the first marker in a text begins; without one, `marker` is empty, and `at` is where the
// beginning of one at the end of the text begins, or the size of the text.
struct MarkerPlace {
  std::size_t at;
  std::string_view marker;
};

inline MarkerPlace find_marker(std::string_view text, std::span<const std::string_view> markers,
                               bool at_end) {
  MarkerPlace first = {.at = text.size(), .marker = {}};
  for (const std::string_view marker : markers) {
    const std::size_t at = text.find(marker);
    if (at < first.at) first = {.at = at, .marker = marker};
  }
  if (!first.marker.empty() || at_end) return first;
  for (const std::string_view marker : markers) {
    std::size_t n_held = std::min(marker.size() - 1, text.size());
    while (!marker.starts_with(text.substr(text.size() - n_held))) --n_held;
    first.at = std::min(first.at, text.size() - n_held);
  }
  return first;
}

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_SYNTAX_MARKER_SEARCH_H_
