// SPDX-License-Identifier: MIT
//
// Python's operators, and the interpreter's evaluation of expressions.

#include "chat/jinja_expressions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "chat/jinja_format.h"
#include "chat/jinja_interpreter.h"

namespace qsf::jinja {
namespace {

Status overflow(std::string_view op) {
  return unsupported("the result of '%s' is beyond 64 bits", std::string(op).c_str());
}

Status wrong_types(std::string_view op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) return undefined_error(*value);
  }
  return invalid_argument("'%s' is not defined for the types %s and %s", std::string(op).c_str(),
                          std::string(type_name(a)).c_str(), std::string(type_name(b)).c_str());
}

Result<Value> apply_ints(std::string_view op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (op == "+") {
    if (__builtin_add_overflow(a, b, &result)) return overflow(op);
    return make_int(result);
  }
  if (op == "-") {
    if (__builtin_sub_overflow(a, b, &result)) return overflow(op);
    return make_int(result);
  }
  if (op == "*") {
    if (__builtin_mul_overflow(a, b, &result)) return overflow(op);
    return make_int(result);
  }
  if (b == 0) return invalid_argument("division by zero");
  if (b == -1) return make_int(0);
  // The remainder of Python has the sign of the divisor.
  const std::int64_t remainder = a % b;
  return make_int(remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder);
}

Result<Value> apply_floats(std::string_view op, double a, double b) {
  if (op == "+") return make_float(a + b);
  if (op == "-") return make_float(a - b);
  if (op == "*") return make_float(a * b);
  if (b == 0) return invalid_argument("division by zero");
  const double remainder = std::fmod(a, b);
  if (remainder == 0) return make_float(std::copysign(0.0, b));
  return make_float((remainder < 0) != (b < 0) ? remainder + b : remainder);
}

// As markupsafe.escape.
Text escape_markup(const Text& text) {
  Text out;
  std::size_t plain = 0;
  const std::string& bytes = text.bytes();
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string_view escaped;
    switch (bytes[at]) {
      case '&': escaped = "&amp;"; break;
      case '<': escaped = "&lt;"; break;
      case '>': escaped = "&gt;"; break;
      case '\'': escaped = "&#39;"; break;
      case '"': escaped = "&#34;"; break;
      default: continue;
    }
    out.append_slice(text, plain, at);
    out.append(escaped, text.trusted_at(at));
    plain = at + 1;
  }
  out.append_slice(text, plain, bytes.size());
  return out;
}

Result<Value> add_sequences(Heap& heap, const Value& a, const Value& b) {
  const Text* left = as_text(a);
  const Text* right = as_text(b);
  if (left != nullptr && right != nullptr) {
    const bool left_is_markup = (*a.get<TextRef>())->is_markup;
    const bool right_is_markup = (*b.get<TextRef>())->is_markup;
    if (left_is_markup == right_is_markup) {
      QSF_RETURN_IF_ERROR(heap.check_bytes(left->size() + right->size()));
      Text joined = *left;
      joined.append(*right);
      return left_is_markup ? heap.make_markup(std::move(joined))
                            : heap.make_text(std::move(joined));
    }
    // An escape has at most five bytes for one.
    QSF_RETURN_IF_ERROR(heap.charge((left->size() + right->size()) / 64));
    QSF_RETURN_IF_ERROR(heap.check_bytes(5 * (left->size() + right->size())));
    Text joined = left_is_markup ? *left : escape_markup(*left);
    joined.append(left_is_markup ? escape_markup(*right) : *right);
    return heap.make_markup(std::move(joined));
  }
  const List* first = as_list(a);
  const List* second = as_list(b);
  if (first != nullptr && second != nullptr && first->kind == second->kind &&
      (first->kind == ListKind::kList || first->kind == ListKind::kTuple)) {
    std::vector<Value> items = first->items;
    items.insert(items.end(), second->items.begin(), second->items.end());
    return heap.make_list(first->kind, std::move(items));
  }
  return wrong_types("+", a, b);
}

Result<Value> repeat(Heap& heap, const Value& value, std::int64_t count) {
  const auto n = static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0));
  const std::uint64_t limit = heap.limits().live_bytes;
  if (const Text* text = as_text(value)) {
    if (text->empty()) return value;
    QSF_RETURN_IF_ERROR(heap.check_bytes(n > limit ? limit + 1 : n * text->size()));
    QSF_RETURN_IF_ERROR(heap.charge(n));
    Text repeated;
    for (std::uint64_t i = 0; i < n; ++i) repeated.append(*text);
    return heap.make_text(std::move(repeated));
  }
  const List& list = *as_list(value);
  const std::uint64_t item_bytes = list.items.size() * sizeof(Value);
  if (item_bytes == 0) return value;
  QSF_RETURN_IF_ERROR(heap.check_bytes(n > limit ? limit + 1 : n * item_bytes));
  std::vector<Value> items;
  for (std::uint64_t i = 0; i < n; ++i) {
    items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return heap.make_list(list.kind, std::move(items));
}

