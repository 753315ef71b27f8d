// SPDX-License-Identifier: MIT

#include "tokenizer/utf8.h"

namespace qsf {

Utf8Char decode_utf8(std::string_view text, std::size_t position) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[position + i]); };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80U) return {lead, 1, true, false};
  // The lead byte fixes the length and, for four of its values, a narrower range of the next byte.
  unsigned n_bytes = 0;
  unsigned low = 0x80U;
  unsigned high = 0xBFU;
  if (lead >= 0xC2U && lead <= 0xDFU) {
    n_bytes = 2;
  } else if (lead >= 0xE0U && lead <= 0xEFU) {
    n_bytes = 3;
    if (lead == 0xE0U) low = 0xA0U;
    if (lead == 0xEDU) high = 0x9FU;
  } else if (lead >= 0xF0U && lead <= 0xF4U) {
    n_bytes = 4;
    if (lead == 0xF0U) low = 0x90U;
    if (lead == 0xF4U) high = 0x8FU;
  } else {
    return {0xFFFDU, 1, false, false};
  }
  std::uint32_t code_point = lead & (0xFFU >> (n_bytes + 1));
  for (unsigned i = 1; i < n_bytes; ++i) {
    const auto so_far = static_cast<std::uint8_t>(i);
    if (position + i >= text.size()) return {0xFFFDU, so_far, false, true};
    if (byte(i) < low || byte(i) > high) return {0xFFFDU, so_far, false, false};
    code_point = (code_point << 6) | (byte(i) & 0x3FU);
    low = 0x80U;
    high = 0xBFU;
  }
  return {code_point, static_cast<std::uint8_t>(n_bytes), true, false};
}

std::size_t valid_utf8_end(std::string_view text, std::size_t position) noexcept {
  while (position < text.size()) {
    const Utf8Char next = decode_utf8(text, position);
    if (!next.valid) break;
    position += next.n_bytes;
  }
  return position;
}

bool is_unicode_space(std::uint32_t code_point) noexcept {
  return (code_point >= 0x09U && code_point <= 0x0DU) || code_point == 0x20U ||
         code_point == 0x85U || code_point == 0xA0U || code_point == 0x1680U ||
         (code_point >= 0x2000U && code_point <= 0x200AU) || code_point == 0x2028U ||
         code_point == 0x2029U || code_point == 0x202FU || code_point == 0x205FU ||
         code_point == 0x3000U;
}

}  // namespace qsf
