// SPDX-License-Identifier: MIT
//
// Parser of GBNF, llama.cpp's notation of grammars, with one element more: `%json VALUE` stands for
// a JSON value of the JSON Schema that is written behind it.

#ifndef QSF_GRAMMAR_GBNF_PARSER_H_
#define QSF_GRAMMAR_GBNF_PARSER_H_

#include <string_view>

#include "base/result.h"
#include "grammar/rules.h"

namespace qsf {

// Fails  kInvalidArgument with line and column: a syntax error, a rule without a definition or with
//        two, no rule `root`, more than kMaxNamedRules rules or kMaxGrammarDepth groups; and as
//        add_json_schema for a schema
Result<GrammarRules> parse_gbnf(std::string_view text);

}  // namespace qsf

#endif  // QSF_GRAMMAR_GBNF_PARSER_H_
