// SPDX-License-Identifier: MIT
//
// Python's operators on values.

#ifndef QSF_CHAT_JINJA_OPERATORS_H_
#define QSF_CHAT_JINJA_OPERATORS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "chat/jinja_ast.h"
#include "chat/jinja_heap.h"

namespace qsf::jinja {

// Applies +, -, *, /, //, % or **.
// Fails  kInvalidArgument where Python raises, kUnsupported where an integer outgrows 64 bits
Result<Value> apply_binary(Heap& heap, std::string_view op, const Value& a, const Value& b);

Result<Value> negate(const Value& value);
Result<Value> plus(const Value& value);

Result<bool> compare_values(Heap& heap, Comparison comparison, const Value& a, const Value& b);

// Returns `needle in haystack`.
Result<bool> contains(Heap& heap, const Value& haystack, const Value& needle);

// Returns `value[begin:end:step]`, where none stands for what is left out.
Result<Value> slice(Heap& heap, const Value& value, const Value& begin, const Value& end,
                    const Value& step);

// Returns character `index` of a string or item of a list; nothing when there are not so many.
Result<std::optional<Value>> element(Heap& heap, const Value& value, std::int64_t index);

// The failure that using an undefined value raises.
Status undefined_error(const Value& value);

// Returns `format % value`.
Result<Value> format_percent(Heap& heap, const Text& format, const Value& value);

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_OPERATORS_H_
