// SPDX-License-Identifier: MIT
//
// Regular expressions of JSON Schema as expressions over the text inside a JSON string.
//
// Understood: alternation, groups, classes, . \d \w \s and their complements, escapes, greedy and
// lazy quantifiers with counts, ^ and $ at the ends of an alternative of the whole. Not:
// references, look-around, word boundaries, Unicode properties, flags.

#ifndef QSF_GRAMMAR_JSON_PATTERN_H_
#define QSF_GRAMMAR_JSON_PATTERN_H_

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "grammar/rules.h"

namespace qsf {

// The characters of a pattern or string as they are written in a JSON string.
ExprId json_text_class(GrammarRules& rules, const CharSet& set);
// Any character of a JSON string, escapes included.
ExprId json_text_char(GrammarRules& rules);
// The text of a JSON string without its quotes.
std::string json_text(std::string_view text);

// Characters of the shortest and longest text; kUnbounded: no limit.
struct LengthBounds {
  std::uint64_t least = 0;
  std::uint64_t most = kUnbounded;
};

// The texts of `length` that match a pattern.
// Fails  kUnsupported for what is not understood, also where `length` cuts texts with more than one
//        part of any length; kInvalidArgument for a syntax error, which names the position in the
//        pattern, and where no text matches
Result<ExprId> parse_json_pattern(GrammarRules& rules, std::string_view pattern,
                                  LengthBounds length = {});

// The pattern of a value of `format`, or null for one that is not known.
const char* json_format_pattern(std::string_view format);

}  // namespace qsf

#endif  // QSF_GRAMMAR_JSON_PATTERN_H_
