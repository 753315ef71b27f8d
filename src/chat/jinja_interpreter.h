// SPDX-License-Identifier: MIT
//
// Runs a parsed template.
//
// Names are looked up through scopes as Jinja's compiler arranges them: `if` has none of its own, a
// pass of a loop, a macro, a block that is captured and `with` have, and `set` writes the
// innermost. What filters, tests and methods need of the interpreter is public.

#ifndef QSF_CHAT_JINJA_INTERPRETER_H_
#define QSF_CHAT_JINJA_INTERPRETER_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "chat/chat_template.h"
#include "chat/jinja_ast.h"
#include "chat/jinja_callable.h"
#include "chat/jinja_heap.h"

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

  // `value.name`: methods before items. `value[key]`: items before methods. What is not there is an
  // undefined value.
  Result<Value> attribute(const Value& value, std::string_view name);
  Result<Value> item(const Value& value, const Value& key);

  // Returns what a loop over `value` sees.
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
  Status expand_keywords(const Value& value, CallArgs& args);
  Status charge_arguments(const CallArgs& args);

  Result<Flow> execute(const Block& block);
  Result<Flow> execute(const Stmt& stmt);
  Result<Flow> execute_in_scope(const Block& block);
  Result<Flow> execute_if(const Stmt& stmt);
  Result<Flow> execute_for(const Stmt& stmt);
  Result<Flow> execute_with(const Stmt& stmt);
  Status execute_set(const Stmt& stmt);
  Status execute_capture(const Stmt& stmt);
  Status execute_call_block(const Stmt& stmt);
  Status write(const Value& value);
  // Runs `block` in a scope of its own and returns what it wrote.
  Result<Value> capture(const Block& block);
  Status assign(const Target& target, Value value);
  void assign_name(NameId name, Value value);
  Result<Value> call_macro(const Callable& callable, const CallArgs& args);
  Status bind_parameters(const Callable& callable, const CallArgs& args);
  Status bind_special(const Callable& callable, const CallArgs& args,
                      std::vector<std::pair<std::string, Value>> unused);

  Status bind_input(const ChatTemplateInput& input);
  Result<Value> make_messages(std::span<const ChatMessage> messages);

  // Enters a new scope inside `parent` for the life of this object.
  class ScopeEntry;
  // Keeps the current scope and those around it to the end, since a macro refers to them.
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
  int line_ = 1;  // of the node evaluated last
};

// Renders `program`; ChatTemplate::render with limits that a test may lower.
Result<Text> run_program(const Program& program, const ChatTemplateInput& input,
                         const RunLimits& limits);

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_INTERPRETER_H_
