// SPDX-License-Identifier: MIT

#include "chat/jinja_operators.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "chat/jinja_format.h"

namespace qsf::jinja {
namespace {

Status overflow(std::string_view op) {
  return unsupported("the result of '%s' is past 64 bits", std::string(op).c_str());
}

Status wrong_types(std::string_view op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) return undefined_error(*value);
  }
  return invalid_argument("'%s' is not defined for the types %s and %s", std::string(op).c_str(),
                          std::string(type_name(a)).c_str(), std::string(type_name(b)).c_str());
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Result<Value> int_power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return invalid_argument("0 cannot be raised to a negative power");
    return make_float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  std::int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return overflow("**");
    // The last square is not needed, and may be the one that overflows.
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return overflow("**");
  }
  return make_int(result);
}

Result<Value> apply_ints(std::string_view op, std::int64_t a, std::int64_t b) {
  constexpr auto kLowest = std::numeric_limits<std::int64_t>::min();
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
  if (op == "**") return int_power(a, b);
  if (b == 0) return invalid_argument("division by zero");
  if (op == "/") return make_float(static_cast<double>(a) / static_cast<double>(b));
  if (a == kLowest && b == -1) return overflow(op);
  if (op == "//") return make_int(floor_divide(a, b));
  return make_int(a - floor_divide(a, b) * b);
}

Result<Value> apply_floats(std::string_view op, double a, double b) {
  if (op == "+") return make_float(a + b);
  if (op == "-") return make_float(a - b);
  if (op == "*") return make_float(a * b);
  if (op == "**") {
    if (a == 0 && b < 0) return invalid_argument("0 cannot be raised to a negative power");
    if (a < 0 && b != std::floor(b)) return unsupported("'**' gives a complex number");
    const double result = std::pow(a, b);
    if (std::isinf(result) && !std::isinf(a) && !std::isinf(b)) {
      return invalid_argument("the result of '**' is too large");
    }
    return make_float(result);
  }
  if (b == 0) return invalid_argument("division by zero");
  if (op == "/") return make_float(a / b);
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
  if (op == "%") return make_float(remainder == 0 ? std::copysign(0.0, b) : remainder);
  return make_float(std::round((a - remainder) / b));
}

Result<Value> add_sequences(Heap& heap, const Value& a, const Value& b) {
  const Text* left = as_text(a);
  const Text* right = as_text(b);
  if (left != nullptr && right != nullptr) {
    const bool is_markup = (*a.get<TextRef>())->is_markup;
    if (is_markup != (*b.get<TextRef>())->is_markup) {
      return unsupported("'+' of text from the filters safe or escape and other text");
    }
    QSF_RETURN_IF_ERROR(heap.check_bytes(left->size() + right->size()));
    Text joined = *left;
    joined.append(*right);
    return is_markup ? heap.make_markup(std::move(joined)) : heap.make_text(std::move(joined));
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

Status undefined_error(const Value& value) {
  return invalid_argument("%s", value.get<Undefined>()->why->c_str());
}

Result<Value> apply_binary(Heap& heap, std::string_view op, const Value& a, const Value& b) {
  QSF_RETURN_IF_ERROR(heap.charge(1));
  if (op == "%" && as_text(a) != nullptr) return format_percent(heap, *as_text(a), b);
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

Result<Value> plus(const Value& value) {
  if (const double* number = value.get<double>()) return make_float(*number);
  if (value.is_undefined()) return undefined_error(value);
  const auto integer = as_int(value);
  if (!integer) {
    return invalid_argument("unary '+' is not defined for the type %s",
                            std::string(type_name(value)).c_str());
  }
  return make_int(*integer);
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

}  // namespace qsf::jinja
