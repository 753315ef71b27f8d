// SPDX-License-Identifier: MIT

#include "chat/jinja_interpreter.h"

#include <algorithm>
#include <string>

#include "chat/jinja_expressions.h"
#include "chat/jinja_format.h"
#include "chat/jinja_functions.h"
#include "chat/jinja_json.h"

namespace qsf::jinja {
namespace {

// A null pointer is none.
Result<Value> value_or_none(Heap& heap, const ChatJson* json) {
  return json == nullptr ? Result<Value>(make_none()) : make_value(heap, *json);
}

}  // namespace

Interpreter::Interpreter(const Program& program, const RunLimits& limits, std::int64_t now_seconds)
    : program_(program),
      loop_name_(static_cast<NameId>(std::find(program.names.begin(), program.names.end(), "loop") -
                                     program.names.begin())),
      heap_(limits),
      now_seconds_(now_seconds) {}

Status Interpreter::keep_scope() {
  QSF_RETURN_IF_ERROR(heap_.charge(kKeptCost));
  for (Scope* scope = scope_; scope != nullptr && !scope->is_kept; scope = scope->parent) {
    scope->is_kept = true;
  }
  return ok_status();
}

Result<Value> Interpreter::make_messages(const ChatTemplateInput& input) {
  std::vector<Value> items;
  if (input.json_messages != nullptr) {
    for (const ChatJson& message : input.json_messages->items) {
      QSF_ASSIGN_OR_RETURN(Value item, make_message_value(heap_, message));
      items.push_back(std::move(item));
    }
    return heap_.make_list(ListKind::kList, std::move(items));
  }
  for (const ChatMessage& message : input.messages) {
    std::vector<DictEntry> entries(2);
    QSF_ASSIGN_OR_RETURN(entries[0].key, heap_.make_text("role", true));
    QSF_ASSIGN_OR_RETURN(entries[0].value,
                         heap_.make_text(message.role, is_known_role(message.role)));
    QSF_ASSIGN_OR_RETURN(entries[1].key, heap_.make_text("content", true));
    QSF_ASSIGN_OR_RETURN(entries[1].value, heap_.make_text(message.content, false));
    QSF_ASSIGN_OR_RETURN(Value item, heap_.make_dict(entries));
    items.push_back(std::move(item));
  }
  return heap_.make_list(ListKind::kList, std::move(items));
}

// Binds those variables and functions of transformers that the program uses.
Status Interpreter::bind_input(const ChatTemplateInput& input) {
  for (std::size_t i = 0; i < program_.names.size(); ++i) {
    const std::string& name = program_.names[i];
    Result<Value> value = make_undefined({});
    if (name == "messages") {
      value = make_messages(input);
    } else if (name == "add_generation_prompt") {
      value = make_bool(input.add_generation_prompt);
    } else if (name == "tools") {
      value = value_or_none(heap_, input.tools);
    } else if (name == "bos_token" && !input.bos_token.empty()) {
      value = heap_.make_text(input.bos_token, true);
    } else if (name == "eos_token" && !input.eos_token.empty()) {
      value = heap_.make_text(input.eos_token, true);
    } else if (is_function(name)) {
      value = heap_.make_callable({.kind = CallableKind::kFunction, .name = name});
    } else if (const ChatJson* variable =
                   input.variables == nullptr ? nullptr : input.variables->find(name)) {
      value = make_value(heap_, *variable);
    } else if (name == "documents") {
      value = make_none();
    } else {
      continue;
    }
    if (!value) return value.error();
    assign_name(static_cast<NameId>(i), std::move(*value));
  }
  return ok_status();
}

Result<Text> Interpreter::run(const ChatTemplateInput& input) {
  Text out;
  out_ = &out;
  const auto run_all = [&]() -> Status {
    const ScopeEntry context(*this, nullptr);
    QSF_RETURN_IF_ERROR(bind_input(input));
    const ScopeEntry top(*this, scope_);
    const auto flow = execute(program_.body);
    return flow ? ok_status() : flow.error();
  };
  Status status = run_all();
  if (!status.ok()) return std::move(status).with_context("line " + std::to_string(line_));
  return out;
}

Value Interpreter::lookup(NameId name, std::uint64_t& n_steps) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    const auto found = std::find_if(scope->names.begin(), scope->names.end(),
                                    [name](const auto& entry) { return entry.first == name; });
    n_steps += static_cast<std::uint64_t>(found - scope->names.begin()) / 8;
    if (found != scope->names.end()) return found->second;
    ++n_steps;
  }
  return make_undefined("'" + shown_name(program_.names[name]) + "' is undefined");
}

