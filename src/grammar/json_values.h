// SPDX-License-Identifier: MIT
//
// The rules of JSON values that schemas are made of. Rules that many schemas use are made once.

#ifndef QSF_GRAMMAR_JSON_VALUES_H_
#define QSF_GRAMMAR_JSON_VALUES_H_

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/rules.h"

namespace qsf {

// A member of an object: its name, colon and value.
struct JsonObjectMember {
  ExprId member;
  bool required;
};

class JsonValueRules {
 public:
  explicit JsonValueRules(GrammarRules& rules) : rules_(rules) {}

  ExprId text(std::string_view bytes) { return rules_.literal(bytes); }
  // White space: none, one space, or a line break and blanks.
  ExprId space() { return shared("space", &JsonValueRules::make_space); }
  ExprId string() { return shared("string", &JsonValueRules::make_string); }
  ExprId integer() { return shared("integer", &JsonValueRules::make_integer); }
  ExprId number() { return shared("number", &JsonValueRules::make_number); }
  ExprId value() { return shared("value", &JsonValueRules::make_value); }
  // The string of exactly this text.
  ExprId quoted(std::string_view of);

  ExprId member_of(ExprId key, ExprId of);
  ExprId after_comma(ExprId part);
  ExprId braces(ExprId inner, bool may_be_empty) { return enclosed("{", inner, may_be_empty, "}"); }
  ExprId brackets(ExprId inner, bool may_be_empty) {
    return enclosed("[", inner, may_be_empty, "]");
  }
  ExprId no_members() { return rules_.sequence({text("{"), space(), text("}")}); }
  ExprId no_elements() { return rules_.sequence({text("["), space(), text("]")}); }

  // An object with its members in order, then any number of `further` ones.
  ExprId members_of(const std::vector<JsonObjectMember>& members,
                    const std::optional<ExprId>& further);
  // A string that is none of the names.
  ExprId other_key(std::span<const std::string> names);

 private:
  ExprId shared(const char* name, ExprId (JsonValueRules::*make)());
  ExprId enclosed(std::string_view open, ExprId inner, bool may_be_empty, std::string_view close);
  ExprId make_space();
  ExprId make_string();
  ExprId make_integer();
  ExprId make_number();
  ExprId make_value();
  ExprId make_object();
  ExprId make_array();

  GrammarRules& rules_;
  std::map<std::string, RuleId> shared_;
};

}  // namespace qsf

#endif  // QSF_GRAMMAR_JSON_VALUES_H_
