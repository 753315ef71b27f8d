// SPDX-License-Identifier: MIT
//
// Interpreter::ScopeEntry: a scope for as long as a block runs.

#ifndef QSF_CHAT_JINJA_SCOPE_ENTRY_H_
#define QSF_CHAT_JINJA_SCOPE_ENTRY_H_

#include "chat/jinja_interpreter.h"

namespace qsf::jinja {

class Interpreter::ScopeEntry {
 public:
  ScopeEntry(Interpreter& interpreter, Scope* parent)
      : interpreter_(interpreter), outer_(interpreter.scope_) {
    if (interpreter_.free_scopes_.empty()) {
      interpreter_.scopes_.push_back(std::make_unique<Scope>());
      interpreter_.scope_ = interpreter_.scopes_.back().get();
    } else {
      interpreter_.scope_ = interpreter_.free_scopes_.back();
      interpreter_.free_scopes_.pop_back();
    }
    interpreter_.scope_->parent = parent;
  }
  ScopeEntry(const ScopeEntry&) = delete;
  ScopeEntry& operator=(const ScopeEntry&) = delete;
  ~ScopeEntry() {
    Scope* const inner = interpreter_.scope_;
    interpreter_.scope_ = outer_;
    if (inner->is_kept) return;
    inner->names.clear();
    interpreter_.free_scopes_.push_back(inner);
  }

 private:
  Interpreter& interpreter_;
  Scope* outer_;
};

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_SCOPE_ENTRY_H_
