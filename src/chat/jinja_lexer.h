// SPDX-License-Identifier: MIT
//
// Splits a template into tokens, with the whitespace rules of transformers' environment: the
// newline after a block tag or comment is dropped (trim_blocks), so is the space before one that
// begins its line (lstrip_blocks); `-` strips all white space at its side, `+` none; a newline at
// the end of the source is dropped.
//
// Based on: the documentation of Jinja 3.1 ("Whitespace Control" and the API's environment
// options), checked against the real one by testdata/chat.

#ifndef QSF_CHAT_JINJA_LEXER_H_
#define QSF_CHAT_JINJA_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace qsf::jinja {

enum class TokenKind : std::uint8_t {
  kData,  // text outside tags
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kString,  // with its escapes replaced
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  int line;
  std::string text;  // data, name, string, or the operator's spelling
  std::int64_t integer = 0;
  double number = 0;

  bool is_operator(std::string_view spelling) const {
    return kind == TokenKind::kOperator && text == spelling;
  }
  bool is_name(std::string_view name) const { return kind == TokenKind::kName && text == name; }
};

// Returns the tokens of `source`, the last of them kEnd.
// Fails  kCorrupt: an unfinished tag, comment or string, brackets that do not match, an invalid
//        character or escape. kUnsupported: integers beyond 64 bits or not decimal, \N{} escapes,
//        names beyond ASCII, raw blocks
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_LEXER_H_
