// SPDX-License-Identifier: MIT

#include "chat/jinja_expr_parser.h"

#include <algorithm>
#include <optional>

#include "chat/jinja_functions.h"

namespace qsf::jinja {
namespace {

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData: return "text";
    case TokenKind::kBlockBegin: return "{%";
    case TokenKind::kBlockEnd: return "%}";
    case TokenKind::kVariableBegin: return "{{";
    case TokenKind::kVariableEnd: return "}}";
    case TokenKind::kString: return "a string";
    case TokenKind::kEnd: return "the end of the template";
    default: return "'" + token.text.substr(0, 60) + "'";
  }
}

int height_of(const CallSyntax& call) {
  int height = 0;
  const auto see = [&height](const ExprPtr& part) {
    if (part != nullptr) height = std::max(height, part->height);
  };
  for (const ExprPtr& part : call.positional) see(part);
  for (const auto& keyword : call.keywords) see(keyword.second);
  see(call.star);
  return height;
}

std::optional<Comparison> comparison_of(const Token& token) {
  static constexpr std::pair<std::string_view, Comparison> kOperators[] = {
      {"==", Comparison::kEq}, {"!=", Comparison::kNe}, {"<", Comparison::kLt},
      {"<=", Comparison::kLe}, {">", Comparison::kGt},  {">=", Comparison::kGe}};
  for (const auto& [spelling, comparison] : kOperators) {
    if (token.is_operator(spelling)) return comparison;
  }
  return std::nullopt;
}

// Tokens that begin the argument of a test written without brackets.
bool begins_test_argument(const Token& token) {
  switch (token.kind) {
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat: return true;
    case TokenKind::kName:
      return !token.is_name("else") && !token.is_name("or") && !token.is_name("and");
    default: return token.is_operator("[") || token.is_operator("{");
  }
}

}  // namespace

bool ExprParser::skip_operator(std::string_view spelling) {
  if (!current().is_operator(spelling)) return false;
  advance();
  return true;
}

bool ExprParser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  advance();
  return true;
}

Status ExprParser::unexpected(const char* expected) const {
  return corrupt("line %d: got %s, expected %s", current().line, describe(current()).c_str(),
                 expected);
}

Status ExprParser::expect_operator(std::string_view spelling) {
  if (skip_operator(spelling)) return ok_status();
  return unexpected(("'" + std::string(spelling) + "'").c_str());
}

Status ExprParser::expect(TokenKind kind, const char* what) {
  if (current().kind != kind) return unexpected(what);
  advance();
  return ok_status();
}

Result<std::string> ExprParser::expect_name() {
  if (current().kind != TokenKind::kName) return unexpected("a name");
  std::string name = current().text;
  advance();
  return name;
}

NameId ExprParser::intern(const std::string& name) {
  const auto [entry, is_new] = ids_.try_emplace(name, static_cast<NameId>(names_.size()));
  if (is_new) names_.push_back(name);
  return entry->second;
}

Status ExprParser::enter() {
  if (++depth_ > kMaxParseDepth) {
    return unsupported("line %d: nested deeper than %d levels", current().line, kMaxParseDepth);
  }
  return ok_status();
}

Status ExprParser::refuse(const std::string& construct) const {
  return unsupported("line %d: %s is not supported in chat templates", current().line,
                     construct.c_str());
}

Status ExprParser::check_named_function(const Expr& filter) const {
  const bool is_map = filter.text == "map";
  const bool by_attribute = filter.text == "selectattr" || filter.text == "rejectattr";
  if (!is_map && !by_attribute && filter.text != "select" && filter.text != "reject") {
    return ok_status();
  }
  const std::size_t at = by_attribute ? 1 : 0;
  if (at >= filter.call.positional.size()) return ok_status();
  const Expr& argument = *filter.call.positional[at];
  const std::string* name =
      argument.kind == ExprKind::kConstant ? as_bytes(argument.constant) : nullptr;
  if (name == nullptr) return ok_status();
  if (is_map ? find_filter(*name) != nullptr : find_test(*name) != nullptr) return ok_status();
  return refuse((is_map ? "the filter '" : "the test '") + name->substr(0, 60) + "'");
}

ExprPtr ExprParser::make(ExprKind kind, int line) const {
  return std::make_unique<Expr>(Expr{.kind = kind, .line = line});
}

