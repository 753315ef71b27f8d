// SPDX-License-Identifier: MIT

#include "tools/serve/syntax/json_text.h"

#include <nlohmann/json.hpp>

namespace qsf_tools {

namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::size_t kMaxOpen = 64;

// Returns the bytes of the value that valid JSON text begins with.
std::size_t value_bytes(std::string_view text) {
  if (text.starts_with('{') || text.starts_with('[')) {
    JsonEndFinder finder;
    finder.find(text);
    return finder.n_bytes();
  }
  if (!text.starts_with('"')) return std::min(text.find_first_of(",]} \t\r\n"), text.size());
  std::size_t at = 1;
  while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  return std::min(at + 1, text.size());
}

// Takes a value and what separates it from the next one.
std::string_view take_value(std::string_view& text) {
  // Something is taken of every text, so that none is an endless loop.
  const std::string_view value = text.substr(0, std::max<std::size_t>(value_bytes(text), 1));
  text = trim_left(text.substr(value.size()));
  if (text.starts_with(':') || text.starts_with(',')) text = trim_left(text.substr(1));
  return value;
}

}  // namespace

JsonEndFinder::Found JsonEndFinder::find(std::string_view text) {
  for (; at_ < text.size(); ++at_) {
    const char c = text[at_];
    if (in_string_) {
      if (static_cast<unsigned char>(c) < 0x20) return Found::kBad;
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else {
        in_string_ = c != '"';
      }
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      if (open_.size() == kMaxOpen) return Found::kBad;
      open_.push_back(c == '{' ? '}' : ']');
    } else if (c == '}' || c == ']') {
      if (open_.empty() || open_.back() != c) return Found::kBad;
      open_.pop_back();
    } else if (kBlanks.find(c) == std::string_view::npos &&
               std::string_view("0123456789+-.eE,:truefalsn").find(c) == std::string_view::npos) {
      return Found::kBad;
    }
    if (open_.empty()) {
      // Only a bracket may be first.
      if (c != '}' && c != ']') return Found::kBad;
      ++at_;
      return Found::kEnd;
    }
  }
  return Found::kMore;
}

bool is_json(std::string_view text) {
  return nlohmann::json::accept(text);
}

std::vector<JsonMemberText> json_members(std::string_view object) {
  std::vector<JsonMemberText> members;
  object = trim(object);
  if (!object.starts_with('{')) return members;
  object = trim_left(object.substr(1));
  while (!object.empty() && !object.starts_with('}')) {
    const std::string_view name = take_value(object);
    const std::string_view value = take_value(object);
    members.push_back({.name = json_string(name).value_or(""), .value = value});
  }
  return members;
}

std::string_view json_member(std::string_view object, std::string_view name) {
  std::string_view found;
  for (const JsonMemberText& member : json_members(object)) {
    if (member.name == name) found = member.value;
  }
  return found;
}

std::vector<std::string_view> json_elements(std::string_view array) {
  std::vector<std::string_view> elements;
  array = trim(array);
  if (!array.starts_with('[')) return elements;
  array = trim_left(array.substr(1));
  while (!array.empty() && !array.starts_with(']')) elements.push_back(take_value(array));
  return elements;
}

std::optional<std::string> json_string(std::string_view value) {
  const nlohmann::json json =
      nlohmann::json::parse(value, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!json.is_string()) return std::nullopt;
  return *json.get_ptr<const std::string*>();
}

std::string_view json_kind(std::string_view value) {
  switch (value.front()) {
    case '{': return "object";
    case '[': return "array";
    case '"': return "string";
    case 't':
    case 'f': return "boolean";
    case 'n': return "null";
    default: return "number";
  }
}

std::string json_quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string_view trim_left(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kBlanks), text.size()));
}

std::string_view trim_right(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);  // npos + 1 is 0
}

std::string_view trim(std::string_view text) {
  return trim_left(trim_right(text));
}

}  // namespace qsf_tools
