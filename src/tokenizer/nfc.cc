// SPDX-License-Identifier: MIT

#include "tokenizer/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "tokenizer/added_matcher.h"
#include "tokenizer/utf8.h"

namespace qsf {

namespace {

constexpr auto kComposed = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
// Characters below U+0300 are in normal form C, and nothing before them composes with them.
constexpr std::uint32_t kFirstUnsettled = 0x300;
constexpr unsigned char kFirstUnsettledByte = 0xCC;  // the first byte of U+0300 in UTF-8

// U+11A7, just below Hangul's trailing consonants, composes with nothing either; utf8proc 2.8
// treats it as one of them and drops it.
bool is_settled(std::uint32_t c) noexcept {
  return c < kFirstUnsettled || c == 0x11A7;
}

bool is_combining(utf8proc_int32_t c) noexcept {
  return utf8proc_get_property(c)->combining_class != 0;
}

// Appends `stretch`, which is valid UTF-8, in normal form C.
void append_composed(std::string_view stretch, std::vector<utf8proc_int32_t>& chars,
                     std::string& out) {
  constexpr std::size_t kLongest = 32;  // of one character's decomposition, which has 4
  chars.clear();
  for (std::size_t at = 0; at < stretch.size();) {
    const Utf8Char next = decode_utf8(stretch, at);
    at += next.n_bytes;
    utf8proc_int32_t parts[kLongest];
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(next.code_point), parts,
                                           kLongest, kComposed, nullptr);
    chars.insert(chars.end(), parts, parts + std::clamp<utf8proc_ssize_t>(n, 0, kLongest));
  }
  // Marks behind a character go in the order of their classes. utf8proc would do that too, in
  // quadratic time.
  for (auto begin = chars.begin(); begin != chars.end();) {
    begin = std::find_if(begin, chars.end(), is_combining);
    const auto end = std::find_if_not(begin, chars.end(), is_combining);
    std::stable_sort(begin, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return utf8proc_get_property(a)->combining_class < utf8proc_get_property(b)->combining_class;
    });
    begin = end;
  }
  const auto n_chars = utf8proc_normalize_utf32(
      chars.data(), static_cast<utf8proc_ssize_t>(chars.size()), kComposed);
  for (utf8proc_ssize_t i = 0; i < n_chars; ++i) {
    utf8proc_uint8_t bytes[4];
    const auto n_bytes = utf8proc_encode_char(chars[static_cast<std::size_t>(i)], bytes);
    out.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(n_bytes));
  }
}

// Appends the marks of `after`, which `before` became.
void append_marks(std::string_view before, std::string_view after, std::string_view marks,
                  std::string& out) {
  const std::size_t shorter = std::min(before.size(), after.size());
  std::size_t head = 0;
  while (head < shorter && before[head] == after[head]) ++head;
  std::size_t tail = 0;
  while (tail < shorter - head &&
         before[before.size() - 1 - tail] == after[after.size() - 1 - tail]) {
    ++tail;
  }
  const std::size_t changed = before.size() - head - tail;
  const std::string_view source = changed == 0 ? marks : marks.substr(head, changed);
  const bool all = SpecialMask(source).allows(0, source.size());
  out.append(marks.substr(0, head))
      .append(after.size() - head - tail, all ? SpecialMask::kMarked : SpecialMask::kUnmarked)
      .append(marks.substr(before.size() - tail));
}

// Returns where the stretch that begins at `begin` ends: before the next character that is settled,
// or before bytes that are not UTF-8.
std::size_t stretch_end(std::string_view text, std::size_t begin) noexcept {
  std::size_t end = begin;
  while (end < text.size()) {
    const Utf8Char next = decode_utf8(text, end);
    if (!next.valid || (end > begin && is_settled(next.code_point))) break;
    end += next.n_bytes;
  }
  return end;
}

}  // namespace

void normalize_nfc(std::string& text, std::string* marks) {
  const auto is_unsettled = [](char c) {
    return static_cast<unsigned char>(c) >= kFirstUnsettledByte;
  };
  const std::string_view whole = text;
  std::string out;
  std::string out_marks;
  std::vector<utf8proc_int32_t> chars;
  std::size_t done = 0;
  const auto copy_until = [&](std::size_t end) {
    out.append(whole, done, end - done);
    if (marks != nullptr) out_marks.append(*marks, done, end - done);
    done = end;
  };
  for (;;) {
    const auto found =
        std::find_if(whole.begin() + static_cast<std::ptrdiff_t>(done), whole.end(), is_unsettled);
    if (found == whole.end()) break;
    // The character before it may compose with it.
    auto begin = static_cast<std::size_t>(found - whole.begin());
    const std::size_t lead = begin;
    while (begin > done && lead - begin < 2) {
      --begin;
      if (!is_utf8_continuation(whole[begin])) break;
    }
    if (begin < lead && decode_utf8(whole, begin).n_bytes != lead - begin) begin = lead;
    copy_until(begin);
    const std::size_t end = std::max(stretch_end(whole, begin), begin);
    if (end == begin) {  // no UTF-8
      copy_until(begin + 1);
      continue;
    }
    const std::size_t before = out.size();
    append_composed(whole.substr(begin, end - begin), chars, out);
    if (marks != nullptr) {
      append_marks(whole.substr(begin, end - begin), std::string_view(out).substr(before),
                   std::string_view(*marks).substr(begin, end - begin), out_marks);
    }
    done = end;
  }
  if (done == 0) return;
  copy_until(whole.size());
  text = std::move(out);
  if (marks != nullptr) *marks = std::move(out_marks);
}

}  // namespace qsf
