// SPDX-License-Identifier: MIT
//
// JSON Schema as grammar rules: the texts of the JSON values that a schema describes.
//
// Members of an object come in the order of `properties`, then additional ones. An object schema
// with `properties` but without `additionalProperties` allows no others. oneOf is anyOf. White
// space is one space, or a line break and up to 64 blanks, behind { [ , : and before } ]. Integers
// have up to 18 digits, and so have both parts of a number; strings hold no lone surrogates.
// A keyword that changes the meaning and is not supported is an error that names its JSON path.

#ifndef QSF_GRAMMAR_JSON_SCHEMA_H_
#define QSF_GRAMMAR_JSON_SCHEMA_H_

#include <cstddef>
#include <string_view>

#include "base/result.h"
#include "grammar/rules.h"

namespace qsf {

// Adds the rules of a schema, which lies in `depth` groups, and returns its expression.
// Fails  kInvalidArgument: not JSON, or a schema that nothing matches, too large or too deep;
//        kUnsupported: a keyword or value that is not supported. The message names the JSON path
Result<ExprId> add_json_schema(GrammarRules& rules, std::string_view schema, std::size_t depth = 0);

// The same as a grammar of its own.
Result<GrammarRules> parse_json_schema(std::string_view schema);
// The grammar of any JSON object.
Result<GrammarRules> json_object_rules();

}  // namespace qsf

#endif  // QSF_GRAMMAR_JSON_SCHEMA_H_
