// SPDX-License-Identifier: MIT
//
// Parses expressions; jinja_parser.cc parses tags with it.

#ifndef QSF_CHAT_JINJA_EXPR_PARSER_H_
#define QSF_CHAT_JINJA_EXPR_PARSER_H_

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "chat/jinja_ast.h"
#include "chat/jinja_lexer.h"

namespace qsf::jinja {

class ExprParser {
 public:
  explicit ExprParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  void advance() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool skip_operator(std::string_view spelling);
  bool skip_name(std::string_view name);
  Status expect_operator(std::string_view spelling);
  Status expect(TokenKind kind, const char* what);
  Result<std::string> expect_name();
  Status unexpected(const char* expected) const;

  NameId intern(const std::string& name);

  // Whether the name `caller` was read since this was last set to false.
  bool& reads_caller() { return reads_caller_; }
  std::vector<std::string> take_names() { return std::move(names_); }

  Result<ExprPtr> parse_expression(bool with_condition = true);
  // One expression, or a tuple where commas follow; ends at `end_name` as well.
  Result<ExprPtr> parse_tuple(bool with_condition = true, bool is_parenthesized = false,
                              std::string_view end_name = {});
  // Applies `| name(...) | name` to `input`, which is null for the filters of a block. With
  // `begins_inline` the first `|` is absent.
  Result<ExprPtr> parse_filters(ExprPtr input, bool begins_inline = false);

  // Enters one level of nesting.
  // Fails  kUnsupported past kMaxParseDepth
  Status enter();
  void leave() { --depth_; }

 private:
  Result<ExprPtr> parse_or();
  Result<ExprPtr> parse_and();
  Result<ExprPtr> parse_not();
  Result<ExprPtr> parse_compare();
  Result<ExprPtr> parse_sum();
  Result<ExprPtr> parse_concat();
  Result<ExprPtr> parse_product();
  Result<ExprPtr> parse_unary(bool with_filter);
  Result<ExprPtr> parse_primary();
  Result<ExprPtr> parse_constant();
  Result<ExprPtr> parse_list();
  Result<ExprPtr> parse_dict();
  Result<ExprPtr> parse_postfix(ExprPtr node);
  Result<ExprPtr> parse_filter_or_test(ExprPtr node);
  Result<ExprPtr> parse_subscript(ExprPtr node);
  Result<ExprPtr> parse_subscripts();
  Result<ExprPtr> parse_subscript_item();
  Result<ExprPtr> parse_call(ExprPtr node);
  Result<CallSyntax> parse_arguments();
  Result<ExprPtr> parse_test(ExprPtr node);

  // The failure of a construct that Jinja has and this parser refuses by name.
  Status refuse(const std::string& construct) const;
  // Refuses filters and tests that are given to map, select and similar filters by an unknown name.
  Status check_named_function(const Expr& filter) const;
  ExprPtr make(ExprKind kind, int line) const;
  // Completes a node whose children are set.
  // Fails  kUnsupported when the tree is too high
  Result<ExprPtr> finish(ExprPtr node) const;
  Result<ExprPtr> make_binary(ExprKind kind, int line, std::string op, ExprPtr left,
                              ExprPtr right) const;

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::vector<std::string> names_;
  std::map<std::string, NameId> ids_;
  bool reads_caller_ = false;
};

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_EXPR_PARSER_H_
