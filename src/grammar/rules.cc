// SPDX-License-Identifier: MIT

#include "grammar/rules.h"

#include <utility>

#include "base/ranges.h"

namespace qsf {

ExprId GrammarRules::add(Expression expression) {
  if (expressions_.size() >= kMaxExpressions || parts_.size() > 2 * kMaxExpressions) {
    too_large_ = true;
    return 0;
  }
  expressions_.push_back(expression);
  return static_cast<ExprId>(expressions_.size() - 1);
}

ExprId GrammarRules::literal(std::string_view bytes) {
  const auto first = static_cast<std::uint32_t>(literals_.size());
  if (literals_.size() + bytes.size() > 8 * kMaxGrammarBytes) {
    too_large_ = true;
    return 0;
  }
  literals_ += bytes;
  return add({Expression::Kind::kLiteral, first, static_cast<std::uint32_t>(bytes.size())});
}

ExprId GrammarRules::char_class(const CharSet& set) {
  // Sets that are used again are mostly used again soon.
  constexpr std::size_t kLookedAt = 32;
  const std::size_t n = sets_.size();
  for (std::size_t i = n; i > 0 && n - i < kLookedAt; --i) {
    if (ranges::equal(set.ranges(), sets_[i - 1].ranges())) {
      return add({Expression::Kind::kClass, static_cast<std::uint32_t>(i - 1), 0});
    }
  }
  n_ranges_ += set.ranges().size();
  if (n_ranges_ > kMaxExpressions) {
    too_large_ = true;
    return 0;
  }
  sets_.push_back(set);
  return add({Expression::Kind::kClass, static_cast<std::uint32_t>(n), 0});
}

ExprId GrammarRules::list(Expression::Kind kind, std::span<const ExprId> parts) {
  if (parts.size() == 1) return parts[0];
  const auto first = static_cast<std::uint32_t>(parts_.size());
  parts_.insert(parts_.end(), parts.begin(), parts.end());
  return add({kind, first, static_cast<std::uint32_t>(parts.size())});
}

ExprId GrammarRules::sequence(std::span<const ExprId> parts) {
  return list(Expression::Kind::kSequence, parts);
}

ExprId GrammarRules::choice(std::span<const ExprId> parts) {
  return list(Expression::Kind::kChoice, parts);
}

ExprId GrammarRules::repeat(ExprId part, std::uint32_t least, std::uint32_t most) {
  if (least == 1 && most == 1) return part;
  return add({Expression::Kind::kRepeat, part, least, most});
}

ExprId GrammarRules::rule(RuleId id) {
  return add({Expression::Kind::kRule, id, 0});
}

RuleId GrammarRules::add_rule(std::string_view name) {
  rules_.push_back({std::string(name)});
  return static_cast<RuleId>(rules_.size() - 1);
}

void GrammarRules::define(RuleId rule, ExprId expression) {
  rules_[rule].expression = expression;
  rules_[rule].defined = true;
}

ExprId GrammarRules::named(std::string_view name, ExprId expression) {
  const RuleId id = add_rule(name);
  define(id, expression);
  return rule(id);
}

Status GrammarRules::check_size() const {
  if (!too_large_) return ok_status();
  return invalid_argument("the grammar is too large: more than %zu expressions; make it smaller",
                          kMaxExpressions);
}

}  // namespace qsf
