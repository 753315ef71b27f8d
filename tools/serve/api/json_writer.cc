// SPDX-License-Identifier: MIT
#include "tools/serve/api/json_writer.h"

#include <charconv>
#include <cmath>
#include <cstddef>

namespace qsf_tools {

namespace {

bool is_continuation(unsigned char byte) {
  return (byte & 0xC0) == 0x80;
}

// Returns the bytes of the valid character at the start of `text`; 0 where there is none.
std::size_t character_bytes(std::string_view text) {
  const auto at = [text](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : static_cast<unsigned char>(0);
  };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return is_continuation(at(1)) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const unsigned char low = first == 0xE0 ? 0xA0 : 0x80;   // no longer form than needed
    const unsigned char high = first == 0xED ? 0x9F : 0xBF;  // no surrogate
    if (at(1) < low || at(1) > high) return 0;
    return is_continuation(at(2)) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const unsigned char low = first == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = first == 0xF4 ? 0x8F : 0xBF;  // up to U+10FFFF
    if (at(1) < low || at(1) > high) return 0;
    return is_continuation(at(2)) && is_continuation(at(3)) ? 4 : 0;
  }
  return 0;
}

void append_control(unsigned char byte, std::string& out) {
  static constexpr char kHex[] = "0123456789abcdef";
  switch (byte) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\b': out += "\\b"; return;
    case '\f': out += "\\f"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    default: break;
  }
  out += "\\u00";
  out += kHex[byte >> 4];
  out += kHex[byte & 15];
}

template <typename Number>
void append_number(Number number, std::string& out) {
  if (!std::isfinite(number)) {
    out += "null";
    return;
  }
  char text[40];
  const auto end = std::to_chars(text, text + sizeof(text), number);
  out.append(text, end.ptr);
}

}  // namespace

void append_json_string(std::string_view text, std::string& out) {
  out += '"';
  std::size_t begin = 0;
  std::size_t i = 0;
  while (i < text.size()) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_plain = byte >= 0x20 && byte != '"' && byte != '\\';
    const std::size_t n_bytes = is_plain ? character_bytes(text.substr(i)) : 0;
    if (n_bytes != 0) {
      i += n_bytes;
      continue;
    }
    out.append(text.substr(begin, i - begin));
    if (is_plain) {
      out += "\xEF\xBF\xBD";
    } else {
      append_control(byte, out);
    }
    begin = ++i;
  }
  out.append(text.substr(begin));
  out += '"';
}

void append_json_number(double number, std::string& out) {
  append_number(number, out);
}
void append_json_number(float number, std::string& out) {
  append_number(number, out);
}

void JsonWriter::separate() {
  if (needs_comma_) out_ += ',';
  needs_comma_ = true;
}

JsonWriter& JsonWriter::begin_object() {
  separate();
  out_ += '{';
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::end_object() {
  out_ += '}';
  needs_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::begin_array() {
  separate();
  out_ += '[';
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::end_array() {
  out_ += ']';
  needs_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::name(std::string_view member) {
  separate();
  append_json_string(member, out_);
  out_ += ':';
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::null() {
  return raw("null");
}

JsonWriter& JsonWriter::text(std::string_view value) {
  separate();
  append_json_string(value, out_);
  return *this;
}

JsonWriter& JsonWriter::number(double value) {
  separate();
  append_json_number(value, out_);
  return *this;
}

JsonWriter& JsonWriter::number(float value) {
  separate();
  append_json_number(value, out_);
  return *this;
}

JsonWriter& JsonWriter::integer(std::int64_t value) {
  return raw(std::to_string(value));
}
JsonWriter& JsonWriter::boolean(bool value) {
  return raw(value ? "true" : "false");
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  out_ += json;
  return *this;
}

}  // namespace qsf_tools
