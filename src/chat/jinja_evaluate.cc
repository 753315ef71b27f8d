// SPDX-License-Identifier: MIT
//
// The interpreter's expressions.

#include <string>
#include <utility>

#include "chat/jinja_format.h"
#include "chat/jinja_interpreter.h"
#include "chat/jinja_nesting.h"
#include "chat/jinja_operators.h"

namespace qsf::jinja {

Result<Value> Interpreter::evaluate(const Expr& expr) {
  const Nesting nesting(depth_);
  QSF_RETURN_IF_ERROR(nesting.check());
  line_ = expr.line;
  QSF_RETURN_IF_ERROR(heap_.charge(1));
  switch (expr.kind) {
    case ExprKind::kConstant: return expr.constant;
    case ExprKind::kName: return evaluate_name(expr);
    case ExprKind::kBinary: return evaluate_binary(expr);
    case ExprKind::kConcat: return evaluate_concat(expr);
    case ExprKind::kCompare: return evaluate_compare(expr);
    case ExprKind::kCondition: return evaluate_condition(expr);
    case ExprKind::kSubscript: return evaluate_subscript(expr);
    case ExprKind::kCall: return evaluate_call(expr);
    case ExprKind::kFilter: return evaluate_filter(expr, nullptr);
    case ExprKind::kDict: return evaluate_dict(expr);
    case ExprKind::kSlice: return internal_error("a slice outside of a subscript");
    default: return evaluate_operation(expr);
  }
}

Result<Value> Interpreter::evaluate_operation(const Expr& expr) {
  if (expr.kind == ExprKind::kList || expr.kind == ExprKind::kTuple) {
    QSF_ASSIGN_OR_RETURN(std::vector<Value> items, evaluate_all(expr.args));
    return heap_.make_list(expr.kind == ExprKind::kList ? ListKind::kList : ListKind::kTuple,
                           std::move(items));
  }
  QSF_ASSIGN_OR_RETURN(Value value, evaluate(*expr.args[0]));
  switch (expr.kind) {
    case ExprKind::kNot: return make_bool(!is_true(value));
    case ExprKind::kNegate: return negate(value);
    case ExprKind::kPlus: return plus(value);
    case ExprKind::kAnd: return is_true(value) ? evaluate(*expr.args[1]) : std::move(value);
    case ExprKind::kOr: return is_true(value) ? std::move(value) : evaluate(*expr.args[1]);
    case ExprKind::kAttribute: {
      line_ = expr.line;
      return attribute(value, expr.text);
    }
    default: break;
  }
  QSF_ASSIGN_OR_RETURN(const CallArgs args, evaluate_arguments(expr.call));
  line_ = expr.line;
  QSF_ASSIGN_OR_RETURN(const bool passes, apply_test(expr.text, value, args));
  return make_bool(passes);
}

Result<Value> Interpreter::evaluate_name(const Expr& expr) {
  std::uint64_t n_steps = 0;
  Value value = lookup(expr.name, n_steps);
  QSF_RETURN_IF_ERROR(heap_.charge(n_steps));
  return value;
}

Result<std::vector<Value>> Interpreter::evaluate_all(const std::vector<ExprPtr>& parts) {
  std::vector<Value> values;
  for (const ExprPtr& part : parts) {
    QSF_ASSIGN_OR_RETURN(Value value, evaluate(*part));
    values.push_back(std::move(value));
  }
  return values;
}

Result<Value> Interpreter::evaluate_dict(const Expr& expr) {
  std::vector<DictEntry> entries;
  for (std::size_t i = 0; i + 1 < expr.args.size(); i += 2) {
    DictEntry entry;
    QSF_ASSIGN_OR_RETURN(entry.key, evaluate(*expr.args[i]));
    QSF_ASSIGN_OR_RETURN(entry.value, evaluate(*expr.args[i + 1]));
    entries.push_back(std::move(entry));
  }
  return heap_.make_dict(entries);
}

Result<Value> Interpreter::evaluate_binary(const Expr& expr) {
  QSF_ASSIGN_OR_RETURN(const Value left, evaluate(*expr.args[0]));
  QSF_ASSIGN_OR_RETURN(const Value right, evaluate(*expr.args[1]));
  line_ = expr.line;
  return apply_binary(heap_, expr.text, left, right);
}

Result<Value> Interpreter::evaluate_concat(const Expr& expr) {
  Text joined;
  for (const ExprPtr& part : expr.args) {
    QSF_ASSIGN_OR_RETURN(const Value value, evaluate(*part));
    QSF_ASSIGN_OR_RETURN(const Text text, to_str(heap_, value));
    QSF_RETURN_IF_ERROR(heap_.check_bytes(joined.size() + text.size()));
    joined.append(text);
  }
  return heap_.make_text(std::move(joined));
}

Result<Value> Interpreter::evaluate_compare(const Expr& expr) {
  QSF_ASSIGN_OR_RETURN(Value left, evaluate(*expr.args[0]));
  for (std::size_t i = 0; i < expr.operators.size(); ++i) {
    QSF_ASSIGN_OR_RETURN(Value right, evaluate(*expr.args[i + 1]));
    line_ = expr.line;
    QSF_ASSIGN_OR_RETURN(const bool holds, compare_values(heap_, expr.operators[i], left, right));
    if (!holds) return make_bool(false);
    left = std::move(right);
  }
  return make_bool(true);
}

Result<Value> Interpreter::evaluate_condition(const Expr& expr) {
  QSF_ASSIGN_OR_RETURN(const Value condition, evaluate(*expr.args[0]));
  if (is_true(condition)) return evaluate(*expr.args[1]);
  if (expr.args[2] != nullptr) return evaluate(*expr.args[2]);
  return make_undefined("the 'if' of an expression did not hold, and it has no 'else'");
}

Result<Value> Interpreter::evaluate_subscript(const Expr& expr) {
  QSF_ASSIGN_OR_RETURN(const Value value, evaluate(*expr.args[0]));
  const Expr& key = *expr.args[1];
  if (key.kind != ExprKind::kSlice) {
    QSF_ASSIGN_OR_RETURN(const Value index, evaluate(key));
    line_ = expr.line;
    return item(value, index);
  }
  Value parts[3];
  for (std::size_t i = 0; i < 3; ++i) {
    parts[i] = make_none();
    if (key.args[i] == nullptr) continue;
    QSF_ASSIGN_OR_RETURN(parts[i], evaluate(*key.args[i]));
  }
  line_ = expr.line;
  return slice(heap_, value, parts[0], parts[1], parts[2]);
}

Status Interpreter::expand_keywords(const Value& value, CallArgs& args) {
  const Dict* dict = as_dict(value);
  if (dict == nullptr) {
    return invalid_argument("'**' in a call takes a dict, got %s",
                            std::string(type_name(value)).c_str());
  }
  QSF_RETURN_IF_ERROR(heap_.charge(dict->entries.size()));
  for (const DictEntry& entry : dict->entries) {
    const std::string* name = as_bytes(entry.key);
    if (name == nullptr) return invalid_argument("'**' in a call takes names that are strings");
    QSF_RETURN_IF_ERROR(heap_.charge(args.keywords.size()));
    if (args.find_keyword(*name) != nullptr) {
      return invalid_argument("argument '%s' is given twice", name->c_str());
    }
    args.keywords.emplace_back(*name, entry.value);
  }
  return ok_status();
}

Result<CallArgs> Interpreter::evaluate_arguments(const CallSyntax& call) {
  CallArgs args;
  QSF_ASSIGN_OR_RETURN(args.positional, evaluate_all(call.positional));
  if (call.star != nullptr) {
    QSF_ASSIGN_OR_RETURN(const Value value, evaluate(*call.star));
    QSF_ASSIGN_OR_RETURN(std::vector<Value> more, iterate(value));
    for (Value& item : more) args.positional.push_back(std::move(item));
  }
  for (const auto& [name, part] : call.keywords) {
    QSF_ASSIGN_OR_RETURN(Value value, evaluate(*part));
    args.keywords.emplace_back(name, std::move(value));
  }
  if (call.double_star != nullptr) {
    QSF_ASSIGN_OR_RETURN(const Value value, evaluate(*call.double_star));
    QSF_RETURN_IF_ERROR(expand_keywords(value, args));
  }
  return args;
}

Result<Value> Interpreter::evaluate_call(const Expr& expr) {
  QSF_ASSIGN_OR_RETURN(const Value callee, evaluate(*expr.args[0]));
  QSF_ASSIGN_OR_RETURN(const CallArgs args, evaluate_arguments(expr.call));
  line_ = expr.line;
  return call(callee, args);
}

// `block` is the input at the bottom of a filter block's chain.
Result<Value> Interpreter::evaluate_filter(const Expr& expr, const Value* block) {
  const Nesting nesting(depth_);
  QSF_RETURN_IF_ERROR(nesting.check());
  Value input;
  if (expr.args[0] == nullptr) {
    input = *block;
  } else if (block != nullptr) {
    QSF_ASSIGN_OR_RETURN(input, evaluate_filter(*expr.args[0], block));
  } else {
    QSF_ASSIGN_OR_RETURN(input, evaluate(*expr.args[0]));
  }
  QSF_ASSIGN_OR_RETURN(const CallArgs args, evaluate_arguments(expr.call));
  line_ = expr.line;
  return apply_filter(expr.text, input, args);
}

}  // namespace qsf::jinja
