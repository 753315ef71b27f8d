// SPDX-License-Identifier: MIT
//
// A loop under way: what the variable `loop` shows.
//
// The items that a filter in the tag lets through are found one at a time, since the body may
// change what the filter looks at; `last`, `nextitem` and `length` look ahead, as Jinja's do.

#ifndef QSF_CHAT_JINJA_LOOP_H_
#define QSF_CHAT_JINJA_LOOP_H_

#include <cstdint>
#include <deque>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "chat/jinja_ast.h"
#include "chat/jinja_interpreter.h"

namespace qsf::jinja {

class Loop {
 public:
  Loop(Interpreter& interpreter, const Stmt& stmt, Scope* outer, std::vector<Value> source)
      : interpreter_(interpreter), stmt_(stmt), outer_(outer), source_(std::move(source)) {}

  // Goes to the next item.
  // Guarantees  false at the end, true with current() otherwise
  Result<bool> advance();
  const Value& current() const { return current_; }

  // Forgets all items; what is left of a loop that has ended.
  void release();

  Result<Value> attribute(std::string_view name);
  Result<Value> cycle(const CallArgs& args) const;
  Result<Value> changed(const CallArgs& args);

 private:
  // Brings one more item into ahead_.
  Result<bool> look_ahead();
  Result<std::int64_t> length();

  Interpreter& interpreter_;
  const Stmt& stmt_;
  Scope* outer_;
  std::vector<Value> source_;
  std::size_t next_ = 0;
  std::deque<Value> ahead_;
  std::int64_t index0_ = -1;
  Value previous_;
  Value current_;
  std::vector<Value> last_changed_;
  bool has_changed_ = false;
};

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_LOOP_H_
