// SPDX-License-Identifier: MIT
//
// Parses the source of a template, by recursive descent with Jinja's precedences.
//
// Accepts the constructs that templates of public models use and refuses the rest of Jinja by name.
//
// Based on: the grammar of Jinja 3.1.

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