void Interpreter::assign_name(NameId name, Value value) {
  const auto found = std::find_if(scope_->names.begin(), scope_->names.end(),
                                  [name](const auto& entry) { return entry.first == name; });
  if (found != scope_->names.end()) {
    found->second = std::move(value);
  } else {
    scope_->names.emplace_back(name, std::move(value));
  }
}

Status Interpreter::assign(const Target& target, Value value) {
  QSF_RETURN_IF_ERROR(heap_.charge(1 + scope_->names.size() / 8));
  if (target.is_tuple) {
    auto items = iterate(value);
    if (!items) return items.error();
    if (items->size() != target.items.size()) {
      return invalid_argument("unpacking: got %zu values, expected %zu", items->size(),
                              target.items.size());
    }
    for (std::size_t i = 0; i < items->size(); ++i) {
      QSF_RETURN_IF_ERROR(assign(target.items[i], std::move((*items)[i])));
    }
    return ok_status();
  }
  if (target.attribute.empty()) {
    assign_name(target.name, std::move(value));
    return ok_status();
  }
  std::uint64_t n_steps = 0;
  const Value owner = lookup(target.name, n_steps);
  QSF_RETURN_IF_ERROR(heap_.charge(n_steps));
  Namespace* const* space = owner.get<Namespace*>();
  if (space == nullptr) {
    return invalid_argument("attributes can be set only on a namespace, and '%s' is not one",
                            program_.names[target.name].c_str());
  }
  if (target.attribute[0] == '_') {
    return invalid_argument("a namespace cannot have the attribute '%s'", target.attribute.c_str());
  }
  QSF_RETURN_IF_ERROR(heap_.charge(1 + (*space)->attributes.size() / 8));
  (*space)->assign(target.attribute, std::move(value));
  return ok_status();
}

Status Interpreter::write(const Value& value) {
  auto text = to_str(heap_, value);
  if (!text) return text.error();
  QSF_RETURN_IF_ERROR(heap_.charge(1 + text->size() / 64 + text->runs().size() / 4));
  const std::size_t limit = heap_.limits().output_bytes;
  const std::size_t n_runs = out_->runs().size() + text->runs().size();
  if (out_->size() + text->size() > limit || n_runs * sizeof(TrustRun) > limit) {
    return unsupported("the template wrote more than %zu bytes", limit);
  }
  out_->append(*text);
  return ok_status();
}

Result<Value> Interpreter::capture(const Block& block) {
  Text text;
  Text* const outer = std::exchange(out_, &text);
  auto flow = execute_in_scope(block);
  out_ = outer;
  if (!flow) return flow.error();
  return heap_.make_text(std::move(text));
}

Result<Value> Interpreter::to_text_value(const Value& value) {
  if (as_text(value) != nullptr) return value;
  QSF_ASSIGN_OR_RETURN(Text text, to_str(heap_, value));
  return heap_.make_text(std::move(text));
}

Result<std::vector<Value>> Interpreter::iterate(const Value& value) {
  std::vector<Value> items;
  if (const List* list = as_list(value)) {
    QSF_RETURN_IF_ERROR(heap_.charge(1 + list->items.size() / 4));
    items.assign(list->items.begin() + static_cast<std::ptrdiff_t>(list->next), list->items.end());
    if (list->kind == ListKind::kIterator) list->next = list->items.size();
  } else if (const Dict* dict = as_dict(value)) {
    QSF_RETURN_IF_ERROR(heap_.charge(1 + dict->entries.size() / 4));
    for (const DictEntry& entry : dict->entries) items.push_back(entry.key);
  } else if (const Text* text = as_text(value)) {
    for (std::size_t at = 0; at < text->size();) {
      const std::size_t n = decode_char(text->bytes(), at).n_bytes;
      QSF_ASSIGN_OR_RETURN(Value character, heap_.make_text(text->slice(at, at + n)));
      items.push_back(std::move(character));
      at += n;
    }
  } else if (!value.is_undefined()) {
    return invalid_argument("a value of type %s cannot be iterated over",
                            std::string(type_name(value)).c_str());
  }
  return items;
}

