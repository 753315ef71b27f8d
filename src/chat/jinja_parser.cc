// SPDX-License-Identifier: MIT

#include "chat/jinja_parser.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <utility>

#include "chat/jinja_expr_parser.h"
#include "chat/jinja_lexer.h"

namespace qsf::jinja {
namespace {

// Tags of Jinja that no template of a public model uses. The lexer refuses `raw`.
constexpr std::string_view kUnsupportedTags[] = {
    "autoescape", "block", "do", "extends", "from", "import", "include", "print", "with"};

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : expr_(std::move(tokens)) {}

  Result<Program> run() {
    Program program;
    QSF_ASSIGN_OR_RETURN(program.body, parse_body({}));
    program.names = expr_.take_names();
    return program;
  }

 private:
  using Names = std::span<const std::string_view>;

  // Parses statements up to a tag with a name of `ends`, which is not consumed; to the end of the
  // source where `ends` is empty.
  Result<Block> parse_body(Names ends);
  // Parses the end of the opening tag, and the body.
  Result<Block> parse_block(Names ends);
  Result<Block> parse_block(std::string_view end);
  Result<Stmt> parse_tag(std::string name, int line);
  Result<Stmt> parse_if(int line);
  Result<Stmt> parse_for(int line);
  Result<Stmt> parse_set(int line);
  Result<Stmt> parse_macro(int line);
  Result<Stmt> parse_call_block(int line);
  Result<Stmt> parse_filter_block(int line);
  Status parse_parameters(Stmt& stmt);
  Status parse_macro_body(Stmt& stmt, std::string_view end);
  Result<Target> parse_target(bool with_namespace, std::string_view end_name = {});
  Result<Target> parse_target_item(bool with_namespace);
  Status unknown_tag(const std::string& name, int line, Names ends) const;

