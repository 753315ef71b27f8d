// SPDX-License-Identifier: MIT
//
// Tokens of a template, with the whitespace rules of transformers' environment applied: one newline
// after a block or comment tag goes (trim_blocks), so does the space before one that begins its
// line (lstrip_blocks), `-` strips all and `+` nothing, and one newline at the end of the source is
// dropped.
//
// Based on: the documented behaviour of Jinja 3.1 ("Whitespace Control" and the API's environment
// options), held to the real one by testdata/chat.

#ifndef QSF_CHAT_JINJA_LEXER_H_
#define QSF_CHAT_JINJA_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace qsf::jinja {

enum class TokenKind : std::uint8_t {
  kData,  // text outside of tags
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kString,  // unescaped
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
// Fails  kCorrupt: a tag that does not end, brackets that do not match, a character or an escape
//        that is none. kUnsupported: an integer past 64 bits, \N{} escapes, names beyond ASCII
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_LEXER_H_
