// SPDX-License-Identifier: MIT

#include "chat/jinja_text.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/utf8_text.h"
#include "chat/jinja_value.h"

namespace qsf::jinja {
namespace {

constexpr auto kNotInText = std::string_view::npos;

}  // namespace

std::size_t Text::run_of(std::size_t offset) const {
  const auto run = std::upper_bound(
      runs_.begin(), runs_.end(), offset,
      [](std::size_t at, const TrustRun& candidate) { return at < candidate.end; });
  return static_cast<std::size_t>(run - runs_.begin());
}

bool Text::trusted_at(std::size_t offset) const {
  return runs_[run_of(offset)].trusted;
}

void Text::append(std::string_view bytes, bool trusted) {
  if (bytes.empty()) return;
  bytes_.append(bytes);
  if (!runs_.empty() && runs_.back().trusted == trusted) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), trusted});
  }
}

void Text::append_slice(const Text& other, std::size_t begin, std::size_t end) {
  if (begin >= end) return;
  for (std::size_t run = other.run_of(begin); begin < end; ++run) {
    const std::size_t stop = std::min(other.runs_[run].end, end);
    append(std::string_view(other.bytes_).substr(begin, stop - begin), other.runs_[run].trusted);
    begin = stop;
  }
}

Text Text::slice(std::size_t begin, std::size_t end) const {
  Text part;
  part.append_slice(*this, begin, end);
  return part;
}

DecodedChar decode_char(std::string_view bytes, std::size_t offset) {
  const std::size_t n = utf8_char_bytes(bytes.substr(offset));
  if (n == 0) return {kNoCodePoint, 1};
  const auto lead = static_cast<unsigned char>(bytes[offset]);
  if (n == 1) return {lead, 1};
  std::uint32_t code_point = lead & (0x7FU >> n);
  for (std::size_t i = 1; i < n; ++i) {
    code_point = code_point << 6U | (static_cast<unsigned char>(bytes[offset + i]) & 0x3FU);
  }
  return {code_point, n};
}

std::size_t previous_char(std::string_view bytes, std::size_t offset) {
  for (std::size_t back = 2; back <= 4 && back <= offset; ++back) {
    if (utf8_char_bytes(bytes.substr(offset - back, back)) == back) return offset - back;
  }
  return offset - 1;
}

std::size_t count_chars(std::string_view bytes) {
  std::size_t n = 0;
  for (std::size_t at = 0; at < bytes.size(); ++n) at += decode_char(bytes, at).n_bytes;
  return n;
}

std::size_t char_offset(std::string_view bytes, std::size_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < bytes.size(); --index) at += decode_char(bytes, at).n_bytes;
  return at;
}

void append_utf8(std::uint32_t code_point, std::string& out) {
  const auto put = [&out](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0U | code_point >> 6U);
    put(0x80U | (code_point & 0x3FU));
  } else if (code_point < 0x10000) {
    put(0xE0U | code_point >> 12U);
    put(0x80U | (code_point >> 6U & 0x3FU));
    put(0x80U | (code_point & 0x3FU));
  } else {
    put(0xF0U | code_point >> 18U);
    put(0x80U | (code_point >> 12U & 0x3FU));
    put(0x80U | (code_point >> 6U & 0x3FU));
    put(0x80U | (code_point & 0x3FU));
  }
}

bool is_space(std::uint32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

ByteRange strip_space(std::string_view bytes, bool left, bool right) {
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  while (left && begin < end) {
    const DecodedChar next = decode_char(bytes, begin);
    if (!is_space(next.code_point)) break;
    begin += next.n_bytes;
  }
  while (right && begin < end) {
    const std::size_t last = previous_char(bytes.substr(0, end), end);
    if (!is_space(decode_char(bytes.substr(0, end), last).code_point)) break;
    end = last;
  }
  return {begin, end};
}

namespace {

bool is_line_end(std::uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

// The parts of a text. Parts may be empty, so their memory is bounded by the size that they will
// have as values, not by the size of the text.
class Parts {
 public:
  Parts(const Heap& heap, const Text& text) : heap_(heap), text_(text) {}

  Status add(std::size_t begin, std::size_t end) {
    QSF_RETURN_IF_ERROR(heap_.check_bytes((texts_.size() + 1) * sizeof(TextNode)));
    texts_.push_back(text_.slice(begin, end));
    return ok_status();
  }
  // Returns whether the text may be split again.
  bool may_split(std::int64_t max_splits) const {
    return max_splits < 0 || static_cast<std::int64_t>(texts_.size()) < max_splits;
  }
  std::vector<Text> take() { return std::move(texts_); }

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

Result<Text> change_case(const Text& text, CaseChange change) {
  const bool is_filter = change == CaseChange::kTitleFilter;
  Text out;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text.bytes()[at];
    if (static_cast<unsigned char>(c) >= 0x80) {
      return unsupported("upper and lower case of characters beyond ASCII are not supported");
    }
    const bool is_upper = c >= 'A' && c <= 'Z';
    const bool is_letter = is_upper || (c >= 'a' && c <= 'z');
    bool to_upper = change == CaseChange::kUpper;
    if (change == CaseChange::kCapitalize) to_upper = at == 0;
    if (change == CaseChange::kTitle || is_filter) to_upper = !in_word;
    in_word = is_filter ? !is_space(static_cast<unsigned char>(c)) &&
                              std::string_view("-({[<").find(c) == kNotInText
                        : is_letter;
    const char changed = is_letter && is_upper != to_upper ? static_cast<char>(c ^ 0x20) : c;
    out.append(std::string_view(&changed, 1), text.trusted_at(at));
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
    if (found == kNotInText) break;
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

Result<std::vector<Text>> split(const Heap& heap, const Text& text, const std::string* separator,
                                std::int64_t max_splits) {
  if (separator == nullptr) return split_space(heap, text, max_splits);
  const std::string_view bytes = text.bytes();
  Parts parts(heap, text);
  std::size_t begin = 0;
  while (parts.may_split(max_splits)) {
    const std::size_t found = find_bytes(bytes, *separator, begin);
    if (found == kNotInText) break;
    QSF_RETURN_IF_ERROR(parts.add(begin, found));
    begin = found + separator->size();
  }
  QSF_RETURN_IF_ERROR(parts.add(begin, bytes.size()));
  return parts.take();
}

Result<std::vector<Text>> split_lines(const Heap& heap, const Text& text) {
  Parts lines(heap, text);
  const std::string& bytes = text.bytes();
  std::size_t begin = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const DecodedChar next = decode_char(bytes, at);
    const std::size_t end = at;
    at += next.n_bytes;
    if (!is_line_end(next.code_point)) continue;
    if (next.code_point == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    QSF_RETURN_IF_ERROR(lines.add(begin, end));
    begin = at;
  }
  if (begin < bytes.size()) QSF_RETURN_IF_ERROR(lines.add(begin, bytes.size()));
  return lines.take();
}

}  // namespace qsf::jinja
