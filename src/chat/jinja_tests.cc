// SPDX-License-Identifier: MIT

#include "chat/jinja_tests.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "chat/jinja_filters.h"
#include "chat/jinja_interpreter.h"
#include "chat/jinja_operators.h"
#include "chat/unicode_table.h"

namespace qsf::jinja {
namespace {

using Args = const CallArgs&;

template <bool (*kPredicate)(const Value&)>
Result<bool> check(Interpreter&, const Value& value, Args args) {
  const auto bound = bind_arguments(args, "the test", {});
  if (!bound) return bound.error();
  return kPredicate(value);
}

bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_undefined(const Value& value) {
  return value.is_undefined();
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_boolean(const Value& value) {
  return value.get<bool>() != nullptr;
}
bool is_exactly_true(const Value& value) {
  return is_boolean(value) && *value.get<bool>();
}
bool is_exactly_false(const Value& value) {
  return is_boolean(value) && !*value.get<bool>();
}
bool is_integer(const Value& value) {
  return value.get<std::int64_t>() != nullptr;
}
bool is_float(const Value& value) {
  return value.get<double>() != nullptr;
}
bool is_number(const Value& value) {
  return as_number(value).has_value();
}
bool is_string(const Value& value) {
  return as_text(value) != nullptr;
}
bool is_mapping(const Value& value) {
  return as_dict(value) != nullptr;
}
bool is_callable(const Value& value) {
  return value.is_undefined() || value.get<CallableRef>() != nullptr ||
         value.get<LoopRef>() != nullptr;
}
bool is_escaped(const Value& value) {
  const TextRef* text = value.get<TextRef>();
  return text != nullptr && (*text)->is_markup;
}
bool is_iterable(const Value& value) {
  return value.is_undefined() || is_string(value) || is_mapping(value) ||
         as_list(value) != nullptr || value.get<LoopRef>() != nullptr;
}
bool is_sequence(const Value& value) {
  if (const List* list = as_list(value)) {
    return list->kind != ListKind::kIterator && list->kind != ListKind::kView;
  }
  return value.is_undefined() || is_string(value) || is_mapping(value);
}

Result<const Value*> one_argument(Args args, std::string_view name) {
  QSF_ASSIGN_OR_RETURN(const auto bound, bind_arguments(args, name, {"other"}));
  if (bound[0] == nullptr) {
    return invalid_argument("the test '%s' takes an argument", std::string(name).c_str());
  }
  return bound[0];
}

template <Comparison kComparison>
Result<bool> check_comparison(Interpreter& interpreter, const Value& value, Args args) {
  QSF_ASSIGN_OR_RETURN(const Value* other, one_argument(args, "a comparison"));
  return compare_values(interpreter.heap(), kComparison, value, *other);
}

Result<bool> check_in(Interpreter& interpreter, const Value& value, Args args) {
  QSF_ASSIGN_OR_RETURN(const Value* other, one_argument(args, "in"));
  return contains(interpreter.heap(), *other, value);
}

Result<bool> check_remainder(Interpreter& interpreter, const Value& value, const Value& divisor,
                             std::int64_t expected) {
  if (as_text(value) != nullptr) return invalid_argument("a string has no remainder");
  QSF_ASSIGN_OR_RETURN(const Value remainder,
                       apply_binary(interpreter.heap(), "%", value, divisor));
  return equal(remainder, make_int(expected));
}

Result<bool> check_odd(Interpreter& interpreter, const Value& value, Args) {
  return check_remainder(interpreter, value, make_int(2), 1);
}

Result<bool> check_even(Interpreter& interpreter, const Value& value, Args) {
  return check_remainder(interpreter, value, make_int(2), 0);
}

Result<bool> check_divisible(Interpreter& interpreter, const Value& value, Args args) {
  QSF_ASSIGN_OR_RETURN(const Value* divisor, one_argument(args, "divisibleby"));
  return check_remainder(interpreter, value, *divisor, 0);
}

Result<bool> check_same(Interpreter&, const Value& value, Args args) {
  QSF_ASSIGN_OR_RETURN(const Value* other, one_argument(args, "sameas"));
  if (value.state.index() != other->state.index()) return false;
  if (value.is_undefined() || is_float(value)) return false;
  if (is_string(value) || is_integer(value)) {
    return unsupported("the test 'sameas' of strings or integers, of which Python keeps copies");
  }
  if (value.is_none() || is_boolean(value)) return equal(value, *other);
  if (as_list(value) != nullptr) return as_list(value) == as_list(*other);
  if (as_dict(value) != nullptr) return as_dict(value) == as_dict(*other);
  return equal(value, *other);
}

// str.isupper and str.islower: some character has that case and none the other.
Result<bool> check_case(Interpreter& interpreter, const Value& value, bool want_upper) {
  QSF_ASSIGN_OR_RETURN(const Value text, interpreter.to_text_value(value));
  const std::string& bytes = *as_bytes(text);
  bool has_wanted = false;
  for (std::size_t at = 0; at < bytes.size();) {
    const DecodedChar next = decode_char(bytes, at);
    at += next.n_bytes;
    const bool upper = is_upper(next.code_point);
    const bool lower = is_lower(next.code_point);
    if (want_upper ? lower : upper) return false;
    has_wanted |= want_upper ? upper : lower;
  }
  return has_wanted;
}

Result<bool> check_upper(Interpreter& interpreter, const Value& value, Args) {
  return check_case(interpreter, value, true);
}

Result<bool> check_lower(Interpreter& interpreter, const Value& value, Args) {
  return check_case(interpreter, value, false);
}

Result<bool> check_filter(Interpreter&, const Value& value, Args) {
  const std::string* name = as_bytes(value);
  return name != nullptr && find_filter(*name) != nullptr;
}

Result<bool> check_test(Interpreter&, const Value& value, Args) {
  const std::string* name = as_bytes(value);
  return name != nullptr && find_test(*name) != nullptr;
}

struct TestEntry {
  std::string_view name;
  TestFunction apply;
};

constexpr TestEntry kTests[] = {
    {"!=", check_comparison<Comparison::kNe>},
    {"<", check_comparison<Comparison::kLt>},
    {"<=", check_comparison<Comparison::kLe>},
    {"==", check_comparison<Comparison::kEq>},
    {">", check_comparison<Comparison::kGt>},
    {">=", check_comparison<Comparison::kGe>},
    {"boolean", check<is_boolean>},
    {"callable", check<is_callable>},
    {"defined", check<is_defined>},
    {"divisibleby", check_divisible},
    {"eq", check_comparison<Comparison::kEq>},
    {"equalto", check_comparison<Comparison::kEq>},
    {"escaped", check<is_escaped>},
    {"even", check_even},
    {"false", check<is_exactly_false>},
    {"filter", check_filter},
    {"float", check<is_float>},
    {"ge", check_comparison<Comparison::kGe>},
    {"greaterthan", check_comparison<Comparison::kGt>},
    {"gt", check_comparison<Comparison::kGt>},
    {"in", check_in},
    {"integer", check<is_integer>},
    {"iterable", check<is_iterable>},
    {"le", check_comparison<Comparison::kLe>},
    {"lessthan", check_comparison<Comparison::kLt>},
    {"lower", check_lower},
    {"lt", check_comparison<Comparison::kLt>},
    {"mapping", check<is_mapping>},
    {"ne", check_comparison<Comparison::kNe>},
    {"none", check<is_none>},
    {"number", check<is_number>},
    {"odd", check_odd},
    {"sameas", check_same},
    {"sequence", check<is_sequence>},
    {"string", check<is_string>},
    {"test", check_test},
    {"true", check<is_exactly_true>},
    {"undefined", check<is_undefined>},
    {"upper", check_upper},
};

}  // namespace

TestFunction find_test(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTests), std::end(kTests),
                                   [name](const TestEntry& entry) { return entry.name == name; });
  return found == std::end(kTests) ? nullptr : found->apply;
}

}  // namespace qsf::jinja
