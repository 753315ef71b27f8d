// SPDX-License-Identifier: MIT
//
// What a template can call, and the arguments it calls with.

#ifndef QSF_CHAT_JINJA_CALLABLE_H_
#define QSF_CHAT_JINJA_CALLABLE_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "chat/jinja_value.h"

namespace qsf::jinja {

struct Scope;
struct Stmt;

enum class CallableKind : std::uint8_t {
  kFunction,  // a global function called `name`
  kMethod,    // method `name` of `self`
  kMacro,     // `macro`, which sees the names of `scope`
};

struct Callable {
  CallableKind kind;
  std::string name;
  Value self = {};
  const Stmt* macro = nullptr;
  Scope* scope = nullptr;
  Extent extent = {};
};

struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;

  const Value* find_keyword(std::string_view name) const;
};

// Lays arguments out by the names of parameters; null where none was given.
// Fails  kInvalidArgument on more than there are, on an unknown name and on one given twice
Result<std::vector<const Value*>> bind_arguments(const CallArgs& args, std::string_view callee,
                                                 std::initializer_list<std::string_view> names);

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_CALLABLE_H_
