// SPDX-License-Identifier: MIT

#include "tools/serve/syntax/argument_reader.h"

#include <algorithm>
#include <cstdint>

#include "tools/serve/syntax/json_text.h"
#include "tools/serve/syntax/tool_schema.h"

namespace qsf_tools {

namespace {

constexpr std::size_t kMaxOpenBrackets = 64;
constexpr std::size_t kMaxKeyBytes = 256;
constexpr std::size_t kMaxWordBytes = 64;              // of a number, or one of a few words
constexpr std::string_view kMarks = "()[]{}=:,'\"\n";  // end a name
constexpr std::string_view kWordCharacters =
    "0123456789+-._ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

bool is_blank_character(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

void append_utf8(std::uint32_t c, std::string& out) {
  if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) c = 0xFFFD;
  const auto add = [&out](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) return add(c);
  if (c < 0x800) {
    add(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      add(0xE0 | c >> 12);
    } else {
      add(0xF0 | c >> 18);
      add(0x80 | (c >> 12 & 0x3F));
    }
    add(0x80 | (c >> 6 & 0x3F));
  }
  add(0x80 | (c & 0x3F));
}

// Takes digits from the front of a text; false, and nothing is taken, where there are too few.
bool take_digits(std::string_view& text, std::uint32_t base, std::size_t least, std::size_t most,
                 std::uint32_t& number) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::uint32_t sum = 0;
  std::size_t n = 0;
  for (; n < std::min(most, text.size()); ++n) {
    const char c = text[n];
    const std::size_t digit =
        kDigits.find(c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c);
    if (digit >= base) break;
    sum = sum * base + static_cast<std::uint32_t>(digit);
  }
  if (n < least) return false;
  number = sum;
  text.remove_prefix(n);
  return true;
}

// Takes what follows a backslash. An escape that Python does not know is the two characters; that
// of a slash is JSON's.
void append_escape(std::string_view& text, std::string& out) {
  constexpr std::string_view kNames = "abfnrtv\\'\"/";
  constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"/";
  if (const std::size_t name = kNames.find(text[0]); name != std::string_view::npos) {
    out += kMeanings[name];
    text.remove_prefix(1);
    return;
  }
  std::uint32_t number = 0;
  if (take_digits(text, 8, 1, 3, number)) return append_utf8(number, out);
  std::string_view rest = text.substr(1);
  const std::size_t n_digits = text[0] == 'x' ? 2 : text[0] == 'u' ? 4 : text[0] == 'U' ? 8 : 0;
  if (n_digits > 0 && take_digits(rest, 16, n_digits, n_digits, number)) {
    // JSON writes what is beyond U+FFFF as two.
    std::uint32_t low = 0;
    std::string_view behind = rest.substr(std::min<std::size_t>(rest.size(), 2));
    if (number >= 0xD800 && number < 0xDC00 && rest.starts_with("\\u") &&
        take_digits(behind, 16, 4, 4, low) && low >= 0xDC00 && low < 0xE000) {
      number = 0x10000 + ((number - 0xD800) << 10) + (low - 0xDC00);
      rest = behind;
    }
    text = rest;
    return append_utf8(number, out);
  }
  // A line that goes on says nothing.
  if (text[0] != '\n') {
    out += '\\';
    out += text[0];
  }
  text.remove_prefix(1);
}

// Returns what stands between quotes.
std::string unescaped(std::string_view body) {
  std::string out;
  while (!body.empty()) {
    const char c = body[0];
    body.remove_prefix(1);
    if (c == '\\' && !body.empty()) {
      append_escape(body, out);
    } else {
      out += c;
    }
  }
  return out;
}

// Returns a number or a word as JSON; empty: it is neither.
std::string json_word(std::string_view word) {
  if (word == "True" || word == "true") return "true";
  if (word == "False" || word == "false") return "false";
  if (word == "None" || word == "null") return "null";
  // Python's numbers may have a sign, and nothing before or behind the point.
  const bool negative = word.starts_with('-');
  if (negative || word.starts_with('+')) word.remove_prefix(1);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::string number(word);
  const std::size_t point = number.find('.');
  if (point != std::string::npos) {
    const bool after = point > 0 && is_digit(number[point - 1]);
    const bool before = is_digit(number[point + 1]);
    if (after && !before) number.insert(point + 1, "0");
    if (before && !after) number.insert(point, "0");
  }
  const bool is_number = is_digit(number[0]) && is_json(number);
  return is_number ? (negative ? "-" : "") + number : std::string();
}

}  // namespace

