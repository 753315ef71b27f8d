// SPDX-License-Identifier: MIT
//
// The interpreter's statements, and calls of macros.

#include <algorithm>
#include <string>
#include <utility>

#include "chat/jinja_interpreter.h"
#include "chat/jinja_loop.h"
#include "chat/jinja_nesting.h"
#include "chat/jinja_scope_entry.h"

namespace qsf::jinja {

Result<Interpreter::Flow> Interpreter::execute(const Block& block) {
  const Nesting nesting(depth_);
  QSF_RETURN_IF_ERROR(nesting.check());
  for (const Stmt& stmt : block) {
    line_ = stmt.line;
    QSF_RETURN_IF_ERROR(heap_.charge(1));
    QSF_ASSIGN_OR_RETURN(const Flow flow, execute(stmt));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute_in_scope(const Block& block) {
  const ScopeEntry entry(*this, scope_);
  return execute(block);
}

Result<Interpreter::Flow> Interpreter::execute(const Stmt& stmt) {
  switch (stmt.kind) {
    case StmtKind::kData: {
      QSF_RETURN_IF_ERROR(write(stmt.value->constant));
      return Flow::kNext;
    }
    case StmtKind::kOutput: {
      QSF_ASSIGN_OR_RETURN(const Value value, evaluate(*stmt.value));
      QSF_RETURN_IF_ERROR(write(value));
      return Flow::kNext;
    }
    case StmtKind::kIf: return execute_if(stmt);
    case StmtKind::kFor: return execute_for(stmt);
    case StmtKind::kWith: return execute_with(stmt);
    case StmtKind::kGeneration: return execute_in_scope(stmt.body);
    case StmtKind::kBreak: return Flow::kBreak;
    case StmtKind::kContinue: return Flow::kContinue;
    case StmtKind::kSet: {
      QSF_RETURN_IF_ERROR(execute_set(stmt));
      return Flow::kNext;
    }
    case StmtKind::kSetBlock:
    case StmtKind::kFilter: {
      QSF_RETURN_IF_ERROR(execute_capture(stmt));
      return Flow::kNext;
    }
    case StmtKind::kMacro: {
      QSF_RETURN_IF_ERROR(keep_scope());
      QSF_ASSIGN_OR_RETURN(Value macro, heap_.make_callable({.kind = CallableKind::kMacro,
                                                             .name = program_.names[stmt.name],
                                                             .macro = &stmt,
                                                             .scope = scope_}));
      assign_name(stmt.name, std::move(macro));
      return Flow::kNext;
    }
    case StmtKind::kCallBlock: {
      QSF_RETURN_IF_ERROR(execute_call_block(stmt));
      return Flow::kNext;
    }
  }
  return internal_error("a statement of no kind");
}

Result<Interpreter::Flow> Interpreter::execute_if(const Stmt& stmt) {
  for (const Branch& branch : stmt.branches) {
    if (branch.condition != nullptr) {
      QSF_ASSIGN_OR_RETURN(const Value condition, evaluate(*branch.condition));
      if (!is_true(condition)) continue;
    }
    return execute(branch.body);
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute_for(const Stmt& stmt) {
  QSF_ASSIGN_OR_RETURN(const Value source, evaluate(*stmt.value));
  QSF_ASSIGN_OR_RETURN(std::vector<Value> items, iterate(source));
  const auto loop = std::make_shared<Loop>(*this, stmt, scope_, std::move(items));
  struct Release {
    Loop& loop;
    ~Release() { loop.release(); }
  } const release{*loop};
  Scope* const outer = scope_;
  bool is_empty = true;
  while (true) {
    QSF_ASSIGN_OR_RETURN(const bool has_item, loop->advance());
    if (!has_item) break;
    is_empty = false;
    const ScopeEntry entry(*this, outer);
    scope_->names.emplace_back(loop_name_, Value{LoopRef(loop)});
    QSF_RETURN_IF_ERROR(assign(stmt.target, loop->current()));
    QSF_ASSIGN_OR_RETURN(const Flow flow, execute(stmt.body));
    if (flow == Flow::kBreak) break;
  }
  if (is_empty && !stmt.otherwise.empty()) return execute_in_scope(stmt.otherwise);
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute_with(const Stmt& stmt) {
  QSF_ASSIGN_OR_RETURN(std::vector<Value> values, evaluate_all(stmt.values));
  const ScopeEntry entry(*this, scope_);
  for (std::size_t i = 0; i < values.size(); ++i) {
    QSF_RETURN_IF_ERROR(assign(stmt.targets[i], std::move(values[i])));
  }
  return execute(stmt.body);
}

Status Interpreter::execute_set(const Stmt& stmt) {
  auto value = evaluate(*stmt.value);
  if (!value) return value.error();
  line_ = stmt.line;
  return assign(stmt.target, std::move(*value));
}

// A filter block, whose result is written, and a block that is set, whose filters may be none.
Status Interpreter::execute_capture(const Stmt& stmt) {
  auto value = capture(stmt.body);
  if (value && stmt.value != nullptr) {
    const Value block = std::move(*value);
    value = evaluate_filter(*stmt.value, &block);
  }
  if (!value) return value.error();
  return stmt.kind == StmtKind::kFilter ? write(*value) : assign(stmt.target, std::move(*value));
}

Status Interpreter::execute_call_block(const Stmt& stmt) {
  QSF_RETURN_IF_ERROR(keep_scope());
  auto caller = heap_.make_callable(
      {.kind = CallableKind::kMacro, .name = "caller", .macro = &stmt, .scope = scope_});
  if (!caller) return caller.error();
  auto callee = evaluate(*stmt.value->args[0]);
  if (!callee) return callee.error();
  auto args = evaluate_arguments(stmt.value->call);
  if (!args) return args.error();
  args->keywords.emplace_back("caller", std::move(*caller));
  auto result = call(*callee, *args);
  if (!result) return result.error();
  return write(*result);
}

Status Interpreter::bind_parameters(const Callable& callable, const CallArgs& args) {
  const std::vector<Parameter>& parameters = callable.macro->parameters;
  // Each is looked for among the names bound before it, and among the keywords.
  QSF_RETURN_IF_ERROR(
      heap_.charge(parameters.size() * (parameters.size() + args.keywords.size()) / 8));
  std::vector<std::pair<std::string, Value>> unused = args.keywords;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = program_.names[parameters[i].name];
    if (i < args.positional.size()) {
      assign_name(parameters[i].name, args.positional[i]);
      continue;
    }
    const auto given = std::find_if(unused.begin(), unused.end(),
                                    [&name](const auto& entry) { return entry.first == name; });
    if (given != unused.end()) {
      assign_name(parameters[i].name, std::move(given->second));
      unused.erase(given);
    } else if (parameters[i].fallback != nullptr) {
      auto value = evaluate(*parameters[i].fallback);
      if (!value) return value.error();
      assign_name(parameters[i].name, std::move(*value));
    } else {
      assign_name(parameters[i].name,
                  make_undefined("parameter '" + shown_name(name) + "' was not provided"));
    }
  }
  return bind_special(callable, args, unused);
}

// Binds caller, kwargs and varargs where the body names them; arguments beyond the parameters have
// no other place.
Status Interpreter::bind_special(const Callable& callable, const CallArgs& args,
                                 std::vector<std::pair<std::string, Value>> unused) {
  const Stmt& macro = *callable.macro;
  const auto bind = [this](std::string_view name, Value value) {
    const auto found = std::find(program_.names.begin(), program_.names.end(), name);
    if (found == program_.names.end()) return;
    assign_name(static_cast<NameId>(found - program_.names.begin()), std::move(value));
  };
  if (macro.takes_caller) {
    const auto given = std::find_if(unused.begin(), unused.end(),
                                    [](const auto& entry) { return entry.first == "caller"; });
    bind("caller", given != unused.end() ? given->second : make_undefined("No caller defined"));
    if (given != unused.end()) unused.erase(given);
  }
  if (macro.takes_kwargs) {
    std::vector<DictEntry> entries;
    for (auto& [name, value] : unused) {
      auto key = heap_.make_text(name, true);
      if (!key) return key.error();
      entries.push_back({std::move(*key), std::move(value)});
    }
    auto kwargs = heap_.make_dict(entries);
    if (!kwargs) return kwargs.error();
    bind("kwargs", std::move(*kwargs));
  } else if (!unused.empty()) {
    return invalid_argument("macro '%s' takes no argument called '%s'", callable.name.c_str(),
                            unused.front().first.c_str());
  }
  const std::size_t n_parameters = macro.parameters.size();
  const std::size_t n_taken = std::min(n_parameters, args.positional.size());
  if (macro.takes_varargs) {
    auto varargs = heap_.make_list(
        ListKind::kTuple,
        {args.positional.begin() + static_cast<std::ptrdiff_t>(n_taken), args.positional.end()});
    if (!varargs) return varargs.error();
    bind("varargs", std::move(*varargs));
  } else if (args.positional.size() > n_parameters) {
    return invalid_argument("macro '%s' got %zu arguments, expected at most %zu",
                            callable.name.c_str(), args.positional.size(), n_parameters);
  }
  return ok_status();
}

Result<Value> Interpreter::call_macro(const Callable& callable, const CallArgs& args) {
  QSF_RETURN_IF_ERROR(
      heap_.charge(1 + callable.macro->parameters.size() + program_.names.size() / 16));
  const int line = line_;
  const ScopeEntry entry(*this, callable.scope);
  QSF_RETURN_IF_ERROR(bind_parameters(callable, args));
  Text text;
  Text* const outer = std::exchange(out_, &text);
  const auto flow = execute(callable.macro->body);
  out_ = outer;
  if (!flow) return flow.error();
  line_ = line;
  return heap_.make_text(std::move(text));
}

}  // namespace qsf::jinja
