// SPDX-License-Identifier: MIT

#include "grammar/gbnf_parser.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "grammar/json_schema.h"
#include "grammar/utf8_code_points.h"

namespace qsf {

namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class GbnfParser {
 public:
  explicit GbnfParser(std::string_view text) : text_(text) {}

  Result<GrammarRules> run() {
    skip_space(true);
    while (at_ < text_.size()) QSF_RETURN_IF_ERROR(parse_rule());
    for (const auto& [name, use] : rules_by_name_) {
      if (rules_.is_defined(use.id)) continue;
      at_ = use.first_use;
      return error_at("rule \"" + std::string(name) + "\" has no definition");
    }
    const auto root = rules_by_name_.find("root");
    if (root == rules_by_name_.end()) {
      return invalid_argument("grammar: no rule \"root\", with which every text begins; add one");
    }
    rules_.root = root->second.id;
    QSF_RETURN_IF_ERROR(rules_.check_size());
    return std::move(rules_);
  }

 private:
  struct NamedRule {
    RuleId id;
    std::size_t first_use;
  };

  Status error_at(const std::string& what) const {
    const std::string_view before = text_.substr(0, at_);
    const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
    return invalid_argument("grammar: line %zu, column %zu: %s",
                            std::count(before.begin(), before.end(), '\n') + std::size_t{1},
                            at_ - line_start + 1, what.c_str());
  }

  bool at(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool at(std::string_view word) const { return text_.substr(at_).starts_with(word); }

  void skip_space(bool newlines) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
      } else if (c == ' ' || c == '\t' || (newlines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        break;
      }
    }
  }

  std::string_view take_name() {
    const std::size_t first = at_;
    while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
    return text_.substr(first, at_ - first);
  }

  Result<RuleId> rule_of(std::string_view name, std::size_t where) {
    const auto known = rules_by_name_.find(name);
    if (known != rules_by_name_.end()) return known->second.id;
    if (rules_by_name_.size() == kMaxNamedRules) {
      return error_at("more than " + std::to_string(kMaxNamedRules) + " rules");
    }
    const RuleId id = rules_.add_rule(name);
    rules_by_name_.emplace(name, NamedRule{id, where});
    return id;
  }

  Status parse_rule() {
    const std::size_t start = at_;
    const std::string_view name = take_name();
    if (name.empty()) return error_at("expected the name of a rule");
    QSF_ASSIGN_OR_RETURN(const RuleId id, rule_of(name, start));
    if (rules_.is_defined(id)) {
      at_ = start;
      return error_at("rule \"" + std::string(name) + "\" is defined twice");
    }
    skip_space(false);
    if (!at("::=")) return error_at("expected ::= behind the name of the rule");
    at_ += 3;
    skip_space(true);
    QSF_ASSIGN_OR_RETURN(const ExprId body, parse_choice(0));
    rules_.define(id, body);
    if (at_ < text_.size() && !at('\n') && !at('\r')) {
      return error_at("expected an element, | or the end of the line");
    }
    skip_space(true);
    return ok_status();
  }

  Result<ExprId> parse_choice(std::size_t depth) {
    if (depth > kMaxGrammarDepth) {
      return error_at("more than " + std::to_string(kMaxGrammarDepth) + " groups in each other");
    }
    std::vector<ExprId> choices;
    for (;;) {
      QSF_ASSIGN_OR_RETURN(const ExprId sequence, parse_sequence(depth));
      choices.push_back(sequence);
      if (!at('|')) break;
      ++at_;
      skip_space(true);
    }
    return rules_.choice(choices);
  }

  Result<ExprId> parse_sequence(std::size_t depth) {
    const bool nested = depth > 0;
    std::vector<ExprId> parts;
    while (at_ < text_.size() && !at('|') && !at(')') && !at('\n') && !at('\r')) {
      QSF_ASSIGN_OR_RETURN(ExprId part, parse_element(depth));
      skip_space(nested);
      QSF_ASSIGN_OR_RETURN(part, parse_repeats(part, nested));
      parts.push_back(part);
    }
    // A line that begins with | goes on with the rule.
    const std::size_t end = at_;
    skip_space(true);
    if (!at('|')) at_ = nested ? at_ : end;
    return parts.empty() ? rules_.empty() : rules_.sequence(parts);
  }

  Result<ExprId> parse_element(std::size_t depth) {
    const char c = text_[at_];
    if (c == '"') return parse_literal();
    if (c == '[') return parse_class();
    if (c == '.') {
      ++at_;
      return rules_.char_class(CharSet::all());
    }
    if (c == '(') {
      const std::size_t open = at_++;
      skip_space(true);
      QSF_ASSIGN_OR_RETURN(const ExprId group, parse_choice(depth + 1));
      if (!at(')')) {
        at_ = open;
        return error_at("a group ( without its )");
      }
      ++at_;
      return group;
    }
    if (at("%json")) return parse_json(depth);
    if (is_name_char(c)) {
      const std::size_t start = at_;
      const std::string_view name = take_name();
      QSF_ASSIGN_OR_RETURN(const RuleId id, rule_of(name, start));
      return rules_.rule(id);
    }
    return error_at("expected a literal, a character class, a group or the name of a rule");
  }