Result<ExprPtr> ExprParser::finish(ExprPtr node) const {
  int height = height_of(node->call);
  for (const ExprPtr& part : node->args) {
    if (part != nullptr) height = std::max(height, part->height);
  }
  node->height = height + 1;
  if (node->height > kMaxExprHeight) {
    return unsupported("line %d: an expression of more than %d operations", node->line,
                       kMaxExprHeight);
  }
  return node;
}

Result<ExprPtr> ExprParser::make_binary(ExprKind kind, int line, std::string op, ExprPtr left,
                                        ExprPtr right) const {
  ExprPtr node = make(kind, line);
  node->text = std::move(op);
  node->args.push_back(std::move(left));
  node->args.push_back(std::move(right));
  return finish(std::move(node));
}

Result<ExprPtr> ExprParser::parse_expression(bool with_condition) {
  QSF_RETURN_IF_ERROR(enter());
  const int line = current().line;
  QSF_ASSIGN_OR_RETURN(ExprPtr value, parse_or());
  while (with_condition && skip_name("if")) {
    ExprPtr node = make(ExprKind::kCondition, line);
    QSF_ASSIGN_OR_RETURN(ExprPtr condition, parse_or());
    ExprPtr otherwise;
    if (skip_name("else")) {
      QSF_ASSIGN_OR_RETURN(otherwise, parse_expression());
    }
    node->args.push_back(std::move(condition));
    node->args.push_back(std::move(value));
    node->args.push_back(std::move(otherwise));
    QSF_ASSIGN_OR_RETURN(value, finish(std::move(node)));
  }
  leave();
  return value;
}

