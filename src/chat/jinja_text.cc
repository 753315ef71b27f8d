// SPDX-License-Identifier: MIT

#include "chat/jinja_text.h"

#include <algorithm>
#include <cstring>

#include "base/utf8_text.h"

namespace qsf::jinja {

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

std::size_t find_bytes(std::string_view haystack, std::string_view needle, std::size_t from) {
  if (from > haystack.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* found =
      memmem(haystack.data() + from, haystack.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - haystack.data());
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

}  // namespace qsf::jinja