Result<Value> Interpreter::attribute(const Value& value, std::string_view name) {
  QSF_RETURN_IF_ERROR(heap_.charge(name.size() / 64));
  if (value.is_undefined()) return undefined_error(value);
  if (Namespace* const* space = value.get<Namespace*>()) {
    QSF_RETURN_IF_ERROR(heap_.charge(1 + (*space)->attributes.size() / 8));
    if (const Value* found = (*space)->find(name)) return *found;
  } else if (const LoopRef* loop = value.get<LoopRef>()) {
    return (*loop)->attribute(name);
  } else {
    QSF_ASSIGN_OR_RETURN(const bool is_method, has_method(value, name));
    if (is_method) {
      return heap_.make_callable(
          {.kind = CallableKind::kMethod, .name = std::string(name), .self = value});
    }
    const Dict* dict = as_dict(value);
    const Value* found = dict == nullptr ? nullptr : dict->find(name);
    if (found != nullptr) return *found;
  }
  return make_undefined("'" + std::string(type_name(value)) + " object' has no attribute '" +
                        shown_name(name) + "'");
}

Result<Value> Interpreter::item(const Value& value, const Value& key) {
  if (value.is_undefined()) return undefined_error(value);
  if (const Dict* dict = as_dict(value)) {
    QSF_RETURN_IF_ERROR(heap_.charge(extent_of(key).cost));
    if (const Value* found = dict->find(key)) return *found;
  } else if (const auto index = as_int(key)) {
    QSF_ASSIGN_OR_RETURN(auto found, element(heap_, value, *index));
    if (found) return std::move(*found);
  }
  if (const std::string* name = as_bytes(key)) return attribute(value, *name);
  const auto index = as_int(key);
  return make_undefined(std::string(type_name(value)) + " object has no element " +
                        (index ? std::to_string(*index) : std::string(type_name(key))));
}

// Functions may visit everything in their arguments.
Status Interpreter::charge_arguments(const CallArgs& args) {
  for (const Value& value : args.positional) {
    QSF_RETURN_IF_ERROR(heap_.charge(extent_of(value).cost));
  }
  for (const auto& [name, value] : args.keywords) {
    QSF_RETURN_IF_ERROR(heap_.charge(1 + name.size() / 64 + extent_of(value).cost));
  }
  return ok_status();
}

Result<Value> Interpreter::apply_filter(std::string_view name, const Value& input,
                                        const CallArgs& args) {
  const FilterFunction filter = find_filter(name);
  if (filter == nullptr) {
    return unsupported("the filter '%.60s' is not supported", std::string(name).c_str());
  }
  const Nesting nesting(depth_);
  QSF_RETURN_IF_ERROR(nesting.check());
  QSF_RETURN_IF_ERROR(heap_.charge(extent_of(input).cost));
  QSF_RETURN_IF_ERROR(charge_arguments(args));
  return filter(*this, input, args);
}

Result<bool> Interpreter::apply_test(std::string_view name, const Value& input,
                                     const CallArgs& args) {
  const TestFunction test = find_test(name);
  if (test == nullptr) {
    return unsupported("the test '%.60s' is not supported", std::string(name).c_str());
  }
  QSF_RETURN_IF_ERROR(heap_.charge(extent_of(input).cost));
  QSF_RETURN_IF_ERROR(charge_arguments(args));
  return test(*this, input, args);
}

Result<Value> Interpreter::call(const Value& callee, const CallArgs& args) {
  if (callee.is_undefined()) return undefined_error(callee);
  const CallableRef* callable = callee.get<CallableRef>();
  if (callable == nullptr) {
    return invalid_argument("a value of type %s cannot be called",
                            std::string(type_name(callee)).c_str());
  }
  const Nesting nesting(depth_);
  QSF_RETURN_IF_ERROR(nesting.check());
  if ((*callable)->kind == CallableKind::kMacro) return call_macro(**callable, args);
  QSF_RETURN_IF_ERROR(charge_arguments(args));
  if ((*callable)->kind == CallableKind::kFunction) {
    return call_function(*this, (*callable)->name, args);
  }
  const Value& self = (*callable)->self;
  QSF_RETURN_IF_ERROR(heap_.charge(extent_of(self).cost));
  return call_method(*this, self, (*callable)->name, args);
}

