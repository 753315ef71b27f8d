// SPDX-License-Identifier: MIT
//
// Code points from and to UTF-8, for the texts of grammars and schemas.

#ifndef QSF_GRAMMAR_UTF8_CODE_POINTS_H_
#define QSF_GRAMMAR_UTF8_CODE_POINTS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/utf8_text.h"

namespace qsf {

// Requires  utf8_char_bytes(text) > 0
inline std::uint32_t first_code_point(std::string_view text) noexcept {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t n = utf8_char_bytes(text);
  if (n == 1) return byte(0);
  std::uint32_t value = byte(0) & (0xFFU >> (n + 1));
  for (std::size_t i = 1; i < n; ++i) value = value << 6 | (byte(i) & 0x3FU);
  return value;
}

inline void append_code_point(std::uint32_t code_point, std::string& out) {
  const auto put = [&out](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
  } else {
    if (code_point < 0x10000) {
      put(0xE0 | code_point >> 12);
    } else {
      put(0xF0 | code_point >> 18);
      put(0x80 | (code_point >> 12 & 0x3F));
    }
    put(0x80 | (code_point >> 6 & 0x3F));
  }
  put(0x80 | (code_point & 0x3F));
}

inline int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

inline bool is_surrogate(std::uint32_t code_point) noexcept {
  return code_point >= 0xD800 && code_point <= 0xDFFF;
}

}  // namespace qsf

#endif  // QSF_GRAMMAR_UTF8_CODE_POINTS_H_