Result<ExprPtr> ExprParser::parse_or() {
  QSF_ASSIGN_OR_RETURN(ExprPtr left, parse_and());
  while (current().is_name("or")) {
    const int line = current().line;
    advance();
    QSF_ASSIGN_OR_RETURN(ExprPtr right, parse_and());
    QSF_ASSIGN_OR_RETURN(left,
                         make_binary(ExprKind::kOr, line, "or", std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> ExprParser::parse_and() {
  QSF_ASSIGN_OR_RETURN(ExprPtr left, parse_not());
  while (current().is_name("and")) {
    const int line = current().line;
    advance();
    QSF_ASSIGN_OR_RETURN(ExprPtr right, parse_not());
    QSF_ASSIGN_OR_RETURN(
        left, make_binary(ExprKind::kAnd, line, "and", std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> ExprParser::parse_not() {
  if (!current().is_name("not")) return parse_compare();
  QSF_RETURN_IF_ERROR(enter());
  ExprPtr node = make(ExprKind::kNot, current().line);
  advance();
  QSF_ASSIGN_OR_RETURN(ExprPtr operand, parse_not());
  node->args.push_back(std::move(operand));
  leave();
  return finish(std::move(node));
}

Result<ExprPtr> ExprParser::parse_compare() {
  const int line = current().line;
  QSF_ASSIGN_OR_RETURN(ExprPtr first, parse_sum());
  ExprPtr node;
  while (true) {
    auto comparison = comparison_of(current());
    if (comparison) {
      advance();
    } else if (skip_name("in")) {
      comparison = Comparison::kIn;
    } else if (current().is_name("not") && following().is_name("in")) {
      advance();
      advance();
      comparison = Comparison::kNotIn;
    } else {
      break;
    }
    if (node == nullptr) {
      node = make(ExprKind::kCompare, line);
      node->args.push_back(std::move(first));
    }
    node->operators.push_back(*comparison);
    QSF_ASSIGN_OR_RETURN(ExprPtr operand, parse_sum());
    node->args.push_back(std::move(operand));
  }
  if (node == nullptr) return first;
  return finish(std::move(node));
}

Result<ExprPtr> ExprParser::parse_sum() {
  QSF_ASSIGN_OR_RETURN(ExprPtr left, parse_concat());
  while (current().is_operator("+") || current().is_operator("-")) {
    const Token op = current();
    advance();
    QSF_ASSIGN_OR_RETURN(ExprPtr right, parse_concat());
    QSF_ASSIGN_OR_RETURN(
        left, make_binary(ExprKind::kBinary, op.line, op.text, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> ExprParser::parse_concat() {
  const int line = current().line;
  QSF_ASSIGN_OR_RETURN(ExprPtr first, parse_product());
  if (!current().is_operator("~")) return first;
  ExprPtr node = make(ExprKind::kConcat, line);
  node->args.push_back(std::move(first));
  while (skip_operator("~")) {
    QSF_ASSIGN_OR_RETURN(ExprPtr part, parse_product());
    node->args.push_back(std::move(part));
  }
  return finish(std::move(node));
}

Result<ExprPtr> ExprParser::parse_product() {
  QSF_ASSIGN_OR_RETURN(ExprPtr left, parse_unary(true));
  while (true) {
    const Token op = current();
    if (op.is_operator("/") || op.is_operator("//") || op.is_operator("**")) {
      return refuse("the operator '" + op.text + "'");
    }
    if (!op.is_operator("*") && !op.is_operator("%")) return left;
    if (op.text == "%" && left->kind == ExprKind::kConstant && as_text(left->constant) != nullptr) {
      return refuse("'%' formatting of strings");
    }
    advance();
    QSF_ASSIGN_OR_RETURN(ExprPtr right, parse_unary(true));
    QSF_ASSIGN_OR_RETURN(
        left, make_binary(ExprKind::kBinary, op.line, op.text, std::move(left), std::move(right)));
  }
}

Result<ExprPtr> ExprParser::parse_unary(bool with_filter) {
  QSF_RETURN_IF_ERROR(enter());
  ExprPtr node;
  if (current().is_operator("-")) {
    node = make(ExprKind::kNegate, current().line);
    advance();
    QSF_ASSIGN_OR_RETURN(ExprPtr operand, parse_unary(false));
    node->args.push_back(std::move(operand));
    QSF_ASSIGN_OR_RETURN(node, finish(std::move(node)));
  } else {
    QSF_ASSIGN_OR_RETURN(node, parse_primary());
  }
  QSF_ASSIGN_OR_RETURN(node, parse_postfix(std::move(node)));
  if (with_filter) {
    QSF_ASSIGN_OR_RETURN(node, parse_filter_or_test(std::move(node)));
  }
  leave();
  return node;
}

Result<ExprPtr> ExprParser::parse_constant() {
  ExprPtr node = make(ExprKind::kConstant, current().line);
  if (current().kind == TokenKind::kInteger) {
    node->constant = make_int(current().integer);
    advance();
  } else if (current().kind == TokenKind::kFloat) {
    node->constant = make_float(current().number);
    advance();
  } else {
    std::string text;
    for (; current().kind == TokenKind::kString; advance()) text += current().text;
    node->constant = {std::make_shared<const TextNode>(Text(text, true), nullptr)};
  }
  return node;
}

Result<ExprPtr> ExprParser::parse_primary() {
  const Token& token = current();
  switch (token.kind) {
    case TokenKind::kInteger:
    case TokenKind::kFloat:
    case TokenKind::kString: return parse_constant();
    case TokenKind::kName: {
      ExprPtr node = make(ExprKind::kConstant, token.line);
      if (token.is_name("true") || token.is_name("True")) {
        node->constant = make_bool(true);
      } else if (token.is_name("false") || token.is_name("False")) {
        node->constant = make_bool(false);
      } else if (token.is_name("none") || token.is_name("None")) {
        node->constant = make_none();
      } else {
        node->kind = ExprKind::kName;
        node->name = intern(token.text);
        if (token.is_name("varargs") || token.is_name("kwargs")) {
          return refuse("the variable '" + token.text + "'");
        }
        reads_caller_ |= token.text == "caller";
      }
      advance();
      return node;
    }
    default: break;
  }
  if (token.is_operator("(")) {
    advance();
    QSF_ASSIGN_OR_RETURN(ExprPtr node, parse_tuple(true, true));
    QSF_RETURN_IF_ERROR(expect_operator(")"));
    return node;
  }
  if (token.is_operator("[")) return parse_list();
  if (token.is_operator("{")) return parse_dict();
  return unexpected("an expression");
}

Result<ExprPtr> ExprParser::parse_tuple(bool with_condition, bool is_parenthesized,
                                        std::string_view end_name) {
  const int line = current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  const auto ends = [this, end_name] {
    return current().kind == TokenKind::kVariableEnd || current().kind == TokenKind::kBlockEnd ||
           current().is_operator(")") || (!end_name.empty() && current().is_name(end_name));
  };
  while (!ends()) {
    QSF_ASSIGN_OR_RETURN(ExprPtr item, parse_expression(with_condition));
    items.push_back(std::move(item));
    if (!skip_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.size() == 1) return std::move(items.front());
  if (items.empty() && !is_parenthesized) return unexpected("an expression");
  ExprPtr node = make(ExprKind::kTuple, line);
  node->args = std::move(items);
  return finish(std::move(node));
}

Result<ExprPtr> ExprParser::parse_list() {
  ExprPtr node = make(ExprKind::kList, current().line);
  advance();
  while (!current().is_operator("]")) {
    if (!node->args.empty()) {
      QSF_RETURN_IF_ERROR(expect_operator(","));
      if (current().is_operator("]")) break;
    }
    QSF_ASSIGN_OR_RETURN(ExprPtr item, parse_expression());
    node->args.push_back(std::move(item));
  }
  advance();
  return finish(std::move(node));
}

Result<ExprPtr> ExprParser::parse_dict() {
  ExprPtr node = make(ExprKind::kDict, current().line);
  advance();
  while (!current().is_operator("}")) {
    if (!node->args.empty()) {
      QSF_RETURN_IF_ERROR(expect_operator(","));
      if (current().is_operator("}")) break;
    }
    QSF_ASSIGN_OR_RETURN(ExprPtr key, parse_expression());
    QSF_RETURN_IF_ERROR(expect_operator(":"));
    QSF_ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
    node->args.push_back(std::move(key));
    node->args.push_back(std::move(value));
  }
  advance();
  return finish(std::move(node));
}

Result<ExprPtr> ExprParser::parse_postfix(ExprPtr node) {
  while (true) {
    if (current().is_operator(".") || current().is_operator("[")) {
      QSF_ASSIGN_OR_RETURN(node, parse_subscript(std::move(node)));
    } else if (current().is_operator("(")) {
      QSF_ASSIGN_OR_RETURN(node, parse_call(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExprPtr> ExprParser::parse_filter_or_test(ExprPtr node) {
  while (true) {
    if (current().is_operator("|")) {
      QSF_ASSIGN_OR_RETURN(node, parse_filters(std::move(node)));
    } else if (current().is_name("is")) {
      QSF_ASSIGN_OR_RETURN(node, parse_test(std::move(node)));
    } else if (current().is_operator("(")) {
      QSF_ASSIGN_OR_RETURN(node, parse_call(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExprPtr> ExprParser::parse_subscript(ExprPtr node) {
  const int line = current().line;
  if (skip_operator(".")) {
    if (current().kind == TokenKind::kName) {
      ExprPtr attribute = make(ExprKind::kAttribute, line);
      attribute->text = current().text;
      attribute->args.push_back(std::move(node));
      advance();
      return finish(std::move(attribute));
    }
    if (current().kind != TokenKind::kInteger) return unexpected("a name or number");
    QSF_ASSIGN_OR_RETURN(ExprPtr index, parse_constant());
    return make_binary(ExprKind::kSubscript, line, {}, std::move(node), std::move(index));
  }
  advance();
  QSF_ASSIGN_OR_RETURN(ExprPtr index, parse_subscripts());
  return make_binary(ExprKind::kSubscript, line, {}, std::move(node), std::move(index));
}

Result<ExprPtr> ExprParser::parse_subscripts() {
  const int line = current().line;
  std::vector<ExprPtr> items;
  while (!current().is_operator("]")) {
    if (!items.empty()) QSF_RETURN_IF_ERROR(expect_operator(","));
    QSF_ASSIGN_OR_RETURN(ExprPtr item, parse_subscript_item());
    items.push_back(std::move(item));
  }
  advance();
  if (items.size() == 1) return std::move(items.front());
  ExprPtr tuple = make(ExprKind::kTuple, line);
  tuple->args = std::move(items);
  const bool has_slice =
      std::any_of(tuple->args.begin(), tuple->args.end(),
                  [](const ExprPtr& item) { return item->kind == ExprKind::kSlice; });
  if (has_slice)
    return unsupported("line %d: several slices in one subscript are not supported", line);
  return finish(std::move(tuple));
}

Result<ExprPtr> ExprParser::parse_subscript_item() {
  const int line = current().line;
  ExprPtr begin;
  if (!current().is_operator(":")) {
    QSF_ASSIGN_OR_RETURN(begin, parse_expression());
    if (!current().is_operator(":")) return begin;
  }
  advance();
  const auto ends = [this] { return current().is_operator("]") || current().is_operator(","); };
  ExprPtr end;
  ExprPtr step;
  if (!current().is_operator(":") && !ends()) {
    QSF_ASSIGN_OR_RETURN(end, parse_expression());
  }
  if (skip_operator(":") && !ends()) {
    QSF_ASSIGN_OR_RETURN(step, parse_expression());
  }
  ExprPtr slice = make(ExprKind::kSlice, line);
  slice->args.push_back(std::move(begin));
  slice->args.push_back(std::move(end));
  slice->args.push_back(std::move(step));
  return finish(std::move(slice));
}

Result<CallSyntax> ExprParser::parse_arguments() {
  QSF_RETURN_IF_ERROR(expect_operator("("));
  CallSyntax call;
  bool is_first = true;
  while (!current().is_operator(")")) {
    if (!is_first) {
      QSF_RETURN_IF_ERROR(expect_operator(","));
      if (current().is_operator(")")) break;
    }
    is_first = false;
    if (current().is_operator("**")) return refuse("the argument '**...'");
    if (skip_operator("*")) {
      if (call.star != nullptr) return unexpected("one argument '*...'");
      QSF_ASSIGN_OR_RETURN(call.star, parse_expression());
    } else if (current().kind == TokenKind::kName && following().is_operator("=")) {
      std::string name = current().text;
      advance();
      advance();
      QSF_ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
      call.keywords.emplace_back(std::move(name), std::move(value));
    } else {
      if (call.star != nullptr || !call.keywords.empty()) {
        return unexpected("an argument with a name");
      }
      QSF_ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
      call.positional.push_back(std::move(value));
    }
  }
  advance();
  return call;
}

Result<ExprPtr> ExprParser::parse_call(ExprPtr callee) {
  static constexpr std::string_view kOtherFunctions[] = {"cycler", "joiner", "lipsum"};
  if (callee->kind == ExprKind::kAttribute && !is_method_name(callee->text)) {
    return refuse("the method '" + callee->text.substr(0, 60) + "'");
  }
  for (const std::string_view name : kOtherFunctions) {
    if (callee->kind == ExprKind::kName && names_[callee->name] == name) {
      return refuse("the function '" + std::string(name) + "'");
    }
  }
  ExprPtr node = make(ExprKind::kCall, current().line);
  node->args.push_back(std::move(callee));
  QSF_ASSIGN_OR_RETURN(node->call, parse_arguments());
  return finish(std::move(node));
}

Result<ExprPtr> ExprParser::parse_filters(ExprPtr input, bool begins_inline) {
  while (begins_inline || skip_operator("|")) {
    begins_inline = false;
    ExprPtr node = make(ExprKind::kFilter, current().line);
    QSF_ASSIGN_OR_RETURN(node->text, expect_name());
    if (find_filter(node->text) == nullptr) {
      return refuse("the filter '" + node->text.substr(0, 60) + "'");
    }
    node->args.push_back(std::move(input));
    if (current().is_operator("(")) {
      QSF_ASSIGN_OR_RETURN(node->call, parse_arguments());
    }
    QSF_RETURN_IF_ERROR(check_named_function(*node));
    QSF_ASSIGN_OR_RETURN(input, finish(std::move(node)));
  }
  return input;
}

Result<ExprPtr> ExprParser::parse_test(ExprPtr operand) {
  QSF_RETURN_IF_ERROR(enter());
  ExprPtr node = make(ExprKind::kTest, current().line);
  advance();
  const bool is_negated = skip_name("not");
  QSF_ASSIGN_OR_RETURN(node->text, expect_name());
  if (find_test(node->text) == nullptr) {
    return refuse("the test '" + node->text.substr(0, 60) + "'");
  }
  node->args.push_back(std::move(operand));
  if (current().is_operator("(")) {
    QSF_ASSIGN_OR_RETURN(node->call, parse_arguments());
  } else if (begins_test_argument(current())) {
    if (current().is_name("is")) return unexpected("one test; tests cannot be chained");
    QSF_ASSIGN_OR_RETURN(ExprPtr argument, parse_primary());
    QSF_ASSIGN_OR_RETURN(argument, parse_postfix(std::move(argument)));
    node->call.positional.push_back(std::move(argument));
  }
  leave();
  const int line = node->line;
  QSF_ASSIGN_OR_RETURN(node, finish(std::move(node)));
  if (!is_negated) return node;
  ExprPtr negation = make(ExprKind::kNot, line);
  negation->args.push_back(std::move(node));
  return finish(std::move(negation));
}

}  // namespace qsf::jinja