ArgumentReader::ArgumentReader(char assign, std::string_view quote,
                               const std::vector<std::string>& names, std::string_view schema)
    : assign_(assign), quote_(quote), schema_(schema) {
  for (const std::string& name : names) {
    const bool is_special = name.empty() || name.size() > kMaxKeyBytes ||
                            name.find_first_of(kMarks) != std::string::npos;
    if (is_special) special_names_.push_back(name + assign);
  }
}

ArgumentReader::Found ArgumentReader::read(std::string_view text) {
  for (;;) {
    if (state_ != State::kText) {
      while (at_ < text.size() && is_blank_character(text[at_])) ++at_;
      if (at_ == text.size()) return Found::kMore;
    }
    const Step step = advance(text);
    if (step == Step::kMore) return Found::kMore;
    if (step == Step::kBad) return Found::kBad;
    if (open_.empty()) return Found::kEnd;
  }
}

ArgumentReader::Step ArgumentReader::advance(std::string_view text) {
  switch (state_) {
    case State::kOpening: return open(text[at_]);
    case State::kKey: return read_key(text);
    case State::kText: return read_text(text);
    case State::kAssign:
      if (text[at_] != assign()) return Step::kBad;
      ++at_;
      state_ = State::kValue;
      return Step::kOn;
    case State::kValue: return read_value(text);
    case State::kNext: return read_next(text[at_]);
  }
  return Step::kBad;
}

ArgumentReader::Step ArgumentReader::open(char bracket) {
  if (open_.size() == kMaxOpenBrackets) return Step::kBad;
  const bool is_list = bracket == '[';
  const std::string_view own = open_.empty() ? schema_ : value_schema();
  const std::string_view known = resolved_schema(own, schema_);
  schemas_.push_back(is_list ? resolved_schema(json_member(known, "items"), schema_) : known);
  open_ += is_list ? ']' : bracket == '(' ? ')' : '}';
  json_ += is_list ? '[' : '{';
  is_first_ = true;
  state_ = is_list ? State::kValue : State::kKey;
  ++at_;
  return Step::kOn;
}

ArgumentReader::Step ArgumentReader::read_key(std::string_view text) {
  const std::string_view rest = text.substr(at_);
  // Also behind a comma, as Python allows.
  if (rest[0] == open_.back()) return read_next(rest[0]);
  if (open_.size() == 1) {
    std::size_t n_bytes = 0;
    const MarkerFound found = find_special_name(rest, n_bytes);
    if (found == MarkerFound::kPart) return Step::kMore;
    if (found == MarkerFound::kYes) {
      return add_name(rest.substr(0, n_bytes), at_ + n_bytes);
    }
  }
  if (begin_text(rest)) {
    // A text without a name; what ends it is not sought in all of the answer.
    if (open_.back() == ')') return Step::kBad;
    is_key_ = true;
    return Step::kOn;
  }
  if (!quote_.empty() && quote_.starts_with(rest)) return Step::kMore;
  const std::size_t end = rest.find_first_of(kMarks);
  if (end == std::string_view::npos && rest.size() <= kMaxKeyBytes) return Step::kMore;
  if (end == std::string_view::npos || end > kMaxKeyBytes || end == 0) return Step::kBad;
  if (rest[end] != assign()) return Step::kBad;
  return add_name(trim(rest.substr(0, end)), at_ + end);
}

