// SPDX-License-Identifier: MIT
//
// The tests of Jinja, `value is name`.

#ifndef QSF_CHAT_JINJA_TESTS_H_
#define QSF_CHAT_JINJA_TESTS_H_

#include <string_view>

#include "base/result.h"
#include "chat/jinja_callable.h"

namespace qsf::jinja {

class Interpreter;

using TestFunction = Result<bool> (*)(Interpreter&, const Value& value, const CallArgs&);

// Returns the test, null when none has this name.
TestFunction find_test(std::string_view name);

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_TESTS_H_