  ExprParser expr_;
  int loops_ = 0;  // around the statement being parsed
};

Status Parser::unknown_tag(const std::string& name, int line, Names ends) const {
  const auto* known = std::find(std::begin(kUnsupportedTags), std::end(kUnsupportedTags), name);
  if (known != std::end(kUnsupportedTags)) {
    return unsupported("line %d: the tag '%s' is not supported in chat templates", line,
                       name.c_str());
  }
  std::string expected;
  for (const std::string_view end : ends) {
    expected += (expected.empty() ? ", expected '" : " or '") + std::string(end) + "'";
  }
  return corrupt("line %d: unexpected tag '%s'%s", line, name.c_str(), expected.c_str());
}

Result<Block> Parser::parse_body(Names ends) {
  QSF_RETURN_IF_ERROR(expr_.enter());
  Block body;
  while (expr_.current().kind != TokenKind::kEnd) {
    const Token& token = expr_.current();
    const int line = token.line;
    if (token.kind == TokenKind::kData) {
      Stmt data{.kind = StmtKind::kData, .line = line};
      data.value = std::make_unique<Expr>(Expr{.kind = ExprKind::kConstant, .line = line});
      data.value->constant = {std::make_shared<const TextNode>(Text(token.text, true), nullptr)};
      body.push_back(std::move(data));
      expr_.advance();
    } else if (token.kind == TokenKind::kVariableBegin) {
      expr_.advance();
      Stmt output{.kind = StmtKind::kOutput, .line = line};
      QSF_ASSIGN_OR_RETURN(output.value, expr_.parse_tuple());
      QSF_RETURN_IF_ERROR(expr_.expect(TokenKind::kVariableEnd, "}}"));
      body.push_back(std::move(output));
    } else {
      expr_.advance();
      const Token& name = expr_.current();
      if (name.kind != TokenKind::kName) return expr_.unexpected("the name of a tag");
      if (std::find(ends.begin(), ends.end(), name.text) != ends.end()) break;
      QSF_ASSIGN_OR_RETURN(Stmt stmt, parse_tag(name.text, line));
      body.push_back(std::move(stmt));
      QSF_RETURN_IF_ERROR(expr_.expect(TokenKind::kBlockEnd, "%}"));
    }
  }
  if (!ends.empty() && expr_.current().kind == TokenKind::kEnd) {
    return expr_.unexpected(("{% " + std::string(ends.back()) + " %}").c_str());
  }
  expr_.leave();
  return body;
}

Result<Block> Parser::parse_block(Names ends) {
  expr_.skip_operator(":");
  QSF_RETURN_IF_ERROR(expr_.expect(TokenKind::kBlockEnd, "%}"));
  return parse_body(ends);
}

Result<Block> Parser::parse_block(std::string_view end) {
  QSF_ASSIGN_OR_RETURN(Block body, parse_block(Names(&end, 1)));
  expr_.advance();
  return body;
}

Result<Stmt> Parser::parse_tag(std::string name, int line) {
  using Parse = Result<Stmt> (Parser::*)(int);
  static constexpr std::pair<std::string_view, Parse> kTags[] = {
      {"if", &Parser::parse_if},           {"for", &Parser::parse_for},
      {"set", &Parser::parse_set},         {"macro", &Parser::parse_macro},
      {"call", &Parser::parse_call_block}, {"filter", &Parser::parse_filter_block}};
  for (const auto& [tag, parse] : kTags) {
    if (name != tag) continue;
    expr_.advance();
    return (this->*parse)(line);
  }
  if (name == "generation") {
    expr_.advance();
    Stmt stmt{.kind = StmtKind::kGeneration, .line = line};
    QSF_ASSIGN_OR_RETURN(stmt.body, parse_block("endgeneration"));
    return stmt;
  }
  if (name == "break" || name == "continue") {
    if (loops_ == 0) return corrupt("line %d: '%s' outside of a loop", line, name.c_str());
    expr_.advance();
    return Stmt{.kind = name == "break" ? StmtKind::kBreak : StmtKind::kContinue, .line = line};
  }
  return unknown_tag(name, line, {});
}

Result<Stmt> Parser::parse_if(int line) {
  static constexpr std::array<std::string_view, 3> kEnds = {"elif", "else", "endif"};
  Stmt stmt{.kind = StmtKind::kIf, .line = line};
  while (true) {
    Branch branch;
    QSF_ASSIGN_OR_RETURN(branch.condition, expr_.parse_tuple(false));
    QSF_ASSIGN_OR_RETURN(branch.body, parse_block(kEnds));
    stmt.branches.push_back(std::move(branch));
    const std::string end = expr_.current().text;
    expr_.advance();
    if (end == "endif") return stmt;
    if (end == "else") {
      Branch otherwise;
      QSF_ASSIGN_OR_RETURN(otherwise.body, parse_block("endif"));
      stmt.branches.push_back(std::move(otherwise));
      return stmt;
    }
  }
}

Result<Stmt> Parser::parse_for(int line) {
  static constexpr std::array<std::string_view, 2> kEnds = {"endfor", "else"};
  Stmt stmt{.kind = StmtKind::kFor, .line = line};
  QSF_ASSIGN_OR_RETURN(stmt.target, parse_target(false, "in"));
  if (!expr_.skip_name("in")) return expr_.unexpected("'in'");
  QSF_ASSIGN_OR_RETURN(stmt.value, expr_.parse_tuple(false, false, "recursive"));
  if (expr_.skip_name("if")) {
    QSF_ASSIGN_OR_RETURN(stmt.condition, expr_.parse_expression());
  }
  if (expr_.current().is_name("recursive")) {
    return unsupported("line %d: recursive loops are not supported in chat templates", line);
  }
  ++loops_;
  QSF_ASSIGN_OR_RETURN(stmt.body, parse_block(kEnds));
  --loops_;
  const bool has_else = expr_.current().text == "else";
  expr_.advance();
  if (has_else) {
    QSF_ASSIGN_OR_RETURN(stmt.otherwise, parse_block("endfor"));
  }
  return stmt;
}

Result<Stmt> Parser::parse_set(int line) {
  Stmt stmt{.kind = StmtKind::kSet, .line = line};
  QSF_ASSIGN_OR_RETURN(stmt.target, parse_target(true));
  if (expr_.skip_operator("=")) {
    QSF_ASSIGN_OR_RETURN(stmt.value, expr_.parse_tuple());
    return stmt;
  }
  stmt.kind = StmtKind::kSetBlock;
  QSF_ASSIGN_OR_RETURN(stmt.value, expr_.parse_filters(nullptr));
  QSF_ASSIGN_OR_RETURN(stmt.body, parse_block("endset"));
  return stmt;
}

Status Parser::parse_parameters(Stmt& stmt) {
  QSF_RETURN_IF_ERROR(expr_.expect_operator("("));
  while (!expr_.current().is_operator(")")) {
    if (!stmt.parameters.empty()) QSF_RETURN_IF_ERROR(expr_.expect_operator(","));
    auto name = expr_.expect_name();
    if (!name) return name.error();
    Parameter parameter{.name = expr_.intern(*name), .fallback = nullptr};
    if (expr_.skip_operator("=")) {
      auto fallback = expr_.parse_expression();
      if (!fallback) return fallback.error();
      parameter.fallback = std::move(*fallback);
    } else if (!stmt.parameters.empty() && stmt.parameters.back().fallback != nullptr) {
      return expr_.unexpected("a default value, because the parameter before has one");
    }
    stmt.parameters.push_back(std::move(parameter));
  }
  expr_.advance();
  return ok_status();
}

// Parses the body, and records whether it reads `caller`.
Status Parser::parse_macro_body(Stmt& stmt, std::string_view end) {
  const bool outer_reads_caller = std::exchange(expr_.reads_caller(), false);
  const int outer_loops = std::exchange(loops_, 0);
  auto body = parse_block(end);
  if (!body) return body.error();
  stmt.body = std::move(*body);
  loops_ = outer_loops;
  stmt.takes_caller = expr_.reads_caller();
  if (stmt.takes_caller) stmt.caller = expr_.intern("caller");
  expr_.reads_caller() |= outer_reads_caller;
  return ok_status();
}

Result<Stmt> Parser::parse_macro(int line) {
  Stmt stmt{.kind = StmtKind::kMacro, .line = line};
  QSF_ASSIGN_OR_RETURN(const std::string name, expr_.expect_name());
  stmt.name = expr_.intern(name);
  QSF_RETURN_IF_ERROR(parse_parameters(stmt));
  QSF_RETURN_IF_ERROR(parse_macro_body(stmt, "endmacro"));
  return stmt;
}

Result<Stmt> Parser::parse_call_block(int line) {
  Stmt stmt{.kind = StmtKind::kCallBlock, .line = line};
  stmt.name = expr_.intern("caller");
  if (expr_.current().is_operator("(")) QSF_RETURN_IF_ERROR(parse_parameters(stmt));
  QSF_ASSIGN_OR_RETURN(stmt.value, expr_.parse_expression());
  if (stmt.value->kind != ExprKind::kCall) {
    return corrupt("line %d: a call block needs a call", line);
  }
  QSF_RETURN_IF_ERROR(parse_macro_body(stmt, "endcall"));
  return stmt;
}

Result<Stmt> Parser::parse_filter_block(int line) {
  Stmt stmt{.kind = StmtKind::kFilter, .line = line};
  QSF_ASSIGN_OR_RETURN(stmt.value, expr_.parse_filters(nullptr, true));
  QSF_ASSIGN_OR_RETURN(stmt.body, parse_block("endfilter"));
  return stmt;
}

Result<Target> Parser::parse_target(bool with_namespace, std::string_view end_name) {
  QSF_RETURN_IF_ERROR(expr_.enter());
  Target tuple;
  const auto ends = [this, end_name] {
    const Token& token = expr_.current();
    return token.kind == TokenKind::kVariableEnd || token.kind == TokenKind::kBlockEnd ||
           token.is_operator(")") || (!end_name.empty() && token.is_name(end_name));
  };
  while (!ends()) {
    QSF_ASSIGN_OR_RETURN(Target item, parse_target_item(with_namespace));
    tuple.items.push_back(std::move(item));
    if (!expr_.skip_operator(",")) break;
    tuple.is_tuple = true;
  }
  expr_.leave();
  if (tuple.is_tuple) return tuple;
  if (tuple.items.empty()) return expr_.unexpected("a name to assign to");
  return Target(std::move(tuple.items.front()));
}

Result<Target> Parser::parse_target_item(bool with_namespace) {
  static constexpr std::string_view kConstants[] = {"true", "false", "none",
                                                    "True", "False", "None"};
  if (expr_.skip_operator("(")) {
    QSF_ASSIGN_OR_RETURN(Target inner, parse_target(false));
    QSF_RETURN_IF_ERROR(expr_.expect_operator(")"));
    return inner;
  }
  const int line = expr_.current().line;
  QSF_ASSIGN_OR_RETURN(const std::string name, expr_.expect_name());
  if (std::find(std::begin(kConstants), std::end(kConstants), name) != std::end(kConstants)) {
    return corrupt("line %d: '%s' cannot be assigned to", line, name.c_str());
  }
  Target target;
  target.name = expr_.intern(name);
  if (with_namespace && expr_.skip_operator(".")) {
    QSF_ASSIGN_OR_RETURN(target.attribute, expr_.expect_name());
  }
  return target;
}

}  // namespace

Result<Program> parse_program(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    return unsupported("the source has %zu bytes, expected at most %zu", source.size(),
                       kMaxTemplateBytes);
  }
  QSF_ASSIGN_OR_RETURN(std::vector<Token> tokens, tokenize(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace qsf::jinja