ArgumentReader::Step ArgumentReader::add_name(std::string_view name, std::size_t end) {
  if (open_.size() == 1 && !names_.emplace(name).second) return Step::kBad;
  separate();
  json_ += json_quoted(name) + ": ";
  member_schema_ = json_member(json_member(schemas_.back(), "properties"), name);
  member_schema_ = resolved_schema(member_schema_, schema_);
  at_ = end;
  state_ = State::kAssign;
  return Step::kOn;
}

// Whether one of the special names is next, the longest of them.
MarkerFound ArgumentReader::find_special_name(std::string_view text, std::size_t& n_bytes) const {
  MarkerFound found = MarkerFound::kNo;
  for (const std::string& name : special_names_) {
    if (text.size() < name.size() && name.starts_with(text)) return MarkerFound::kPart;
    if (!text.starts_with(name)) continue;
    found = MarkerFound::kYes;
    n_bytes = std::max(n_bytes, name.size() - 1);
  }
  return found;
}

ArgumentReader::Step ArgumentReader::read_value(std::string_view text) {
  const std::string_view rest = text.substr(at_);
  if (in_list() && rest[0] == ']') return read_next(rest[0]);
  if (begin_text(rest)) {
    is_key_ = false;
    return Step::kOn;
  }
  if (!quote_.empty() && quote_.starts_with(rest)) return Step::kMore;
  if (rest[0] == '[' || rest[0] == '{') {
    if (in_list()) separate();
    return open(rest[0]);
  }
  return read_word(rest);
}

ArgumentReader::Step ArgumentReader::read_word(std::string_view text) {
  const std::size_t end = text.find_first_not_of(kWordCharacters);
  if (end == std::string_view::npos && text.size() <= kMaxWordBytes) return Step::kMore;
  if (end == std::string_view::npos || end > kMaxWordBytes || end == 0) return Step::kBad;
  const std::string_view word = text.substr(0, end);
  std::string json = json_word(word);
  if (stays_text(word, json)) json = json_quoted(word);
  if (json.empty()) return Step::kBad;
  if (in_list()) separate();
  json_ += json;
  at_ += end;
  state_ = State::kNext;
  return Step::kOn;
}

// Whether the schema wants a text, where `json` is no text. Dates begin as numbers do.
bool ArgumentReader::stays_text(std::string_view word, std::string_view json) const {
  const std::string_view schema = value_schema();
  const std::string_view types = json_member(schema, "type");
  if (!names_type(types, "string")) return false;
  if (json.empty())
    return std::string_view("0123456789+-.").find(word[0]) != std::string_view::npos;
  const bool is_null = json == "null" && json_member(schema, "nullable") == "true";
  return !is_null && !names_type(types, json_kind(json));
}

// Begins a text where one of its quotes stands.
bool ArgumentReader::begin_text(std::string_view rest) {
  const bool is_marked = !quote_.empty() && rest.starts_with(quote_);
  if (!is_marked && rest[0] != '"' && rest[0] != '\'') return false;
  state_ = State::kText;
  search_at_ = at_ + (is_marked ? quote_.size() : 1);
  quote_at_ = std::string_view::npos;
  n_in_row_ = 0;
  escaped_ = false;
  return true;
}