  Result<ExprId> parse_repeats(ExprId part, bool nested) {
    for (std::size_t n = 0; at('*') || at('+') || at('?') || at('{'); ++n) {
      if (n == kMaxGrammarDepth) return error_at("too many repetitions of a repetition");
      std::uint32_t least = at('+') ? 1 : 0;
      std::uint32_t most = at('?') ? 1 : kUnbounded;
      if (at('{')) {
        const std::size_t open = at_++;
        QSF_ASSIGN_OR_RETURN(least, take_count());
        most = least;
        skip_space(nested);
        if (at(',')) {
          ++at_;
          skip_space(nested);
          most = kUnbounded;
          if (!at('}')) {
            QSF_ASSIGN_OR_RETURN(most, take_count());
          }
          skip_space(nested);
        }
        if (!at('}')) return error_at("expected } behind a number of repetitions");
        if (most < least) {
          at_ = open;
          return error_at("a repetition of at least " + std::to_string(least) + " and at most " +
                          std::to_string(most));
        }
      }
      ++at_;
      part = rules_.repeat(part, least, most);
      skip_space(nested);
    }
    return part;
  }

  Result<std::uint32_t> take_count() {
    skip_space(false);
    const std::size_t start = at_;
    std::uint64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      value = std::min<std::uint64_t>(value * 10 + static_cast<unsigned>(text_[at_++] - '0'),
                                      std::uint64_t{kMaxRepeats} + 1);
    }
    if (at_ == start) return error_at("expected a number of repetitions");
    if (value > kMaxRepeats) {
      at_ = start;
      return error_at("a repetition of more than " + std::to_string(kMaxRepeats));
    }
    return static_cast<std::uint32_t>(value);
  }

  // A character of a literal or class, which may be an escape.
  Result<std::uint32_t> take_char() {
    if (!at('\\')) {
      const std::size_t n = utf8_char_bytes(text_.substr(at_));
      if (n == 0) return error_at("bytes that are not UTF-8");
      const std::uint32_t value = first_code_point(text_.substr(at_));
      at_ += n;
      return value;
    }
    const char c = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    const std::size_t n_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (n_digits != 0) {
      std::uint32_t value = 0;
      for (std::size_t i = 0; i < n_digits; ++i) {
        const int digit = at_ + 2 + i < text_.size() ? hex_digit(text_[at_ + 2 + i]) : -1;
        if (digit < 0) {
          return error_at("expected " + std::to_string(n_digits) + " hexadecimal digits");
        }
        value = value << 4 | static_cast<std::uint32_t>(digit);
      }
      if (value > kLastCodePoint || is_surrogate(value)) return error_at("not a character");
      at_ += 2 + n_digits;
      return value;
    }
    static constexpr std::pair<char, char> kEscapes[] = {{'t', '\t'},  {'r', '\r'}, {'n', '\n'},
                                                         {'\\', '\\'}, {'"', '"'},  {'[', '['},
                                                         {']', ']'},   {'-', '-'}};
    for (const auto& [name, value] : kEscapes) {
      if (c != name) continue;
      at_ += 2;
      return static_cast<unsigned char>(value);
    }
    return error_at("unknown escape; known are \\t \\r \\n \\\\ \\\" \\[ \\] \\- \\x \\u \\U");
  }

  Result<ExprId> parse_literal() {
    const std::size_t open = at_++;
    std::string bytes;
    while (!at('"')) {
      if (at_ >= text_.size() || at('\n')) {
        at_ = open;
        return error_at("a literal without its closing quote");
      }
      QSF_ASSIGN_OR_RETURN(const std::uint32_t c, take_char());
      append_code_point(c, bytes);
    }
    ++at_;
    return rules_.literal(bytes);
  }

  Result<ExprId> parse_class() {
    const std::size_t open = at_++;
    const bool negated = at('^');
    if (negated) ++at_;
    CharSet set;
    while (!at(']')) {
      if (at_ >= text_.size() || at('\n')) {
        at_ = open;
        return error_at("a character class without its ]");
      }
      const std::size_t start = at_;
      QSF_ASSIGN_OR_RETURN(const std::uint32_t first, take_char());
      std::uint32_t last = first;
      if (at('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        QSF_ASSIGN_OR_RETURN(last, take_char());
      }
      if (last < first) {
        at_ = start;
        return error_at("a range whose end comes before its beginning");
      }
      set.add(first, last);
    }
    ++at_;
    return rules_.char_class(negated ? set.complement() : set);
  }

  // Finds the end of the JSON value by its brackets; what is inside is the schema parser's.
  Result<ExprId> parse_json(std::size_t depth) {
    const std::size_t where = at_;
    at_ += std::string_view("%json").size();
    skip_space(true);
    const std::size_t start = at_;
    std::size_t n_open = 0;
    bool in_text = false;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (in_text) {
        if (c == '\\') ++at_;
        in_text = c != '"';
        continue;
      }
      in_text = c == '"';
      if (c == '{' || c == '[') ++n_open;
      if (n_open == 0 && !is_name_char(c)) break;
      if ((c == '}' || c == ']') && --n_open == 0) {
        ++at_;
        break;
      }
    }
    at_ = std::min(at_, text_.size());
    Result<ExprId> schema = add_json_schema(rules_, text_.substr(start, at_ - start), depth);
    if (schema.has_value()) return schema;
    at_ = where;
    return error_at("%json: " + schema.error().message());
  }

  std::string_view text_;
  std::size_t at_ = 0;
  GrammarRules rules_;
  std::map<std::string_view, NamedRule> rules_by_name_;
};

}  // namespace

Result<GrammarRules> parse_gbnf(std::string_view text) {
  return GbnfParser(text).run();
}

}  // namespace qsf
