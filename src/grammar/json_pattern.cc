// SPDX-License-Identifier: MIT

#include "grammar/json_pattern.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grammar/utf8_code_points.h"

namespace qsf {

namespace {

constexpr std::uint64_t kNoLimit = kUnbounded;
// Ways of dividing the length of a text between the parts of a sequence.
constexpr std::uint64_t kMaxDivisions = 64;
// Parts looked at to keep a length: divisions within divisions multiply.
constexpr std::size_t kMaxVisits = 100'000;
constexpr CharRange kControls{0, 0x1F};

// Escapes of one letter in a JSON string; what they stand for must not stand there itself.
constexpr std::array<std::pair<char, char>, 7> kShortEscapes = {
    {{'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}}};

const CharSet& digits() {
  static const CharSet set({{'0', '9'}});
  return set;
}
const CharSet& word_chars() {
  static const CharSet set({{'a', 'z'}, {'A', 'Z'}, {'0', '9'}, {'_', '_'}});
  return set;
}
const CharSet& spaces() {
  static const CharSet set({{'\t', '\r'},
                            {' ', ' '},
                            {0xA0, 0xA0},
                            {0x1680, 0x1680},
                            {0x2000, 0x200A},
                            {0x2028, 0x2029},
                            {0x202F, 0x202F},
                            {0x205F, 0x205F},
                            {0x3000, 0x3000},
                            {0xFEFF, 0xFEFF}});
  return set;
}
const CharSet& line_ends() {
  static const CharSet set({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
  return set;
}

std::string u_escape(std::uint32_t code_point) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out.push_back(kHex[code_point >> shift & 0xF]);
  return out;
}

// A part of a pattern. Lengths are in characters of the text, not of its escapes.
struct PatternNode {
  enum class Kind : std::uint8_t { kChar, kSequence, kChoice, kRepeat };
  Kind kind = Kind::kSequence;
  ExprId one = 0;                  // of a character
  std::vector<std::size_t> parts;  // of a sequence or a choice; the one of a repeat
  std::uint32_t least = 0;         // of a repeat
  std::uint32_t most = 0;
  std::uint64_t shortest = 0;
  std::uint64_t longest = 0;  // kNoLimit: none
};

std::uint64_t sum_of(std::uint64_t a, std::uint64_t b) {
  return std::min(a + b, kNoLimit);
}

std::uint64_t product_of(std::uint64_t length, std::uint64_t n) {
  if (length == 0 || n == 0) return 0;
  return length >= kNoLimit || n >= kNoLimit ? kNoLimit : std::min(length * n, kNoLimit);
}

class PatternParser {
 public:
  PatternParser(GrammarRules& rules, std::string_view pattern) : rules_(rules), text_(pattern) {}

  Result<ExprId> run(LengthBounds length) {
    QSF_ASSIGN_OR_RETURN(const NodeId pattern, parse_choice(0));
    if (at_ < text_.size()) return error_at("a ) without its (");
    QSF_ASSIGN_OR_RETURN(const std::optional<ExprId> bounded, bound(pattern, length));
    if (!bounded) return invalid_argument("no text of an allowed length matches");
    return *bounded;
  }

 private:
  using NodeId = std::size_t;

  Status error_at(const char* what) const {
    return invalid_argument("pattern, position %zu: %s", at_, what);
  }
  Status unsupported_at(const char* what) const {
    return unsupported("pattern, position %zu: %s is not supported", at_, what);
  }
  bool at(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool at(std::string_view word) const { return text_.substr(at_).starts_with(word); }

  // Alternatives; those of the whole match anywhere in the text unless ^ and $ say otherwise.
  Result<NodeId> parse_choice(std::size_t depth) {
    if (depth > kMaxGrammarDepth) return error_at("too many groups in each other");
    PatternNode all;
    all.kind = PatternNode::Kind::kChoice;
    all.shortest = kNoLimit;
    for (;;) {
      QSF_ASSIGN_OR_RETURN(const NodeId one, parse_sequence(depth));
      all.parts.push_back(one);
      all.shortest = std::min(all.shortest, nodes_[one].shortest);
      all.longest = std::max(all.longest, nodes_[one].longest);
      if (!at('|')) break;
      ++at_;
    }
    return add(std::move(all));
  }

  Result<NodeId> parse_sequence(std::size_t depth) {
    PatternNode all;
    const bool outer = depth == 0;
    bool begins = false;
    bool ends = false;
    while (at('^')) {
      if (!outer) return unsupported_at("^ in a group");
      begins = true;
      ++at_;
    }
    if (outer && !begins) append(all, any_text());
    while (at_ < text_.size() && !at('|') && !at(')')) {
      if (at('$')) {
        if (!outer) return unsupported_at("$ in a group");
        ends = true;
        ++at_;
        if (at_ < text_.size() && !at('|')) return unsupported_at("$ before the end");
        break;
      }
      QSF_ASSIGN_OR_RETURN(NodeId part, parse_element(depth));
      QSF_ASSIGN_OR_RETURN(part, parse_repeats(part));
      append(all, part);
    }
    if (outer && !ends) append(all, any_text());
    return add(std::move(all));
  }

  NodeId add(PatternNode node) {
    nodes_.push_back(std::move(node));
    return nodes_.size() - 1;
  }

  void append(PatternNode& sequence, NodeId part) {
    sequence.parts.push_back(part);
    sequence.shortest = sum_of(sequence.shortest, nodes_[part].shortest);
    sequence.longest = sum_of(sequence.longest, nodes_[part].longest);
  }

  NodeId one_char(ExprId expression) {
    PatternNode node;
    node.kind = PatternNode::Kind::kChar;
    node.one = expression;
    node.shortest = node.longest = 1;
    return add(std::move(node));
  }
  NodeId one_char(const CharSet& set) { return one_char(json_text_class(rules_, set)); }

  NodeId repeat(NodeId part, std::uint32_t least, std::uint32_t most) {
    PatternNode node;
    node.kind = PatternNode::Kind::kRepeat;
    node.parts = {part};
    node.least = least;
    node.most = most;
    node.shortest = product_of(nodes_[part].shortest, least);
    node.longest = product_of(nodes_[part].longest, most);
    return add(std::move(node));
  }

  NodeId any_text() { return repeat(one_char(json_text_char(rules_)), 0, kUnbounded); }

  Result<NodeId> parse_element(std::size_t depth) {
    if (at('(')) return parse_group(depth);
    if (at('[')) {
      QSF_ASSIGN_OR_RETURN(const CharSet set, parse_class());
      return one_char(set);
    }
    if (at('.')) {
      ++at_;
      return one_char(line_ends().complement());
    }
    if (at('*') || at('+') || at('?')) return error_at("nothing to repeat");
    if (at('^')) return unsupported_at("^ behind the beginning");
    if (at("\\b") || at("\\B")) return unsupported_at("a word boundary");
    if (at('\\') && at_ + 1 < text_.size() &&
        ((text_[at_ + 1] >= '1' && text_[at_ + 1] <= '9') || text_[at_ + 1] == 'k')) {
      return unsupported_at("a reference to a group");
    }
    CharSet set;
    TakenChar taken_char = take_char(set);
    QSF_RETURN_IF_ERROR(std::move(taken_char.status));
    return one_char(set);
  }

  Result<NodeId> parse_group(std::size_t depth) {
    ++at_;
    if (at('?')) {
      if (at("?:")) {
        at_ += 2;
      } else if (at("?<") && !at("?<=") && !at("?<!")) {
        while (at_ < text_.size() && !at('>')) ++at_;
        if (!at('>')) return error_at("the name of a group has no end");
        ++at_;
      } else {
        return unsupported_at("a look-around or a flag");
      }
    }
    QSF_ASSIGN_OR_RETURN(const NodeId group, parse_choice(depth + 1));
    if (!at(')')) return error_at("a ( without its )");
    ++at_;
    return group;
  }

  // What take_char() read: one character, or a set such as \d, which no range may begin or end
  // with.
  struct TakenChar {
    Status status;
    std::uint32_t code_point = 0;
    bool is_set = false;
  };

  TakenChar failed(Status status) { return {std::move(status)}; }
  TakenChar taken(CharSet& set, std::uint32_t code_point) {
    set.add(code_point);
    return {ok_status(), code_point};
  }
  TakenChar taken_set(CharSet& set, const CharSet& other) {
    set.add(other);
    return {ok_status(), 0, true};
  }

  // Adds the character or the set of an escape to `set`.
  TakenChar take_char(CharSet& set) {
    if (!at('\\')) {
      const std::size_t n = utf8_char_bytes(text_.substr(at_));
      if (n == 0) return failed(error_at("bytes that are not UTF-8"));
      const std::uint32_t value = first_code_point(text_.substr(at_));
      at_ += n;
      return taken(set, value);
    }
    if (at_ + 1 == text_.size()) return failed(error_at("a \\ at the end"));
    const char c = text_[at_ + 1];
    if (c == 'x' || c == 'u') return take_hex(set, c);
    at_ += 2;
    switch (c) {
      case 'd': return taken_set(set, digits());
      case 'D': return taken_set(set, digits().complement());
      case 'w': return taken_set(set, word_chars());
      case 'W': return taken_set(set, word_chars().complement());
      case 's': return taken_set(set, spaces());
      case 'S': return taken_set(set, spaces().complement());
      case 't': return taken(set, '\t');
      case 'n': return taken(set, '\n');
      case 'r': return taken(set, '\r');
      case 'v': return taken(set, '\v');
      case 'f': return taken(set, '\f');
      case 'b': return taken(set, '\b');  // of a class alone
      case '0': return taken(set, 0);
      default: break;
    }
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    at_ -= 2;
    if (is_letter) return failed(unsupported_at("this escape"));
    ++at_;
    const std::size_t n = utf8_char_bytes(text_.substr(at_));
    if (n == 0) return failed(error_at("bytes that are not UTF-8"));
    const std::uint32_t value = first_code_point(text_.substr(at_));
    at_ += n;
    return taken(set, value);
  }

  bool take_digits(std::size_t n, std::uint32_t& value) {
    value = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const int digit = at_ + i < text_.size() ? hex_digit(text_[at_ + i]) : -1;
      if (digit < 0) return false;
      value = value << 4 | static_cast<std::uint32_t>(digit);
    }
    at_ += n;
    return true;
  }

  TakenChar take_hex(CharSet& set, char kind) {
    at_ += 2;
    std::uint32_t value = 0;
    if (kind == 'u' && at('{')) {
      ++at_;
      std::size_t n = 0;
      while (n < 6 && at_ + n < text_.size() && hex_digit(text_[at_ + n]) >= 0) ++n;
      if (!take_digits(n, value) || !at('}') || value > kLastCodePoint) {
        return failed(error_at("expected the hexadecimal number of a character and }"));
      }
      ++at_;
    } else if (!take_digits(kind == 'u' ? 4 : 2, value)) {
      return failed(error_at("expected hexadecimal digits"));
    }
    if (is_surrogate(value) && at("\\u")) {
      const std::uint32_t high = value;
      at_ += 2;
      std::uint32_t low = 0;
      if (!take_digits(4, low) || high > 0xDBFF || low < 0xDC00 || low > 0xDFFF) {
        return failed(error_at("half a surrogate pair"));
      }
      value = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    }
    if (is_surrogate(value)) return failed(error_at("half a surrogate pair"));
    return taken(set, value);
  }

  Result<CharSet> parse_class() {
    ++at_;
    const bool negated = at('^');
    if (negated) ++at_;
    CharSet set;
    while (!at(']')) {
      if (at_ >= text_.size()) return error_at("a [ without its ]");
      TakenChar first = take_char(set);
      QSF_RETURN_IF_ERROR(std::move(first.status));
      if (!at('-') || at_ + 1 >= text_.size() || text_[at_ + 1] == ']') continue;
      ++at_;
      TakenChar last = take_char(set);
      QSF_RETURN_IF_ERROR(std::move(last.status));
      if (first.is_set || last.is_set) {
        set.add('-');
        continue;
      }
      if (last.code_point < first.code_point) return error_at("a range that ends before it begins");
      set.add(first.code_point, last.code_point);
    }
    ++at_;
    return negated ? set.complement() : set;
  }

  Result<NodeId> parse_repeats(NodeId part) {
    std::uint32_t least = 0;
    std::uint32_t most = kUnbounded;
    if (at('*')) {
      ++at_;
    } else if (at('+')) {
      least = 1;
      ++at_;
    } else if (at('?')) {
      most = 1;
      ++at_;
    } else if (!at('{') || !take_counts(least, most)) {
      return part;
    }
    if (most < least) return error_at("a quantifier whose end is less than its beginning");
    if (at('?')) ++at_;  // lazy: the same texts
    if (at('*') || at('+') || at('?')) return error_at("a quantifier behind a quantifier");
    return repeat(part, least, most);
  }

  // Reads {m}, {m,} or {m,n}; anything else is a literal brace.
  bool take_counts(std::uint32_t& least, std::uint32_t& most) {
    const std::size_t open = at_++;
    const auto take = [this](std::uint32_t& value) {
      const std::size_t start = at_;
      std::uint64_t number = 0;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
        number = std::min<std::uint64_t>(number * 10 + static_cast<unsigned>(text_[at_++] - '0'),
                                         kMaxRepeats);
      }
      value = static_cast<std::uint32_t>(number);
      return at_ > start;
    };
    bool is_count = take(least);
    most = least;
    if (is_count && at(',')) {
      ++at_;
      most = kUnbounded;
      if (!at('}')) is_count = take(most);
    }
    if (is_count && at('}')) {
      ++at_;
      return true;
    }
    at_ = open;
    least = 1;
    most = 1;
    return false;
  }

  // The expression of a part.
  ExprId expression_of(NodeId id) {
    ++n_visits_;
    const PatternNode& node = nodes_[id];
    std::vector<ExprId> parts;
    switch (node.kind) {
      case PatternNode::Kind::kChar: return node.one;
      case PatternNode::Kind::kRepeat:
        return rules_.repeat(expression_of(node.parts[0]), node.least, node.most);
      case PatternNode::Kind::kSequence:
      case PatternNode::Kind::kChoice: break;
    }
    for (const NodeId part : node.parts) parts.push_back(expression_of(part));
    if (node.kind == PatternNode::Kind::kChoice) return rules_.choice(parts);
    return parts.empty() ? rules_.empty() : rules_.sequence(parts);
  }

  // The texts of a part whose length is within bounds; nothing where there are none.
  Result<std::optional<ExprId>> bound(NodeId id, LengthBounds length) {
    if (++n_visits_ > kMaxVisits) return cut();
    const PatternNode& node = nodes_[id];
    if (node.shortest > length.most || node.longest < length.least) return std::optional<ExprId>();
    if (node.shortest >= length.least && node.longest <= length.most) {
      return std::optional(expression_of(id));
    }
    switch (node.kind) {
      case PatternNode::Kind::kChar: break;  // was within them or not
      case PatternNode::Kind::kRepeat: return bound_repeat(node, length);
      case PatternNode::Kind::kSequence: return bound_sequence(node, length);
      case PatternNode::Kind::kChoice: break;
    }
    std::vector<ExprId> choices;
    for (const NodeId part : node.parts) {
      QSF_ASSIGN_OR_RETURN(const std::optional<ExprId> one, bound(part, length));
      if (one) choices.push_back(*one);
    }
    if (choices.empty()) return std::optional<ExprId>();
    return std::optional(rules_.choice(choices));
  }

  Status cut() const {
    return unsupported(
        "minLength or maxLength that cut texts with several parts of any length; put the lengths "
        "into the pattern");
  }

  Result<std::optional<ExprId>> bound_repeat(const PatternNode& node, LengthBounds length) {
    if (node.most == 1) {  // or none
      QSF_ASSIGN_OR_RETURN(const std::optional<ExprId> once, bound(node.parts[0], length));
      if (length.least > 0) return once;
      return std::optional(once ? rules_.optional(*once) : rules_.empty());
    }
    const PatternNode& part = nodes_[node.parts[0]];
    if (part.shortest != part.longest || part.shortest == 0) return cut();
    const std::uint64_t each = part.shortest;
    const std::uint64_t least =
        std::max<std::uint64_t>(node.least, (length.least + each - 1) / each);
    const std::uint64_t most = length.most >= kNoLimit
                                   ? node.most
                                   : std::min<std::uint64_t>(node.most, length.most / each);
    if (least > most) return std::optional<ExprId>();
    return std::optional(rules_.repeat(expression_of(node.parts[0]),
                                       static_cast<std::uint32_t>(least),
                                       static_cast<std::uint32_t>(most)));
  }

  // The length that is left by the other parts goes to the one whose length varies most. What the
  // others have is tried in turn.
  Result<std::optional<ExprId>> bound_sequence(const PatternNode& node, LengthBounds length) {
    const auto varies = [this](NodeId id) { return nodes_[id].longest - nodes_[id].shortest; };
    const std::vector<NodeId> parts = node.parts;
    const auto widest = static_cast<std::size_t>(
        std::max_element(parts.begin(), parts.end(),
                         [&](NodeId a, NodeId b) { return varies(a) < varies(b); }) -
        parts.begin());
    std::uint64_t n_divisions = 1;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (i != widest) n_divisions = product_of(n_divisions, varies(parts[i]) + 1);
      if (n_divisions > kMaxDivisions) return cut();
    }
    std::vector<ExprId> choices;
    for (std::uint64_t division = 0; division < n_divisions; ++division) {
      std::uint64_t rest = division;
      std::uint64_t others = 0;
      std::vector<std::uint64_t> lengths(parts.size());
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (i == widest) continue;
        lengths[i] = nodes_[parts[i]].shortest + rest % (varies(parts[i]) + 1);
        rest /= varies(parts[i]) + 1;
        others += lengths[i];
      }
      if (others > length.most) continue;
      std::vector<ExprId> sequence;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        LengthBounds own = {lengths[i], lengths[i]};
        if (i == widest) {
          own = {length.least > others ? length.least - others : 0,
                 length.most >= kNoLimit ? kNoLimit : length.most - others};
        }
        QSF_ASSIGN_OR_RETURN(const std::optional<ExprId> one, bound(parts[i], own));
        if (!one) break;
        sequence.push_back(*one);
      }
      if (sequence.size() == parts.size()) choices.push_back(rules_.sequence(sequence));
    }
    if (choices.empty()) return std::optional<ExprId>();
    return std::optional(rules_.choice(choices));
  }

  GrammarRules& rules_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<PatternNode> nodes_;
  std::size_t n_visits_ = 0;
};

}  // namespace

ExprId json_text_class(GrammarRules& rules, const CharSet& set) {
  static const CharSet controls({kControls});
  CharSet never_plain = controls;
  never_plain.add('"');
  never_plain.add('\\');
  std::vector<ExprId> choices;
  const CharSet plain = set.without(never_plain);
  if (!plain.empty()) choices.push_back(rules.char_class(plain));
  CharSet letters;
  CharSet short_ones;
  for (const auto& [character, letter] : kShortEscapes) {
    short_ones.add(static_cast<unsigned char>(character));
    if (set.contains(static_cast<unsigned char>(character))) {
      letters.add(static_cast<unsigned char>(letter));
    }
  }
  if (!letters.empty()) {
    choices.push_back(rules.sequence({rules.literal("\\"), rules.char_class(letters)}));
  }
  if (set.contains(controls)) {
    static const CharSet hex({{'0', '9'}, {'a', 'f'}, {'A', 'F'}});
    choices.push_back(rules.sequence(
        {rules.literal("\\u00"), rules.char_class({{'0', '1'}}), rules.char_class(hex)}));
  } else {
    for (std::uint32_t c = kControls.first; c <= kControls.last; ++c) {
      if (set.contains(c) && !short_ones.contains(c)) choices.push_back(rules.literal(u_escape(c)));
    }
  }
  return rules.choice(choices);
}

ExprId json_text_char(GrammarRules& rules) {
  static const CharSet plain =
      CharSet::all().without(CharSet({kControls, {'"', '"'}, {'\\', '\\'}}));
  static const CharSet hex_digits({{'0', '9'}, {'a', 'f'}, {'A', 'F'}});
  const ExprId hex = rules.char_class(hex_digits);
  const ExprId d = rules.char_class({{'d', 'd'}, {'D', 'D'}});
  const ExprId two = rules.repeat(hex, 2, 2);
  const ExprId single = rules.choice(
      {rules.sequence(
           {rules.char_class({{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}}),
            rules.repeat(hex, 3, 3)}),
       rules.sequence({d, rules.char_class({{'0', '7'}}), two})});
  const ExprId pair =
      rules.sequence({d, rules.char_class({{'8', '9'}, {'a', 'b'}, {'A', 'B'}}), two,
                      rules.literal("\\u"), d, rules.char_class({{'c', 'f'}, {'C', 'F'}}), two});
  const ExprId letter = rules.char_class({{'"', '"'},
                                          {'\\', '\\'},
                                          {'/', '/'},
                                          {'b', 'b'},
                                          {'f', 'f'},
                                          {'n', 'n'},
                                          {'r', 'r'},
                                          {'t', 't'}});
  const ExprId escape =
      rules.choice({letter, rules.sequence({rules.literal("u"), rules.choice({single, pair})})});
  return rules.choice({rules.char_class(plain), rules.sequence({rules.literal("\\"), escape})});
}

std::string json_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto* const escape = std::find_if(kShortEscapes.begin(), kShortEscapes.end(),
                                            [c](const auto& entry) { return entry.first == c; });
    if (escape != kShortEscapes.end()) {
      out.push_back('\\');
      out.push_back(escape->second);
    } else if (static_cast<unsigned char>(c) <= kControls.last) {
      out += u_escape(static_cast<unsigned char>(c));
    } else {
      out.push_back(c);
    }
  }
  return out;
}