bool can_repeat(const Value& value) {
  const List* list = as_list(value);
  return as_text(value) != nullptr ||
         (list != nullptr && (list->kind == ListKind::kList || list->kind == ListKind::kTuple));
}

// Python's resolution of slice bounds for a sequence of n items.
struct SliceBounds {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t step;
};

Result<SliceBounds> resolve_slice(const Value& begin, const Value& end, const Value& step,
                                  std::int64_t n) {
  for (const Value* part : {&begin, &end, &step}) {
    if (part->is_undefined()) return undefined_error(*part);
    if (!part->is_none() && !as_int(*part)) {
      return invalid_argument("a slice takes integers, got %s",
                              std::string(type_name(*part)).c_str());
    }
  }
  SliceBounds bounds{.begin = 0, .end = n, .step = step.is_none() ? 1 : *as_int(step)};
  if (bounds.step == 0) return invalid_argument("the step of a slice cannot be zero");
  const bool is_backward = bounds.step < 0;
  const std::int64_t lowest = is_backward ? -1 : 0;
  const std::int64_t highest = is_backward ? n - 1 : n;
  const auto clamp = [&](const Value& part, std::int64_t fallback) {
    if (part.is_none()) return fallback;
    const std::int64_t at = *as_int(part);
    return std::clamp(at < 0 ? at + n : at, lowest, highest);
  };
  bounds.begin = clamp(begin, is_backward ? highest : lowest);
  bounds.end = clamp(end, is_backward ? lowest : highest);
  return bounds;
}

Result<Value> slice_text(Heap& heap, const Text& text, const Value& begin, const Value& end,
                         const Value& step) {
  const std::string& bytes = text.bytes();
  const auto n_chars = static_cast<std::int64_t>(count_chars(bytes));
  QSF_ASSIGN_OR_RETURN(const SliceBounds bounds, resolve_slice(begin, end, step, n_chars));
  if (bounds.step == 1) {
    if (bounds.begin >= bounds.end) return heap.make_text({});
    const std::size_t first = char_offset(bytes, static_cast<std::size_t>(bounds.begin));
    const std::size_t n = char_offset(std::string_view(bytes).substr(first),
                                      static_cast<std::size_t>(bounds.end - bounds.begin));
    return heap.make_text(text.slice(first, first + n));
  }
  std::vector<std::size_t> offsets;
  QSF_RETURN_IF_ERROR(heap.check_bytes((bytes.size() + 1) * sizeof(std::size_t)));
  for (std::size_t at = 0; at < bytes.size(); at += decode_char(bytes, at).n_bytes) {
    offsets.push_back(at);
  }
  offsets.push_back(bytes.size());
  Text out;
  for (std::int64_t i = bounds.begin; bounds.step > 0 ? i < bounds.end : i > bounds.end;) {
    const auto at = static_cast<std::size_t>(i);
    out.append_slice(text, offsets[at], offsets[at + 1]);
    if (__builtin_add_overflow(i, bounds.step, &i)) break;
  }
  return heap.make_text(std::move(out));
}

}  // namespace

Result<Value> apply_binary(Heap& heap, std::string_view op, const Value& a, const Value& b) {
  QSF_RETURN_IF_ERROR(heap.charge(1));
  if (op == "%" && as_text(a) != nullptr) {
    return unsupported("'%%' formatting of strings is not supported");
  }
  const auto x = as_int(a);
  const auto y = as_int(b);
  if (x && y) return apply_ints(op, *x, *y);
  const auto f = as_number(a);
  const auto g = as_number(b);
  if (f && g) return apply_floats(op, *f, *g);
  if (op == "+") return add_sequences(heap, a, b);
  if (op == "*" && can_repeat(a) && y) return repeat(heap, a, *y);
  if (op == "*" && x && can_repeat(b)) return repeat(heap, b, *x);
  return wrong_types(op, a, b);
}

Result<Value> negate(const Value& value) {
  if (const double* number = value.get<double>()) return make_float(-*number);
  if (value.is_undefined()) return undefined_error(value);
  const auto integer = as_int(value);
  if (!integer) {
    return invalid_argument("unary '-' is not defined for the type %s",
                            std::string(type_name(value)).c_str());
  }
  if (*integer == std::numeric_limits<std::int64_t>::min()) return overflow("-");
  return make_int(-*integer);
}