// Statements.

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
  return internal_error("a statement of an unknown kind");
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

Status Interpreter::execute_set(const Stmt& stmt) {
  auto value = evaluate(*stmt.value);
  if (!value) return value.error();
  line_ = stmt.line;
  return assign(stmt.target, std::move(*value));
}

// {% filter %}, whose result is written, and {% set %} with a body, whose filters are optional.
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

// Binds `caller` where the body reads it, and refuses all other arguments beyond the parameters.
Status Interpreter::bind_special(const Callable& callable, const CallArgs& args,
                                 std::vector<std::pair<std::string, Value>> unused) {
  const Stmt& macro = *callable.macro;
  if (macro.takes_caller) {
    const auto given = std::find_if(unused.begin(), unused.end(),
                                    [](const auto& entry) { return entry.first == "caller"; });
    assign_name(macro.caller,
                given != unused.end() ? given->second : make_undefined("No caller defined"));
    if (given != unused.end()) unused.erase(given);
  }
  if (!unused.empty()) {
    return invalid_argument("macro '%s' has no argument '%s'", callable.name.c_str(),
                            unused.front().first.c_str());
  }
  if (args.positional.size() > macro.parameters.size()) {
    return invalid_argument("macro '%s': got %zu arguments, expected at most %zu",
                            callable.name.c_str(), args.positional.size(), macro.parameters.size());
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

// Loops.

Result<bool> Loop::look_ahead() {
  while (next_ < source_.size()) {
    QSF_RETURN_IF_ERROR(interpreter_.heap().charge(1));
    Value item = source_[next_++];
    if (stmt_.condition != nullptr) {
      const Interpreter::ScopeEntry entry(interpreter_, outer_);
      QSF_RETURN_IF_ERROR(interpreter_.assign(stmt_.target, item));
      QSF_ASSIGN_OR_RETURN(const Value passes, interpreter_.evaluate(*stmt_.condition));
      if (!is_true(passes)) continue;
    }
    ahead_.push_back(std::move(item));
    return true;
  }
  return false;
}

Result<bool> Loop::advance() {
  if (ahead_.empty()) {
    QSF_ASSIGN_OR_RETURN(const bool has_more, look_ahead());
    if (!has_more) return false;
  }
  previous_ = std::exchange(current_, std::move(ahead_.front()));
  ahead_.pop_front();
  ++index0_;
  return true;
}

void Loop::release() {
  source_ = {};
  ahead_ = {};
  next_ = 0;
  previous_ = current_ = {};
}

Result<std::int64_t> Loop::length() {
  while (true) {
    QSF_ASSIGN_OR_RETURN(const bool has_more, look_ahead());
    if (!has_more) break;
  }
  return index0_ + 1 + static_cast<std::int64_t>(ahead_.size());
}

Result<Value> Loop::attribute(std::string_view name) {
  if (name == "index") return make_int(index0_ + 1);
  if (name == "index0") return make_int(index0_);
  if (name == "first") return make_bool(index0_ == 0);
  if (name == "depth") return make_int(1);
  if (name == "depth0") return make_int(0);
  if (name == "previtem") {
    return index0_ == 0 ? make_undefined("there is no previous item") : previous_;
  }
  if (name == "last" || name == "nextitem") {
    bool has_more = !ahead_.empty();
    if (!has_more) {
      QSF_ASSIGN_OR_RETURN(has_more, look_ahead());
    }
    if (name == "last") return make_bool(!has_more);
    return has_more ? ahead_.front() : make_undefined("there is no next item");
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    QSF_ASSIGN_OR_RETURN(const std::int64_t n, length());
    return make_int(name == "length" ? n : name == "revindex" ? n - index0_ : n - index0_ - 1);
  }
  return make_undefined("'LoopContext' object has no attribute '" + shown_name(name) + "'");
}

Result<Text> run_program(const Program& program, const ChatTemplateInput& input,
                         const RunLimits& limits) {
  return Interpreter(program, limits, input.now_seconds).run(input);
}

}  // namespace qsf::jinja
