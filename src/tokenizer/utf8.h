// SPDX-License-Identifier: MIT
//
// Decodes UTF-8 one sequence at a time, strictly by RFC 3629: no surrogates, no overlong forms,
// nothing above U+10FFFF. Text from users and models may be any bytes; nothing here assumes
// validity.

#ifndef QSF_TOKENIZER_UTF8_H_
#define QSF_TOKENIZER_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace qsf {

struct Utf8Char {
  std::uint32_t code_point;  // 0xFFFD when not valid
  std::uint8_t n_bytes;  // of the sequence; when not valid, of its longest valid beginning, >= 1
  bool valid;
  bool incomplete;  // not valid, but more bytes after the end of the text could make it so
};

// Decodes the sequence at `position`. An invalid one spans its "maximal subpart" (The Unicode
// Standard, section 3.9, U+FFFD substitution).
// Requires  position < text.size()
Utf8Char decode_utf8(std::string_view text, std::size_t position) noexcept;

// Returns the first position from `position` on where no valid sequence begins, or text.size().
std::size_t valid_utf8_end(std::string_view text, std::size_t position) noexcept;

inline bool is_utf8_continuation(char byte) noexcept {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

// True for the code points with the Unicode property White_Space.
bool is_unicode_space(std::uint32_t code_point) noexcept;

}  // namespace qsf

#endif  // QSF_TOKENIZER_UTF8_H_
