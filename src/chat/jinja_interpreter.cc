// SPDX-License-Identifier: MIT

#include "chat/jinja_interpreter.h"

#include <algorithm>
#include <array>
#include <string>

#include "chat/jinja_filters.h"
#include "chat/jinja_format.h"
#include "chat/jinja_loop.h"
#include "chat/jinja_methods.h"
#include "chat/jinja_nesting.h"
#include "chat/jinja_operators.h"
#include "chat/jinja_scope_entry.h"
#include "chat/jinja_tests.h"

namespace qsf::jinja {
namespace {

// Names that chats agree on. Templates build control tokens around them ('<|' + role + '|>'), and a
// caller passes them as structure; any other role is text from outside.
constexpr std::array<std::string_view, 12> kKnownRoles = {
    "system",      "user",  "assistant", "tool",    "developer", "function",
    "environment", "model", "ipython",   "context", "tool_call", "tool_response"};

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

Result<Value> Interpreter::make_messages(std::span<const ChatMessage> messages) {
  std::vector<Value> items;
  for (const ChatMessage& message : messages) {
    const bool is_known =
        std::find(kKnownRoles.begin(), kKnownRoles.end(), message.role) != kKnownRoles.end();
    std::vector<DictEntry> entries(2);
    QSF_ASSIGN_OR_RETURN(entries[0].key, heap_.make_text("role", true));
    QSF_ASSIGN_OR_RETURN(entries[0].value, heap_.make_text(message.role, is_known));
    QSF_ASSIGN_OR_RETURN(entries[1].key, heap_.make_text("content", true));
    QSF_ASSIGN_OR_RETURN(entries[1].value, heap_.make_text(message.content, false));
    QSF_ASSIGN_OR_RETURN(Value item, heap_.make_dict(entries));
    items.push_back(std::move(item));
  }
  return heap_.make_list(ListKind::kList, std::move(items));
}

// Binds the names that the program uses and transformers defines.
Status Interpreter::bind_input(const ChatTemplateInput& input) {
  for (std::size_t i = 0; i < program_.names.size(); ++i) {
    const std::string& name = program_.names[i];
    Result<Value> value = make_undefined({});
    if (name == "messages") {
      value = make_messages(input.messages);
    } else if (name == "add_generation_prompt") {
      value = make_bool(input.add_generation_prompt);
    } else if (name == "tools" || name == "documents") {
      value = make_none();
    } else if (name == "bos_token" && !input.bos_token.empty()) {
      value = heap_.make_text(input.bos_token, true);
    } else if (name == "eos_token" && !input.eos_token.empty()) {
      value = heap_.make_text(input.eos_token, true);
    } else if (is_function(name)) {
      value = heap_.make_callable({.kind = CallableKind::kFunction, .name = name});
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
      return invalid_argument("a tuple of %zu values to unpack, expected %zu", items->size(),
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
    return invalid_argument("an attribute can be set on a namespace alone; '%s' is none",
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
    if (name == "cycle" || name == "changed") {
      return heap_.make_callable(
          {.kind = CallableKind::kMethod, .name = std::string(name), .self = value});
    }
    return (*loop)->attribute(name);
  } else if (has_method(value, name)) {
    return heap_.make_callable(
        {.kind = CallableKind::kMethod, .name = std::string(name), .self = value});
  } else if (const Dict* dict = as_dict(value)) {
    if (const Value* found = dict->find(name)) return *found;
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

// Functions may visit all of their arguments.
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
    return unsupported("no filter is called '%.60s' here", std::string(name).c_str());
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
    return unsupported("no test is called '%.60s' here", std::string(name).c_str());
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
  if (const LoopRef* loop = self.get<LoopRef>()) {
    return (*callable)->name == "cycle" ? (*loop)->cycle(args) : (*loop)->changed(args);
  }
  QSF_RETURN_IF_ERROR(heap_.charge(extent_of(self).cost));
  return call_method(*this, self, (*callable)->name, args);
}

Result<Text> run_program(const Program& program, const ChatTemplateInput& input,
                         const RunLimits& limits) {
  return Interpreter(program, limits, input.now_seconds).run(input);
}

}  // namespace qsf::jinja
