// SPDX-License-Identifier: MIT
//
// Source of a template to its tree, by recursive descent with Jinja's own precedences.
//
// Based on: the grammar of Jinja 3.1; where it differs from Python's (a minus binds tighter than
// **, ** groups to the left), so does this.

#ifndef QSF_CHAT_JINJA_PARSER_H_
#define QSF_CHAT_JINJA_PARSER_H_

#include <string_view>

#include "base/result.h"
#include "chat/jinja_ast.h"

namespace qsf::jinja {

// Fails  as ChatTemplate::parse
Result<Program> parse_program(std::string_view source);

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_PARSER_H_
