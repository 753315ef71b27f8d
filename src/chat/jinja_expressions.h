// SPDX-License-Identifier: MIT
//
// Python's operators on values.

#ifndef QSF_CHAT_JINJA_EXPRESSIONS_H_
#define QSF_CHAT_JINJA_EXPRESSIONS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "chat/jinja_ast.h"
#include "chat/jinja_value.h"

namespace qsf::jinja {

// Applies +, -, * or %.
// Fails  kInvalidArgument where Python raises; kUnsupported: integers beyond 64 bits, '%' of
// strings
Result<Value> apply_binary(Heap& heap, std::string_view op, const Value& a, const Value& b);

Result<Value> negate(const Value& value);

Result<bool> compare_values(Heap& heap, Comparison comparison, const Value& a, const Value& b);

// Returns `needle in haystack`.
Result<bool> contains(Heap& heap, const Value& haystack, const Value& needle);

// Returns `value[begin:end:step]`; none stands for an omitted part.
Result<Value> slice(Heap& heap, const Value& value, const Value& begin, const Value& end,
                    const Value& step);

// Returns character `index` of a string or item `index` of a list; nothing past its end.
Result<std::optional<Value>> element(Heap& heap, const Value& value, std::int64_t index);

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_EXPRESSIONS_H_
