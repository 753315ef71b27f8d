// SPDX-License-Identifier: MIT

#include "chat/jinja_lexer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/float_text.h"
#include "chat/jinja_text.h"

namespace qsf::jinja {
namespace {

constexpr auto kNotInSource = std::string_view::npos;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Returns the source with \n for every line end, and without a line end after the last line.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      out.push_back('\n');
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : storage_(std::move(source)), source_(storage_) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) QSF_RETURN_IF_ERROR(lex_text());
    push(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  Status lex_text();
  Status lex_tag(bool is_block);
  Status lex_comment();
  Status lex_token();
  Status lex_number();
  Status lex_string(char quote);
  Status lex_escape(std::string_view body, std::size_t& at, std::string& out) const;
  Status lex_operator();

  void push(TokenKind kind, std::string text = {}) {
    tokens_.push_back({.kind = kind, .line = line_, .text = std::move(text)});
  }
  void push_data(std::string_view text, char sign, bool is_variable);
  void advance_to(std::size_t offset) {
    line_ +=
        static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                    source_.begin() + static_cast<std::ptrdiff_t>(offset), '\n'));
    at_ = offset;
  }
  std::size_t skip_space(std::size_t offset) const {
    return offset + strip_space(source_.substr(offset), true, false).begin;
  }
  bool match(std::size_t offset, std::string_view text) const {
    return source_.substr(offset, text.size()) == text;
  }
  // The end of the closing tag at `offset`; kNotInSource where there is none. `marker` is `%}`,
  // `}}` or
  // `#}`.
  std::size_t match_end(std::size_t offset, std::string_view marker) const;

  std::string storage_;
  std::string_view source_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
  std::string brackets_;  // expected closing brackets, the next one last
};

std::size_t Lexer::match_end(std::size_t offset, std::string_view marker) const {
  const bool is_variable = marker == "}}";
  if (match(offset, "-") && match(offset + 1, marker)) return skip_space(offset + 3);
  if (!is_variable && match(offset, "+") && match(offset + 1, marker)) return offset + 3;
  if (!match(offset, marker)) return kNotInSource;
  offset += 2;
  return !is_variable && match(offset, "\n") ? offset + 1 : offset;
}

// Adds the text before a tag, stripped as the tag's sign and kind say.
void Lexer::push_data(std::string_view text, char sign, bool is_variable) {
  if (sign == '-') {
    text = text.substr(0, strip_space(text, false, true).end);
  } else if (sign != '+' && !is_variable) {
    const std::size_t newline = text.rfind('\n');
    const std::size_t line_start = newline == kNotInSource ? 0 : newline + 1;
    const bool begins_line = newline != kNotInSource || at_ == 0 || source_[at_ - 1] == '\n';
    const std::string_view indent = text.substr(line_start);
    if (begins_line && strip_space(indent, true, false).begin == indent.size()) {
      text = text.substr(0, line_start);
    }
  }
  if (!text.empty()) push(TokenKind::kData, std::string(text));
}

Status Lexer::lex_text() {
  std::size_t tag = at_;
  while (true) {
    tag = source_.find('{', tag);
    if (tag == kNotInSource || tag + 1 >= source_.size()) {
      push(TokenKind::kData, std::string(source_.substr(at_)));
      at_ = source_.size();
      return ok_status();
    }
    const char next = source_[tag + 1];
    if (next == '{' || next == '%' || next == '#') break;
    ++tag;
  }
  std::size_t inside = tag + 2;
  char sign = ' ';
  if (match(inside, "-") || match(inside, "+")) sign = source_[inside++];
  const char kind = source_[tag + 1];
  push_data(source_.substr(at_, tag - at_), sign, kind == '{');
  advance_to(inside);
  if (kind == '#') return lex_comment();
  return lex_tag(kind == '%');
}

Status Lexer::lex_comment() {
  const std::size_t marker = source_.find("#}", at_);
  if (marker == kNotInSource)
    return corrupt("line %d: the comment does not end, expected #}", line_);
  const bool has_sign = marker > at_ && (source_[marker - 1] == '-' || source_[marker - 1] == '+');
  advance_to(match_end(has_sign ? marker - 1 : marker, "#}"));
  return ok_status();
}

Status Lexer::lex_tag(bool is_block) {
  push(is_block ? TokenKind::kBlockBegin : TokenKind::kVariableBegin);
  brackets_.clear();
  while (true) {
    advance_to(skip_space(at_));
    if (at_ >= source_.size()) {
      return corrupt("line %d: the tag does not end, expected %s", line_, is_block ? "%}" : "}}");
    }
    if (brackets_.empty()) {
      const std::size_t end = match_end(at_, is_block ? "%}" : "}}");
      if (end != kNotInSource) {
        push(is_block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd);
        advance_to(end);
        return ok_status();
      }
    }
    QSF_RETURN_IF_ERROR(lex_token());
    // The text of a raw block is not made of tags, so the parser could not refuse it.
    const Token& before = tokens_[tokens_.size() - 2];
    if (before.kind == TokenKind::kBlockBegin && tokens_.back().is_name("raw")) {
      return unsupported("line %d: the tag 'raw' is not supported in chat templates", line_);
    }
  }
}

Status Lexer::lex_token() {
  const char c = source_[at_];
  if (is_digit(c)) return lex_number();
  if (c == '\'' || c == '"') return lex_string(c);
  if (!is_name_start(c)) return lex_operator();
  std::size_t end = at_;
  while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end]))) ++end;
  if (end < source_.size() && static_cast<unsigned char>(source_[end]) >= 0x80) {
    return unsupported("line %d: names with characters beyond ASCII are not supported", line_);
  }
  push(TokenKind::kName, std::string(source_.substr(at_, end - at_)));
  at_ = end;
  return ok_status();
}