Result<bool> contains(Heap& heap, const Value& haystack, const Value& needle) {
  QSF_RETURN_IF_ERROR(heap.charge(extent_of(haystack).cost + extent_of(needle).cost));
  if (const std::string* text = as_bytes(haystack)) {
    const std::string* part = as_bytes(needle);
    if (part == nullptr) {
      return invalid_argument("'in' of a string takes a string on its left, got %s",
                              std::string(type_name(needle)).c_str());
    }
    return find_bytes(*text, *part, 0) != std::string::npos;
  }
  if (const List* list = as_list(haystack)) {
    const auto first = list->items.begin() + static_cast<std::ptrdiff_t>(list->next);
    const auto found = std::find_if(first, list->items.end(),
                                    [&needle](const Value& item) { return equal(item, needle); });
    if (list->kind == ListKind::kIterator) {
      list->next = static_cast<std::size_t>(found - list->items.begin()) +
                   (found == list->items.end() ? 0 : 1);
    }
    return found != list->items.end();
  }
  if (const Dict* dict = as_dict(haystack)) {
    if (!dict_key(needle)) {
      return invalid_argument("a value of type %s cannot be the key of a dict",
                              std::string(type_name(needle)).c_str());
    }
    return dict->find(needle) != nullptr;
  }
  if (haystack.is_undefined()) return false;
  return invalid_argument("'in' is not defined for the type %s on its right",
                          std::string(type_name(haystack)).c_str());
}

Result<bool> compare_values(Heap& heap, Comparison comparison, const Value& a, const Value& b) {
  if (comparison == Comparison::kIn) return contains(heap, b, a);
  if (comparison == Comparison::kNotIn) {
    QSF_ASSIGN_OR_RETURN(const bool found, contains(heap, b, a));
    return !found;
  }
  QSF_RETURN_IF_ERROR(heap.charge(std::min(extent_of(a).cost, extent_of(b).cost)));
  if (comparison == Comparison::kEq) return equal(a, b);
  if (comparison == Comparison::kNe) return !equal(a, b);
  const auto f = as_number(a);
  const auto g = as_number(b);
  if (f && g && (std::isnan(*f) || std::isnan(*g))) return false;
  QSF_ASSIGN_OR_RETURN(const int order, compare(a, b));
  switch (comparison) {
    case Comparison::kLt: return order < 0;
    case Comparison::kLe: return order <= 0;
    case Comparison::kGt: return order > 0;
    default: return order >= 0;
  }
}

Result<Value> slice(Heap& heap, const Value& value, const Value& begin, const Value& end,
                    const Value& step) {
  if (value.is_undefined()) return undefined_error(value);
  QSF_RETURN_IF_ERROR(heap.charge(1));
  if (const Text* text = as_text(value)) {
    QSF_RETURN_IF_ERROR(heap.charge(text->size() / 16));
    return slice_text(heap, *text, begin, end, step);
  }
  const List* list = as_list(value);
  if (list == nullptr || list->kind == ListKind::kView || list->kind == ListKind::kIterator) {
    return invalid_argument("a value of type %s has no slices",
                            std::string(type_name(value)).c_str());
  }
  const auto n = static_cast<std::int64_t>(list->items.size());
  QSF_ASSIGN_OR_RETURN(const SliceBounds bounds, resolve_slice(begin, end, step, n));
  std::vector<Value> items;
  for (std::int64_t i = bounds.begin; bounds.step > 0 ? i < bounds.end : i > bounds.end;) {
    items.push_back(list->items[static_cast<std::size_t>(i)]);
    if (__builtin_add_overflow(i, bounds.step, &i)) break;
  }
  return heap.make_list(list->kind, std::move(items));
}

Result<std::optional<Value>> element(Heap& heap, const Value& value, std::int64_t index) {
  const std::optional<Value> absent;
  if (const List* list = as_list(value)) {
    const auto n = static_cast<std::int64_t>(list->items.size());
    if (list->kind == ListKind::kView || list->kind == ListKind::kIterator) return absent;
    if (index < 0) index += n;
    if (index < 0 || index >= n) return absent;
    return std::optional<Value>(list->items[static_cast<std::size_t>(index)]);
  }
  const Text* text = as_text(value);
  if (text == nullptr) return absent;
  QSF_RETURN_IF_ERROR(heap.charge(text->size() / 16));
  if (index < 0) index += static_cast<std::int64_t>(count_chars(text->bytes()));
  if (index < 0) return absent;
  const std::size_t at = char_offset(text->bytes(), static_cast<std::size_t>(index));
  if (at >= text->size()) return absent;
  QSF_ASSIGN_OR_RETURN(Value character, heap.make_text(text->slice(
                                            at, at + decode_char(text->bytes(), at).n_bytes)));
  return std::optional<Value>(std::move(character));
}

// Evaluation.

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
    case ExprKind::kSlice: return internal_error("a slice outside a subscript");
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
  return make_undefined("the condition of an 'if' without 'else' is false");
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
  return args;
}

Result<Value> Interpreter::evaluate_call(const Expr& expr) {
  QSF_ASSIGN_OR_RETURN(const Value callee, evaluate(*expr.args[0]));
  QSF_ASSIGN_OR_RETURN(const CallArgs args, evaluate_arguments(expr.call));
  line_ = expr.line;
  return call(callee, args);
}

// `block` is the input of the first filter of a filter block.
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
