// SPDX-License-Identifier: MIT
//
// Strings of the template language, with the origin of every byte, and Python's operations on them.
//
// A string is UTF-8 with runs of equal trust. Every operation appends slices of other texts, so
// trust follows the bytes by construction. Characters are code points, as in Python; a byte that
// belongs to no character counts as one.

#ifndef QSF_CHAT_JINJA_TEXT_H_
#define QSF_CHAT_JINJA_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace qsf::jinja {

class Heap;

// A run goes from the end of the one before it to `end`.
struct TrustRun {
  std::size_t end;
  bool trusted;
};

class Text {
 public:
  Text() = default;
  Text(std::string_view bytes, bool trusted) { append(bytes, trusted); }

  const std::string& bytes() const { return bytes_; }
  const std::vector<TrustRun>& runs() const { return runs_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  // Returns the trust of the byte at `offset`.
  // Requires  offset < size()
  bool trusted_at(std::size_t offset) const;

  // Appends, merging with the last run where the trust is equal.
  void append(std::string_view bytes, bool trusted);
  void append(const Text& other) { append_slice(other, 0, other.size()); }

  // Appends bytes [begin, end) of `other` with their trust.
  // Requires  begin <= end <= other.size(); other is not this text
  void append_slice(const Text& other, std::size_t begin, std::size_t end);

  Text slice(std::size_t begin, std::size_t end) const;

 private:
  std::size_t run_of(std::size_t offset) const;

  std::string bytes_;
  std::vector<TrustRun> runs_;
};

// The result of decode_char for a byte that belongs to no character.
inline constexpr std::uint32_t kNoCodePoint = 0xFFFFFFFF;

struct DecodedChar {
  std::uint32_t code_point;
  std::size_t n_bytes;
};

// Returns the character at `offset`; one byte and kNoCodePoint where there is none.
// Requires  offset < bytes.size()
DecodedChar decode_char(std::string_view bytes, std::size_t offset);

// Returns the offset at which the character begins that ends before `offset`.
// Requires  0 < offset <= bytes.size()
std::size_t previous_char(std::string_view bytes, std::size_t offset);

std::size_t count_chars(std::string_view bytes);

// Returns the byte offset of character `index`, bytes.size() when there are not so many.
std::size_t char_offset(std::string_view bytes, std::size_t index);

// Appends `code_point` as UTF-8.
// Requires  code_point <= 0x10FFFF
void append_utf8(std::uint32_t code_point, std::string& out);

// Python's str.isspace of one character.
bool is_space(std::uint32_t code_point);

// Returns the first offset of `needle` at or after `from`, npos when there is none. Linear in both;
// std::string::find is quadratic, and a template could hang the process with it.
std::size_t find_bytes(std::string_view haystack, std::string_view needle, std::size_t from);

// Offsets of the part of `bytes` that str.strip() leaves.
struct ByteRange {
  std::size_t begin;
  std::size_t end;
};
ByteRange strip_space(std::string_view bytes, bool left, bool right);

// Python's operations on strings. Those that may make much more text than they are given ask `heap`
// first, and fail with kUnsupported when the result is too large.

enum class Side : std::uint8_t { kBoth, kLeft, kRight };

// Strips white space, or the characters of `chars` where it is not null.
Text strip(const Text& text, Side side, const std::string* chars);

// str.upper, lower, capitalize and title, and Jinja's filter title, which begins a word only after
// white space and - ( { [ <.
enum class CaseChange : std::uint8_t { kUpper, kLower, kCapitalize, kTitle, kTitleFilter };

// Fails  kUnsupported: the text has characters beyond ASCII, whose case needs Unicode's tables
Result<Text> change_case(const Text& text, CaseChange change);

// Replaces the first `count` occurrences, all where it is negative.
Result<Text> replace(const Heap& heap, const Text& text, const Text& old_text, const Text& new_text,
                     std::int64_t count);

// Splits at `separator`, at runs of white space where it is null; at most `max_splits` times where
// that is not negative.
Result<std::vector<Text>> split(const Heap& heap, const Text& text, const std::string* separator,
                                std::int64_t max_splits);

Result<std::vector<Text>> split_lines(const Heap& heap, const Text& text);

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_TEXT_H_
