// SPDX-License-Identifier: MIT
//
// Filters, tests, methods and global functions of the template language: those that templates of
// public models use, and no others. The parser refuses every other name.

#ifndef QSF_CHAT_JINJA_FUNCTIONS_H_
#define QSF_CHAT_JINJA_FUNCTIONS_H_

#include <string_view>

#include "base/result.h"
#include "chat/jinja_value.h"

namespace qsf::jinja {

class Interpreter;

// `value | name(...)`. Null when no filter has this name.
using FilterFunction = Result<Value> (*)(Interpreter&, const Value& input, const CallArgs&);
FilterFunction find_filter(std::string_view name);

// `value is name(...)`. Null when no test has this name.
using TestFunction = Result<bool> (*)(Interpreter&, const Value& value, const CallArgs&);
TestFunction find_test(std::string_view name);

// `value.name(...)`.
// Whether a template may call a method with this name. append and pop are allowed, although
// they change a list: as in Python's sandbox, calling them fails.
bool is_method_name(std::string_view name);
// Whether `value` has this method.
// Fails  kUnsupported: Python's type has the method, this renderer does not
Result<bool> has_method(const Value& value, std::string_view name);
// Requires  has_method(self, name)
Result<Value> call_method(Interpreter& interpreter, const Value& self, std::string_view name,
                          const CallArgs& args);

// `name(...)`: range, dict, namespace, raise_exception and strftime_now.
bool is_function(std::string_view name);
Result<Value> call_function(Interpreter& interpreter, std::string_view name, const CallArgs& args);

// An integer argument, `fallback` where it was not given.
// Fails  kInvalidArgument, naming `callee`: a value that is not an integer
Result<std::int64_t> int_argument(const Value* value, std::int64_t fallback, const char* callee);

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_FUNCTIONS_H_
