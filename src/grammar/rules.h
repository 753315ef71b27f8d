// SPDX-License-Identifier: MIT
//
// GrammarRules: a grammar as rules over expressions, what GBNF and JSON Schema are read into.
//
// Expressions are numbers of this object. An expression may be used at several places; each use is
// compiled again, so that what is used often should be a rule.

#ifndef QSF_GRAMMAR_RULES_H_
#define QSF_GRAMMAR_RULES_H_

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "grammar/char_set.h"

namespace qsf {

using ExprId = std::uint32_t;
using RuleId = std::uint32_t;

inline constexpr std::uint32_t kUnbounded = std::numeric_limits<std::uint32_t>::max();

// Bounds of what a source may become, before and after it is compiled.
inline constexpr std::size_t kMaxGrammarBytes = 256 << 10;
inline constexpr std::size_t kMaxGrammarDepth = 64;      // of groups, schemas and expressions
inline constexpr std::size_t kMaxNamedRules = 10'000;    // in a GBNF text
inline constexpr std::size_t kMaxExpressions = 400'000;  // 16 bytes each
inline constexpr std::uint32_t kMaxRepeats = 1'000'000'000;

struct Expression {
  enum class Kind : std::uint8_t { kLiteral, kClass, kSequence, kChoice, kRepeat, kRule };
  Kind kind;
  std::uint32_t first;  // literal, sequence, choice: where it begins; class, rule, repeat: of what
  std::uint32_t count;  // literal, sequence, choice: how many; repeat: the least number
  std::uint32_t most = 0;  // of a repeat, or kUnbounded
};

class GrammarRules {
 public:
  ExprId literal(std::string_view bytes);
  ExprId empty() { return literal({}); }
  ExprId char_class(const CharSet& set);
  ExprId sequence(std::span<const ExprId> parts);
  ExprId sequence(std::initializer_list<ExprId> parts) {
    return sequence(std::span(parts.begin(), parts.size()));
  }
  // Without a part it is what nothing matches.
  ExprId choice(std::span<const ExprId> parts);
  ExprId choice(std::initializer_list<ExprId> parts) {
    return choice(std::span(parts.begin(), parts.size()));
  }
  ExprId repeat(ExprId part, std::uint32_t least, std::uint32_t most);
  ExprId optional(ExprId part) { return repeat(part, 0, 1); }
  ExprId rule(RuleId id);

  RuleId add_rule(std::string_view name);
  void define(RuleId rule, ExprId expression);
  // A rule for an expression that is used more than once, and a use of it.
  ExprId named(std::string_view name, ExprId expression);

  // kInvalidArgument when there are too many expressions; the later ones are then the first.
  Status check_size() const;

  RuleId root = 0;

  std::size_t n_rules() const noexcept { return rules_.size(); }
  std::size_t n_expressions() const noexcept { return expressions_.size(); }
  const std::string& rule_name(RuleId id) const { return rules_[id].name; }
  bool is_defined(RuleId id) const { return rules_[id].defined; }
  ExprId definition(RuleId id) const { return rules_[id].expression; }
  const Expression& expression(ExprId id) const { return expressions_[id]; }
  std::string_view literal_bytes(const Expression& e) const {
    return std::string_view(literals_).substr(e.first, e.count);
  }
  std::span<const ExprId> parts(const Expression& e) const {
    return std::span(parts_).subspan(e.first, e.count);
  }
  const CharSet& set_at(std::uint32_t index) const { return sets_[index]; }

 private:
  struct Rule {
    std::string name;
    ExprId expression = 0;
    bool defined = false;
  };
  ExprId add(Expression expression);
  ExprId list(Expression::Kind kind, std::span<const ExprId> parts);

  std::vector<Rule> rules_;
  std::vector<Expression> expressions_;
  std::vector<ExprId> parts_;
  std::vector<CharSet> sets_;
  std::string literals_;
  std::size_t n_ranges_ = 0;
  bool too_large_ = false;
};

}  // namespace qsf

#endif  // QSF_GRAMMAR_RULES_H_
