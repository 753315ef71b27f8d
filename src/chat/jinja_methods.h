// SPDX-License-Identifier: MIT
//
// Methods of strings and dicts, and the global functions.

#ifndef QSF_CHAT_JINJA_METHODS_H_
#define QSF_CHAT_JINJA_METHODS_H_

#include <string_view>

#include "base/result.h"
#include "chat/jinja_callable.h"
#include "chat/jinja_interpreter.h"

namespace qsf::jinja {

// Whether Python's type of `value` has this method, supported here or not; those that change a list
// or dict are not counted, since the sandbox hides them.
bool has_method(const Value& value, std::string_view name);

// Fails  kUnsupported on a method that Python has and we do not
Result<Value> call_method(Interpreter& interpreter, const Value& self, std::string_view name,
                          const CallArgs& args);

// Methods of strings; null where there is none.
using StringMethod = Result<Value> (*)(Interpreter&, const Text& self, const CallArgs&);
StringMethod find_string_method(std::string_view name);

// Whether a global function has this name, and its call.
bool is_function(std::string_view name);
Result<Value> call_function(Interpreter& interpreter, std::string_view name, const CallArgs& args);

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_METHODS_H_
