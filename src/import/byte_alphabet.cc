// SPDX-License-Identifier: MIT

#include "import/byte_alphabet.h"

#include <cstdint>

#include "tokenizer/utf8.h"

namespace qsf {

namespace {

constexpr std::uint32_t kFirstMapped = 0x100;
constexpr std::uint32_t kMapped = 68;  // 0x00-0x20, 0x7F-0xA0 and 0xAD

bool stands_for_itself(std::uint32_t byte) noexcept {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

// Returns the byte behind the n-th mapped character.
char mapped_byte(std::uint32_t n) noexcept {
  if (n <= 0x20) return static_cast<char>(n);
  return static_cast<char>(n == kMapped - 1 ? 0xAD : n - 0x21 + 0x7F);
}

}  // namespace

std::optional<std::string> bytes_of_alphabet(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char next = decode_utf8(text, i);
    const std::uint32_t c = next.code_point;
    if (next.valid && stands_for_itself(c)) {
      bytes.push_back(static_cast<char>(c));
    } else if (next.valid && c >= kFirstMapped && c < kFirstMapped + kMapped) {
      bytes.push_back(mapped_byte(c - kFirstMapped));
    } else {
      return std::nullopt;
    }
    i += next.n_bytes;
  }
  return bytes;
}

std::string alphabet_of_byte(unsigned char byte) {
  std::uint32_t c = byte;
  if (!stands_for_itself(byte)) {
    c = byte <= 0x20 ? byte : byte == 0xAD ? kMapped - 1 : byte - 0x7FU + 0x21U;
    c += kFirstMapped;
  }
  if (c < 0x80) return std::string(1, static_cast<char>(c));
  return {static_cast<char>(0xC0U | (c >> 6)), static_cast<char>(0x80U | (c & 0x3FU))};
}

}  // namespace qsf