Status Lexer::lex_number() {
  const auto digits_end = [this](std::size_t offset) {
    while (offset < source_.size() && is_digit(source_[offset])) ++offset;
    return offset;
  };
  std::size_t end = digits_end(at_);
  const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
  bool is_float = false;
  if (!after_dot && match(end, ".") && digits_end(end + 1) > end + 1) {
    end = digits_end(end + 1);
    is_float = true;
  }
  if (!after_dot && (match(end, "e") || match(end, "E"))) {
    std::size_t exponent = end + 1;
    if (match(exponent, "+") || match(exponent, "-")) ++exponent;
    if (digits_end(exponent) > exponent) {
      end = digits_end(exponent);
      is_float = true;
    }
  }
  const std::string text(source_.substr(at_, end - at_));
  const bool is_name = end < source_.size() && is_name_start(source_[end]);
  if (is_name || (!is_float && text.size() > 1 && text[0] == '0')) {
    return unsupported("line %d: the number %.40s: only decimal numbers are supported", line_,
                       std::string(source_.substr(at_, end + 1 - at_)).c_str());
  }
  push(is_float ? TokenKind::kFloat : TokenKind::kInteger, text);
  Token& token = tokens_.back();
  const char* const last = text.data() + text.size();
  at_ = end;
  if (is_float) {
    if (double_from_chars(text.data(), last, token.number).ec == std::errc::result_out_of_range) {
      token.number = text.find('-') == std::string::npos ? HUGE_VAL : 0.0;
    }
    return ok_status();
  }
  if (std::from_chars(text.data(), last, token.integer).ec != std::errc()) {
    return unsupported("line %d: the integer %.40s is beyond 64 bits", line_, text.c_str());
  }
  return ok_status();
}

Status Lexer::lex_escape(std::string_view body, std::size_t& at, std::string& out) const {
  static constexpr std::string_view kNames = "abfnrtv\\'\"";
  static constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
  const char c = body[at++];
  if (c == '\n') return ok_status();
  if (const std::size_t simple = kNames.find(c); simple != kNotInSource) {
    out.push_back(kValues[simple]);
    return ok_status();
  }
  if (c >= '0' && c <= '7') {
    std::uint32_t value = static_cast<std::uint32_t>(c - '0');
    for (int i = 0; i < 2 && at < body.size() && body[at] >= '0' && body[at] <= '7'; ++i) {
      value = value * 8 + static_cast<std::uint32_t>(body[at++] - '0');
    }
    append_utf8(value, out);
    return ok_status();
  }
  if (c == 'N') return unsupported("line %d: the escape \\N{...} is not supported", line_);
  const int n_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (n_digits == 0) {
    out.push_back('\\');
    out.push_back(c);
    return ok_status();
  }
  std::uint32_t value = 0;
  for (int i = 0; i < n_digits; ++i) {
    const int digit = at < body.size() ? hex_value(body[at]) : -1;
    if (digit < 0) return corrupt("line %d: the escape \\%c has too few digits", line_, c);
    value = value << 4U | static_cast<std::uint32_t>(digit);
    ++at;
  }
  if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
    return corrupt("line %d: the escape \\%c gives U+%X, which is not a character", line_, c,
                   value);
  }
  append_utf8(value, out);
  return ok_status();
}

Status Lexer::lex_string(char quote) {
  std::size_t end = at_ + 1;
  while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
  if (end >= source_.size()) return corrupt("line %d: the string does not end", line_);
  const std::string_view body = source_.substr(at_ + 1, end - at_ - 1);
  std::string text;
  for (std::size_t at = 0; at < body.size();) {
    if (body[at] != '\\') {
      text.push_back(body[at++]);
      continue;
    }
    ++at;
    // A backslash before a character beyond ASCII stays, and so does the character.
    if (static_cast<unsigned char>(body[at]) >= 0x80) {
      text.push_back('\\');
      continue;
    }
    QSF_RETURN_IF_ERROR(lex_escape(body, at, text));
  }
  push(TokenKind::kString, std::move(text));
  advance_to(end + 1);
  return ok_status();
}

Status Lexer::lex_operator() {
  static constexpr std::string_view kDouble[] = {"//", "**", "==", "!=", ">=", "<="};
  static constexpr std::string_view kSingle = "+-/*%~[](){}<>=.:|,;";
  const auto* found = std::find_if(std::begin(kDouble), std::end(kDouble),
                                   [this](std::string_view op) { return match(at_, op); });
  const char c = source_[at_];
  if (found == std::end(kDouble) && kSingle.find(c) == kNotInSource) {
    const bool printable = c > 0x20 && c < 0x7F;
    return corrupt("line %d: unexpected character %s%.1s in a tag", line_, printable ? "" : "code ",
                   printable ? &c : "?");
  }
  const std::string text(found != std::end(kDouble) ? *found : source_.substr(at_, 1));
  if (c == '(' || c == '[' || c == '{') {
    brackets_.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
  } else if (c == ')' || c == ']' || c == '}') {
    if (brackets_.empty() || brackets_.back() != c) {
      return corrupt("line %d: unexpected '%c'%s%.1s", line_, c,
                     brackets_.empty() ? "" : ", expected ",
                     brackets_.empty() ? "" : &brackets_.back());
    }
    brackets_.pop_back();
  }
  push(TokenKind::kOperator, text);
  at_ += text.size();
  return ok_status();
}

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) {
  return Lexer(normalize_newlines(source)).run();
}

}  // namespace qsf::jinja
