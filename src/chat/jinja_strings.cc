// SPDX-License-Identifier: MIT

#include "chat/jinja_strings.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "chat/unicode_table.h"

namespace qsf::jinja {
namespace {

constexpr auto npos = std::string_view::npos;
constexpr std::uint32_t kSigma = 0x3A3;

// Appends the character at `at` in another case, with its trust; returns the offset behind it.
std::size_t append_char_case(const Text& text, std::size_t at, LetterCase to, Text& out) {
  const DecodedChar next = decode_char(text.bytes(), at);
  if (next.code_point == kNoCodePoint) {
    out.append_slice(text, at, at + next.n_bytes);
  } else {
    std::string changed;
    append_case(next.code_point, to, changed);
    out.append(changed, text.trusted_at(at));
  }
  return at + next.n_bytes;
}

// Whether a capital sigma at [at, end) ends a word, and so becomes the final small sigma.
bool is_final_sigma(std::string_view bytes, std::size_t at, std::size_t end) {
  std::size_t before = at;
  std::uint32_t c = kNoCodePoint;
  while (before > 0) {
    before = previous_char(bytes.substr(0, before), before);
    c = decode_char(bytes, before).code_point;
    if (!is_case_ignorable(c)) break;
    c = kNoCodePoint;
  }
  if (c == kNoCodePoint || !is_cased(c)) return false;
  while (end < bytes.size()) {
    const DecodedChar next = decode_char(bytes, end);
    if (!is_case_ignorable(next.code_point)) return !is_cased(next.code_point);
    end += next.n_bytes;
  }
  return true;
}

std::size_t append_char_lower(const Text& text, std::size_t at, Text& out) {
  const DecodedChar next = decode_char(text.bytes(), at);
  if (next.code_point == kSigma && is_final_sigma(text.bytes(), at, at + next.n_bytes)) {
    out.append("\xCF\x82", text.trusted_at(at));
    return at + next.n_bytes;
  }
  return append_char_case(text, at, LetterCase::kLower, out);
}

bool is_line_end(std::uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

// The parts that a text is cut into. A part may be empty, so the text's size is no bound to what
// they take; what they take once they are values is.
class Parts {
 public:
  Parts(const Heap& heap, const Text& text) : heap_(heap), text_(text) {}

  Status add(std::size_t begin, std::size_t end) {
    QSF_RETURN_IF_ERROR(heap_.check_bytes((texts_.size() + 1) * sizeof(TextNode)));
    texts_.push_back(text_.slice(begin, end));
    return ok_status();
  }
  // Returns whether the text may be cut once more.
  bool may_split(std::int64_t max_splits) const {
    return max_splits < 0 || static_cast<std::int64_t>(texts_.size()) < max_splits;
  }
  std::vector<Text> take() { return std::move(texts_); }
  std::vector<Text> take_reversed() {
    std::reverse(texts_.begin(), texts_.end());
    return std::move(texts_);
  }

 private:
  const Heap& heap_;
  const Text& text_;
  std::vector<Text> texts_;
};

Result<std::vector<Text>> split_space(const Heap& heap, const Text& text, std::int64_t max_splits) {
  Parts parts(heap, text);
  const std::string& bytes = text.bytes();
  std::size_t at = 0;
  while (true) {
    at += strip_space(std::string_view(bytes).substr(at), true, false).begin;
    if (at >= bytes.size()) return parts.take();
    if (!parts.may_split(max_splits)) {
      QSF_RETURN_IF_ERROR(parts.add(at, bytes.size()));
      return parts.take();
    }
    const std::size_t begin = at;
    while (at < bytes.size()) {
      const DecodedChar next = decode_char(bytes, at);
      if (is_space(next.code_point)) break;
      at += next.n_bytes;
    }
    QSF_RETURN_IF_ERROR(parts.add(begin, at));
  }
}

Result<std::vector<Text>> split_space_from_right(const Heap& heap, const Text& text,
                                                 std::int64_t max_splits) {
  Parts parts(heap, text);
  const std::string_view bytes = text.bytes();
  std::size_t end = bytes.size();
  while (true) {
    end = strip_space(bytes.substr(0, end), false, true).end;
    if (end == 0) break;
    if (!parts.may_split(max_splits)) {
      QSF_RETURN_IF_ERROR(parts.add(0, end));
      break;
    }
    std::size_t begin = end;
    while (begin > 0) {
      const std::size_t before = previous_char(bytes.substr(0, begin), begin);
      if (is_space(decode_char(bytes.substr(0, begin), before).code_point)) break;
      begin = before;
    }
    QSF_RETURN_IF_ERROR(parts.add(begin, end));
    end = begin;
  }
  return parts.take_reversed();
}

}  // namespace

Text strip(const Text& text, Side side, const std::string* chars) {
  const bool left = side != Side::kRight;
  const bool right = side != Side::kLeft;
  const std::string_view bytes = text.bytes();
  if (chars == nullptr) {
    const ByteRange kept = strip_space(bytes, left, right);
    return text.slice(kept.begin, kept.end);
  }
  std::set<std::string_view> listed;
  for (std::size_t at = 0; at < chars->size();) {
    const std::size_t n = decode_char(*chars, at).n_bytes;
    listed.insert(std::string_view(*chars).substr(at, n));
    at += n;
  }
  const auto is_listed = [&listed](std::string_view character) {
    return listed.find(character) != listed.end();
  };
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  while (left && begin < end) {
    const std::size_t n = decode_char(bytes, begin).n_bytes;
    if (!is_listed(bytes.substr(begin, n))) break;
    begin += n;
  }
  while (right && begin < end) {
    const std::size_t last = previous_char(bytes.substr(0, end), end);
    if (last < begin || !is_listed(bytes.substr(last, end - last))) break;
    end = last;
  }
  return text.slice(begin, end);
}

Text to_upper(const Text& text) {
  Text out;
  for (std::size_t at = 0; at < text.size();) {
    at = append_char_case(text, at, LetterCase::kUpper, out);
  }
  return out;
}

Text to_lower(const Text& text) {
  Text out;
  for (std::size_t at = 0; at < text.size();) at = append_char_lower(text, at, out);
  return out;
}

Text capitalize(const Text& text) {
  Text out;
  if (text.empty()) return out;
  std::size_t at = append_char_case(text, 0, LetterCase::kTitle, out);
  while (at < text.size()) at = append_char_lower(text, at, out);
  return out;
}

Text title_words(const Text& text) {
  Text out;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const bool cased = is_cased(decode_char(text.bytes(), at).code_point);
    at = in_word ? append_char_lower(text, at, out)
                 : append_char_case(text, at, LetterCase::kTitle, out);
    in_word = cased;
  }
  return out;
}

Text title_filter(const Text& text) {
  const auto divides = [](std::uint32_t c) {
    return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  Text out;
  const std::string& bytes = text.bytes();
  for (std::size_t at = 0; at < bytes.size();) {
    // A word or what divides words, each of which is changed alone.
    const std::size_t begin = at;
    const bool is_divider = divides(decode_char(bytes, at).code_point);
    while (at < bytes.size() && divides(decode_char(bytes, at).code_point) == is_divider) {
      at += decode_char(bytes, at).n_bytes;
    }
    const Text word = text.slice(begin, at);
    const std::size_t first = append_char_case(word, 0, LetterCase::kUpper, out);
    out.append(to_lower(word.slice(first, word.size())));
  }
  return out;
}

Result<Text> replace(const Heap& heap, const Text& text, const Text& old_text, const Text& new_text,
                     std::int64_t count) {
  const std::string_view bytes = text.bytes();
  Text out;
  std::size_t copied = 0;
  std::size_t from = 0;
  for (std::int64_t n = 0; count < 0 || n < count; ++n) {
    const std::size_t found = find_bytes(bytes, old_text.bytes(), from);
    if (found == npos) break;
    out.append_slice(text, copied, found);
    out.append(new_text);
    QSF_RETURN_IF_ERROR(heap.check_bytes(out.size()));
    copied = found + old_text.size();
    from = copied;
    if (!old_text.empty()) continue;
    // An empty text is found before each character, and at the end.
    if (found == bytes.size()) break;
    from = found + decode_char(bytes, found).n_bytes;
  }
  out.append_slice(text, copied, bytes.size());
  return out;
}

std::size_t find_last_bytes(std::string_view text, std::string_view part) {
  // Forwards in the mirrored text, where the search is linear.
  const std::string mirrored(text.rbegin(), text.rend());
  const std::string mirrored_part(part.rbegin(), part.rend());
  const std::size_t found = find_bytes(mirrored, mirrored_part, 0);
  return found == npos ? npos : text.size() - found - part.size();
}

Result<std::vector<Text>> split(const Heap& heap, const Text& text, const std::string* separator,
                                std::int64_t max_splits, bool from_right) {
  if (separator == nullptr) {
    return from_right ? split_space_from_right(heap, text, max_splits)
                      : split_space(heap, text, max_splits);
  }
  const std::string_view bytes = text.bytes();
  Parts parts(heap, text);
  if (from_right) {
    const std::string mirrored(bytes.rbegin(), bytes.rend());
    const std::string mirrored_separator(separator->rbegin(), separator->rend());
    std::size_t end = bytes.size();
    while (parts.may_split(max_splits)) {
      const std::size_t found = find_bytes(mirrored, mirrored_separator, bytes.size() - end);
      if (found == npos) break;
      const std::size_t behind = bytes.size() - found;
      QSF_RETURN_IF_ERROR(parts.add(behind, end));
      end = behind - separator->size();
    }
    QSF_RETURN_IF_ERROR(parts.add(0, end));
    return parts.take_reversed();
  }
  std::size_t begin = 0;
  while (parts.may_split(max_splits)) {
    const std::size_t found = find_bytes(bytes, *separator, begin);
    if (found == npos) break;
    QSF_RETURN_IF_ERROR(parts.add(begin, found));
    begin = found + separator->size();
  }
  QSF_RETURN_IF_ERROR(parts.add(begin, bytes.size()));
  return parts.take();
}

Result<std::vector<Text>> split_lines(const Heap& heap, const Text& text, bool keep_ends) {
  Parts lines(heap, text);
  const std::string& bytes = text.bytes();
  std::size_t begin = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const DecodedChar next = decode_char(bytes, at);
    const std::size_t end = at;
    at += next.n_bytes;
    if (!is_line_end(next.code_point)) continue;
    if (next.code_point == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    QSF_RETURN_IF_ERROR(lines.add(begin, keep_ends ? at : end));
    begin = at;
  }
  if (begin < bytes.size()) QSF_RETURN_IF_ERROR(lines.add(begin, bytes.size()));
  return lines.take();
}

std::int64_t count_occurrences(std::string_view text, std::string_view part) {
  if (part.empty()) return static_cast<std::int64_t>(count_chars(text)) + 1;
  std::int64_t n = 0;
  for (std::size_t at = find_bytes(text, part, 0); at != npos;
       at = find_bytes(text, part, at + part.size())) {
    ++n;
  }
  return n;
}

}  // namespace qsf::jinja