ArgumentReader::Step ArgumentReader::read_text(std::string_view text) {
  const char quote = text[at_];
  if (quote != '"' && quote != '\'') return read_marked_text(text);
  const std::string three(3, quote);
  const std::string_view opening = text.substr(at_, 3);
  if (opening.size() < 3 && three.starts_with(opening)) return Step::kMore;
  const std::size_t n_quotes = opening == three ? 3 : 1;
  const std::size_t begin = at_ + n_quotes;
  search_at_ = std::max(search_at_, begin);
  for (; search_at_ < text.size(); ++search_at_) {
    const char c = text[search_at_];
    if (c == quote && !escaped_) {
      if (++n_in_row_ >= n_quotes) quote_at_ = search_at_ + 1 - n_quotes;
      if (n_in_row_ < n_quotes) quote_at_ = std::string_view::npos;
      continue;
    }
    n_in_row_ = 0;
    if (quote_at_ != std::string_view::npos) {
      if (is_blank_character(c)) continue;
      const MarkerFound ends = text_ends(text.substr(search_at_));
      if (ends == MarkerFound::kPart) return Step::kMore;
      if (ends == MarkerFound::kYes) {
        return end_text(unescaped(text.substr(begin, quote_at_ - begin)), quote_at_ + n_quotes);
      }
      quote_at_ = std::string_view::npos;
    }
    escaped_ = !escaped_ && c == '\\';
  }
  return Step::kMore;
}

// Whether what stands behind a quote, from the first character that is not blank, may follow a
// text.
MarkerFound ArgumentReader::text_ends(std::string_view behind_quote) const {
  const char c = behind_quote[0];
  if (is_key_) return c == assign() ? MarkerFound::kYes : MarkerFound::kNo;
  if (c == ',' && open_.size() == 1) return next_argument(behind_quote.substr(1));
  return c == ',' || c == open_.back() ? MarkerFound::kYes : MarkerFound::kNo;
}

// Whether the text behind a comma is the name of an argument, or the end of all: what stands
// between quotes may have commas behind its own quotes.
MarkerFound ArgumentReader::next_argument(std::string_view text) const {
  text = text.substr(0, kMaxKeyBytes);
  const MarkerFound at_end = text.size() < kMaxKeyBytes ? MarkerFound::kPart : MarkerFound::kNo;
  text = trim_left(text);
  if (text.empty()) return at_end;
  const bool begins_text =
      text[0] == '"' || text[0] == '\'' || (!quote_.empty() && text[0] == quote_[0]);
  if (text[0] == open_.back() || (open_.back() == '}' && begins_text)) return MarkerFound::kYes;
  std::size_t n_special = 0;
  const MarkerFound special = find_special_name(text, n_special);
  if (special != MarkerFound::kNo) return special == MarkerFound::kYes ? special : at_end;
  const std::size_t n_name = std::min(text.find_first_of(kMarks), text.size());
  if (n_name == text.size()) return at_end;
  return n_name > 0 && text[n_name] == assign_ ? MarkerFound::kYes : MarkerFound::kNo;
}

ArgumentReader::Step ArgumentReader::read_marked_text(std::string_view text) {
  const std::size_t begin = at_ + quote_.size();
  const std::size_t end = text.find(quote_, search_at_);
  if (end == std::string_view::npos) {
    search_at_ = std::max(search_at_, text.size() - std::min(text.size(), quote_.size() - 1));
    return Step::kMore;
  }
  return end_text(std::string(text.substr(begin, end - begin)), end + quote_.size());
}

ArgumentReader::Step ArgumentReader::end_text(std::string text, std::size_t end) {
  if (is_key_) return add_name(text, end);
  if (in_list()) separate();
  json_ += json_quoted(text);
  at_ = end;
  state_ = State::kNext;
  return Step::kOn;
}

ArgumentReader::Step ArgumentReader::read_next(char c) {
  if (c == ',' && !is_first_) {
    state_ = in_list() ? State::kValue : State::kKey;
  } else if (c == open_.back()) {
    json_ += in_list() ? ']' : '}';
    open_.pop_back();
    schemas_.pop_back();
    is_first_ = false;
    state_ = State::kNext;
  } else {
    return Step::kBad;
  }
  ++at_;
  return Step::kOn;
}

void ArgumentReader::separate() {
  if (!is_first_) json_ += ", ";
  is_first_ = false;
}

}  // namespace qsf_tools
