// SPDX-License-Identifier: MIT
//
// Checks that bytes are UTF-8 text as defined by RFC 3629: no surrogates, no overlong forms,
// nothing above U+10FFFF. For messages and metadata; tokenizer/utf8.h decodes to code points.

#ifndef QSF_BASE_UTF8_TEXT_H_
#define QSF_BASE_UTF8_TEXT_H_

#include <cstddef>
#include <string_view>

namespace qsf {

// Returns the bytes of the first character of `text`, 0 when it does not begin with a character.
inline std::size_t utf8_char_bytes(std::string_view text) noexcept {
  if (text.empty()) return 0;
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t n = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < n) return 0;
  for (std::size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  }
  const unsigned second = byte(1);
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
      (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) {
    return 0;
  }
  return n;
}

// Returns the position of the first byte that is NUL or not part of a character, text.size() when
// there is none.
inline std::size_t find_non_text(std::string_view text) noexcept {
  std::size_t at = 0;
  while (at < text.size() && text[at] != '\0') {
    const std::size_t n = utf8_char_bytes(text.substr(at));
    if (n == 0) break;
    at += n;
  }
  return at;
}

// Returns how many bytes of `text` fit into max_bytes without cutting a character in two. Bytes
// that are not UTF-8 are cut anywhere.
inline std::size_t utf8_fitting_bytes(std::string_view text, std::size_t max_bytes) noexcept {
  if (text.size() <= max_bytes) return text.size();
  for (std::size_t back = 1; back < 4 && back <= max_bytes; ++back) {
    if (utf8_char_bytes(text.substr(max_bytes - back)) > back) return max_bytes - back;
  }
  return max_bytes;
}

}  // namespace qsf

#endif  // QSF_BASE_UTF8_TEXT_H_
