// SPDX-License-Identifier: MIT
//
// Renders a parsed template.
//
// Scopes are as in Jinja: each pass of a loop, each call of a macro and each captured block has its
// own scope, `if` has none, and `set` writes to the innermost. The public part of the class is for
// filters, tests and methods. Statements are in jinja_interpreter.cc, expressions in
// jinja_expressions.cc.

#ifndef QSF_CHAT_JINJA_INTERPRETER_H_
#define QSF_CHAT_JINJA_INTERPRETER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "chat/chat_template.h"
#include "chat/jinja_ast.h"
#include "chat/jinja_value.h"

namespace qsf::jinja {

struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<NameId, Value>> names;
  bool is_kept = false;  // a macro refers to it
};

class Interpreter {
 public:
  Interpreter(const Program& program, const RunLimits& limits, std::int64_t now_seconds);
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Renders with the variables that transformers gives a template.
  Result<Text> run(const ChatTemplateInput& input);

  Heap& heap() { return heap_; }
  std::int64_t now_seconds() const { return now_seconds_; }

  // Calls a function, method or macro.
  Result<Value> call(const Value& callee, const CallArgs& args);
  Result<Value> apply_filter(std::string_view name, const Value& input, const CallArgs& args);
  Result<bool> apply_test(std::string_view name, const Value& input, const CallArgs& args);

  // `value.name`: methods before items. `value[key]`: items before methods. Undefined where there
  // is neither.
  Result<Value> attribute(const Value& value, std::string_view name);
  Result<Value> item(const Value& value, const Value& key);

  // Returns the items of a loop over `value`.
  Result<std::vector<Value>> iterate(const Value& value);

  Result<Value> to_text_value(const Value& value);

 private:
  friend class Loop;
  enum class Flow : std::uint8_t { kNext, kBreak, kContinue };
  class Nesting;

  Value lookup(NameId name, std::uint64_t& n_steps) const;
  Result<Value> evaluate(const Expr& expr);
  Result<Value> evaluate_operation(const Expr& expr);
  Result<Value> evaluate_name(const Expr& expr);
  Result<std::vector<Value>> evaluate_all(const std::vector<ExprPtr>& parts);
  Result<Value> evaluate_dict(const Expr& expr);
  Result<Value> evaluate_binary(const Expr& expr);
  Result<Value> evaluate_concat(const Expr& expr);
  Result<Value> evaluate_compare(const Expr& expr);
  Result<Value> evaluate_condition(const Expr& expr);
  Result<Value> evaluate_subscript(const Expr& expr);
  Result<Value> evaluate_call(const Expr& expr);
  Result<Value> evaluate_filter(const Expr& expr, const Value* block);
  Result<CallArgs> evaluate_arguments(const CallSyntax& call);
  Status charge_arguments(const CallArgs& args);

  Result<Flow> execute(const Block& block);
  Result<Flow> execute(const Stmt& stmt);
  Result<Flow> execute_in_scope(const Block& block);
  Result<Flow> execute_if(const Stmt& stmt);
  Result<Flow> execute_for(const Stmt& stmt);
  Status execute_set(const Stmt& stmt);
  Status execute_capture(const Stmt& stmt);
  Status execute_call_block(const Stmt& stmt);
  Status write(const Value& value);
  // Runs `block` in its own scope and returns its output.
  Result<Value> capture(const Block& block);
  Status assign(const Target& target, Value value);
  void assign_name(NameId name, Value value);
  Result<Value> call_macro(const Callable& callable, const CallArgs& args);
  Status bind_parameters(const Callable& callable, const CallArgs& args);
  Status bind_special(const Callable& callable, const CallArgs& args,
                      std::vector<std::pair<std::string, Value>> unused);

  Status bind_input(const ChatTemplateInput& input);
  Result<Value> make_messages(const ChatTemplateInput& input);

  class ScopeEntry;
  // Keeps the current scope and its parents to the end of the rendering: a macro refers to them.
  Status keep_scope();

  const Program& program_;
  NameId loop_name_;
  Heap heap_;
  std::int64_t now_seconds_;
  std::vector<std::unique_ptr<Scope>> scopes_;
  std::vector<Scope*> free_scopes_;
  Scope* scope_ = nullptr;
  Text* out_ = nullptr;
  int depth_ = 0;
  int line_ = 1;  // of the last evaluated node
};

// One level of recursion for the life of this object.
class Interpreter::Nesting {
 public:
  explicit Nesting(int& depth) : depth_(depth) { ++depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  ~Nesting() { --depth_; }

  Status check() const {
    if (depth_ <= kMaxRunDepth) return ok_status();
    return unsupported("calls and expressions are nested deeper than %d levels", kMaxRunDepth);
  }

 private:
  int& depth_;
};

// A new scope inside `parent` for the life of this object.
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

// A running loop: the variable `loop`.
//
// Items are filtered one at a time, since the body may change variables that the loop's condition
// reads. `last`, `nextitem` and `length` look ahead, as in Jinja.
class Loop {
 public:
  Loop(Interpreter& interpreter, const Stmt& stmt, Scope* outer, std::vector<Value> source)
      : interpreter_(interpreter), stmt_(stmt), outer_(outer), source_(std::move(source)) {}

  // Goes to the next item.
  // Guarantees  false at the end, true with current() otherwise
  Result<bool> advance();
  const Value& current() const { return current_; }

  // Drops all items, at the end of the loop.
  void release();

  Result<Value> attribute(std::string_view name);

 private:
  // Adds one more item to ahead_.
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
};

// Renders `program`. As ChatTemplate::render, with limits that a test may lower.
Result<Text> run_program(const Program& program, const ChatTemplateInput& input,
                         const RunLimits& limits);

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_INTERPRETER_H_
