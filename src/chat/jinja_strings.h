// SPDX-License-Identifier: MIT
//
// What Python's str does, over text with trust: the common ground of filters and methods.

#ifndef QSF_CHAT_JINJA_STRINGS_H_
#define QSF_CHAT_JINJA_STRINGS_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/jinja_heap.h"
#include "chat/jinja_text.h"

namespace qsf::jinja {

enum class Side : std::uint8_t { kBoth, kLeft, kRight };

// Strips white space, or the characters of `chars` where it is not null.
Text strip(const Text& text, Side side, const std::string* chars);

Text to_upper(const Text& text);
Text to_lower(const Text& text);
Text capitalize(const Text& text);
// str.title(): a word begins where a cased character follows one that is not.
Text title_words(const Text& text);
// Jinja's filter title: a word begins after space and ( [ { < -.
Text title_filter(const Text& text);

// Replaces the first `count` occurrences, all where it is negative.
// Fails  kUnsupported when the result is too large
Result<Text> replace(const Heap& heap, const Text& text, const Text& old_text, const Text& new_text,
                     std::int64_t count);

// Splits at `separator`, at runs of white space where it is null; at most `max_splits` times where
// that is not negative, counted from the right with `from_right`.
// Fails  kUnsupported when the parts are too many
Result<std::vector<Text>> split(const Heap& heap, const Text& text, const std::string* separator,
                                std::int64_t max_splits, bool from_right);

// Fails  kUnsupported when the lines are too many
Result<std::vector<Text>> split_lines(const Heap& heap, const Text& text, bool keep_ends);

// How many times `part` occurs without overlap; between all characters where it is empty.
std::int64_t count_occurrences(std::string_view text, std::string_view part);

// Returns the last offset of `part`, npos when there is none.
std::size_t find_last_bytes(std::string_view text, std::string_view part);

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_STRINGS_H_
