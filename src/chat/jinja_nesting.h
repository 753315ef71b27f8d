// SPDX-License-Identifier: MIT
//
// Interpreter::Nesting: one level of recursion for as long as it lives.

#ifndef QSF_CHAT_JINJA_NESTING_H_
#define QSF_CHAT_JINJA_NESTING_H_

#include "chat/jinja_interpreter.h"
#include "chat/jinja_limits.h"

namespace qsf::jinja {

class Interpreter::Nesting {
 public:
  explicit Nesting(int& depth) : depth_(depth) { ++depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  ~Nesting() { --depth_; }

  Status check() const {
    if (depth_ <= kMaxRunDepth) return ok_status();
    return unsupported("calls and expressions nested deeper than %d levels", kMaxRunDepth);
  }

 private:
  int& depth_;
};

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_NESTING_H_