Result<ExprId> parse_json_pattern(GrammarRules& rules, std::string_view pattern,
                                  LengthBounds length) {
  return PatternParser(rules, pattern).run(length);
}

// The parts of a date are spelt out, so that every date exists.
#define QSF_YEAR "(?:\\d{3}[1-9]|\\d{2}[1-9]0|\\d[1-9]00|[1-9]000)"
#define QSF_LEAP_YEAR \
  "(?:\\d{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define QSF_DATE                                                                         \
  "(?:" QSF_YEAR                                                                         \
  "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|" \
  "02-(?:0[1-9]|1\\d|2[0-8]))|" QSF_LEAP_YEAR "-02-29)"
#define QSF_TIME \
  "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define QSF_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define QSF_HOST QSF_LABEL "(?:\\." QSF_LABEL "){0,3}"
#define QSF_OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define QSF_IPV4 QSF_OCTET "(?:\\." QSF_OCTET "){3}"
#define QSF_HEX16 "[0-9A-Fa-f]{1,4}"
#define QSF_PATH_CHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})"

const char* json_format_pattern(std::string_view format) {
  static constexpr std::pair<std::string_view, const char*> kPatterns[] = {
      {"date", "^" QSF_DATE "$"},
      {"time", "^" QSF_TIME "$"},
      {"date-time", "^" QSF_DATE "T" QSF_TIME "$"},
      {"duration",
       "^P(?:\\d{1,9}W|(?:\\d{1,9}Y(?:\\d{1,9}M(?:\\d{1,9}D)?)?|\\d{1,9}M(?:\\d{1,9}D)?|\\d{1,9}D)"
       "(?:T(?:\\d{1,9}H(?:\\d{1,9}M(?:\\d{1,9}S)?)?|\\d{1,9}M(?:\\d{1,9}S)?|\\d{1,9}S))?|"
       "T(?:\\d{1,9}H(?:\\d{1,9}M(?:\\d{1,9}S)?)?|\\d{1,9}M(?:\\d{1,9}S)?|\\d{1,9}S))$"},
      {"uuid", "^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$"},
      {"email", "^[A-Za-z0-9_+-]{1,32}(?:\\.[A-Za-z0-9_+-]{1,32}){0,1}@" QSF_LABEL
                "(?:\\." QSF_LABEL "){1,3}$"},
      {"hostname", "^" QSF_HOST "$"},
      {"ipv4", "^" QSF_IPV4 "$"},
      {"ipv6", "^(?:(?:" QSF_HEX16 ":){7}" QSF_HEX16 "|::(?:" QSF_HEX16 "(?::" QSF_HEX16
               "){0,6})?|" QSF_HEX16 "::(?:" QSF_HEX16 "(?::" QSF_HEX16 "){0,5})?|" QSF_HEX16
               "(?::" QSF_HEX16 "){1,2}::(?:" QSF_HEX16 "(?::" QSF_HEX16 "){0,3})?|" QSF_HEX16
               "(?::" QSF_HEX16 "){3,4}::(?:" QSF_HEX16 "(?::" QSF_HEX16 "){0,1})?|" QSF_HEX16
               "(?::" QSF_HEX16 "){5,6}::)$"},
      {"uri", "^[A-Za-z][A-Za-z0-9+.-]{0,15}://" QSF_HOST "(?::[0-9]{1,5})?(?:/" QSF_PATH_CHAR
              "*)?(?:#" QSF_PATH_CHAR "*)?$"},
  };
  for (const auto& [name, pattern] : kPatterns) {
    if (name == format) return pattern;
  }
  return nullptr;
}

}  // namespace qsf
