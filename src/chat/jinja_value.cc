// SPDX-License-Identifier: MIT

#include "chat/jinja_value.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

namespace qsf::jinja {

Value make_undefined(std::string why) {
  return {Undefined{std::make_shared<const std::string>(std::move(why))}};
}

Value make_long_int(std::string digits) {
  return {LongInt{std::make_shared<const std::string>(std::move(digits))}};
}

Status undefined_error(const Value& value) {
  return invalid_argument("%s", value.get<Undefined>()->why->c_str());
}

std::string shown_name(std::string_view name) {
  constexpr std::size_t kShownBytes = 100;
  return name.size() <= kShownBytes ? std::string(name)
                                    : std::string(name.substr(0, kShownBytes)) + "...";
}

std::optional<std::string> dict_key(const Value& key) {
  if (const std::string* text = as_bytes(key)) return "s" + *text;
  if (const auto integer = as_int(key)) return "i" + std::to_string(*integer);
  if (const double* number = key.get<double>()) {
    if (*number == std::floor(*number) && std::abs(*number) < 9e18) {
      return "i" + std::to_string(static_cast<std::int64_t>(*number));
    }
    std::string text(1 + sizeof(double), 'f');
    std::memcpy(text.data() + 1, number, sizeof(double));
    return text;
  }
  if (key.is_none()) return "n";
  return std::nullopt;
}

const Value* Dict::find(const Value& key) const {
  const auto text = dict_key(key);
  if (!text) return nullptr;
  const auto found = index.find(*text);
  return found == index.end() ? nullptr : &entries[found->second].value;
}

const Value* Dict::find(std::string_view key) const {
  const auto found = index.find("s" + std::string(key));
  return found == index.end() ? nullptr : &entries[found->second].value;
}

const Value* Namespace::find(std::string_view name) const {
  const auto found = std::find_if(attributes.begin(), attributes.end(),
                                  [name](const auto& entry) { return entry.first == name; });
  return found == attributes.end() ? nullptr : &found->second;
}

void Namespace::assign(std::string_view name, Value value) {
  const auto found = std::find_if(attributes.begin(), attributes.end(),
                                  [name](const auto& entry) { return entry.first == name; });
  if (found != attributes.end()) {
    found->second = std::move(value);
  } else {
    attributes.emplace_back(name, std::move(value));
  }
}

void Extent::add(const Value& part) {
  const Extent other = extent_of(part);
  depth = std::max(depth, other.depth + 1);
  cost = cost + other.cost < cost ? UINT64_MAX : cost + other.cost;
}

Extent extent_of(const Value& value) {
  if (const Text* text = as_text(value)) return {.cost = 1 + text->size() / 64};
  if (const List* list = as_list(value)) return list->extent;
  if (const Dict* dict = as_dict(value)) return dict->extent;
  if (const CallableRef* callable = value.get<CallableRef>()) return (*callable)->extent;
  return {};
}

const Text* as_text(const Value& value) {
  const TextRef* text = value.get<TextRef>();
  return text == nullptr ? nullptr : &(*text)->text;
}

const std::string* as_bytes(const Value& value) {
  const Text* text = as_text(value);
  return text == nullptr ? nullptr : &text->bytes();
}

const List* as_list(const Value& value) {
  const ListRef* list = value.get<ListRef>();
  return list == nullptr ? nullptr : list->get();
}

const Dict* as_dict(const Value& value) {
  const DictRef* dict = value.get<DictRef>();
  return dict == nullptr ? nullptr : dict->get();
}

std::optional<std::int64_t> as_int(const Value& value) {
  if (const auto* integer = value.get<std::int64_t>()) return *integer;
  if (const bool* flag = value.get<bool>()) return *flag ? 1 : 0;
  return std::nullopt;
}

std::optional<double> as_number(const Value& value) {
  if (const double* number = value.get<double>()) return *number;
  if (const auto integer = as_int(value)) return static_cast<double>(*integer);
  return std::nullopt;
}

bool is_true(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (const double* number = value.get<double>()) return *number != 0;
  if (const auto integer = as_int(value)) return *integer != 0;
  if (const Text* text = as_text(value)) return !text->empty();
  if (const List* list = as_list(value)) {
    return list->kind == ListKind::kIterator || !list->items.empty();
  }
  if (const Dict* dict = as_dict(value)) return !dict->entries.empty();
  return true;
}

std::string_view type_name(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "NoneType";
  if (value.get<bool>() != nullptr) return "bool";
  if (value.get<std::int64_t>() != nullptr || value.get<LongInt>() != nullptr) return "int";
  if (value.get<double>() != nullptr) return "float";
  if (as_text(value) != nullptr) return "str";
  if (as_dict(value) != nullptr) return "dict";
  if (const List* list = as_list(value)) {
    switch (list->kind) {
      case ListKind::kList: return "list";
      case ListKind::kTuple: return "tuple";
      case ListKind::kRange: return "range";
      case ListKind::kView: return "dict view";
      case ListKind::kIterator: return "generator";
    }
  }
  if (value.get<Namespace*>() != nullptr) return "Namespace";
  if (value.get<LoopRef>() != nullptr) return "LoopContext";
  return "function";
}

bool equal(const Value& a, const Value& b) {
  const auto x = as_int(a);
  const auto y = as_int(b);
  if (x && y) return *x == *y;
  if (const auto f = as_number(a)) {
    const auto g = as_number(b);
    return g && *f == *g;
  }
  if (const std::string* s = as_bytes(a)) {
    const std::string* t = as_bytes(b);
    return t != nullptr && *s == *t;
  }
  if (const LongInt* s = a.get<LongInt>()) {
    const LongInt* t = b.get<LongInt>();
    return t != nullptr && *s->digits == *t->digits;
  }
  if (a.is_none()) return b.is_none();
  if (a.is_undefined()) return b.is_undefined();
  if (const List* s = as_list(a)) {
    const List* t = as_list(b);
    if (t == nullptr || s->kind != t->kind) return false;
    if (s == t) return true;
    if (s->kind == ListKind::kView || s->kind == ListKind::kIterator) return false;
    return std::equal(s->items.begin(), s->items.end(), t->items.begin(), t->items.end(), equal);
  }
  if (const Dict* s = as_dict(a)) {
    const Dict* t = as_dict(b);
    if (t == nullptr || s->entries.size() != t->entries.size()) return false;
    return std::all_of(s->entries.begin(), s->entries.end(), [t](const DictEntry& entry) {
      const Value* other = t->find(entry.key);
      return other != nullptr && equal(entry.value, *other);
    });
  }
  if (Namespace* const* space = a.get<Namespace*>()) {
    Namespace* const* other = b.get<Namespace*>();
    return other != nullptr && *space == *other;
  }
  if (const LoopRef* loop = a.get<LoopRef>()) {
    const LoopRef* other = b.get<LoopRef>();
    return other != nullptr && *loop == *other;
  }
  const CallableRef* callable = a.get<CallableRef>();
  const CallableRef* other = b.get<CallableRef>();
  return callable != nullptr && other != nullptr && *callable == *other;
}

Result<int> compare(const Value& a, const Value& b) {
  const auto sign = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  const auto x = as_int(a);
  const auto y = as_int(b);
  if (x && y) return sign(*x, *y);
  const auto f = as_number(a);
  const auto g = as_number(b);
  if (f && g) return sign(*f, *g);
  const std::string* s = as_bytes(a);
  const std::string* t = as_bytes(b);
  if (s != nullptr && t != nullptr) return sign(s->compare(*t), 0);
  const List* u = as_list(a);
  const List* v = as_list(b);
  if (u != nullptr && v != nullptr && u->kind == v->kind &&
      (u->kind == ListKind::kList || u->kind == ListKind::kTuple)) {
    for (std::size_t i = 0; i < u->items.size() && i < v->items.size(); ++i) {
      if (!equal(u->items[i], v->items[i])) return compare(u->items[i], v->items[i]);
    }
    return sign(u->items.size(), v->items.size());
  }
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) return undefined_error(*value);
  }
  return invalid_argument("values of the types %s and %s have no order",
                          std::string(type_name(a)).c_str(), std::string(type_name(b)).c_str());
}

const Value* CallArgs::find_keyword(std::string_view name) const {
  const auto found = std::find_if(keywords.begin(), keywords.end(),
                                  [name](const auto& entry) { return entry.first == name; });
  return found == keywords.end() ? nullptr : &found->second;
}

Result<std::vector<const Value*>> bind_arguments(const CallArgs& args, std::string_view callee,
                                                 std::initializer_list<std::string_view> names) {
  const std::string where(callee);
  if (args.positional.size() > names.size()) {
    return invalid_argument("%s: got %zu arguments, expected at most %zu", where.c_str(),
                            args.positional.size(), names.size());
  }
  std::vector<const Value*> bound(names.size(), nullptr);
  for (std::size_t i = 0; i < args.positional.size(); ++i) bound[i] = &args.positional[i];
  for (const auto& [name, value] : args.keywords) {
    const auto* found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      return invalid_argument("%s: the argument '%s' is not supported", where.c_str(),
                              name.c_str());
    }
    const Value*& slot = bound[static_cast<std::size_t>(found - names.begin())];
    if (slot != nullptr) {
      return invalid_argument("%s: argument '%s' is given twice", where.c_str(), name.c_str());
    }
    slot = &value;
  }
  return bound;
}

Status Heap::charge(std::uint64_t steps) {
  steps_ += steps;
  if (steps_ <= limits_.steps && steps <= limits_.steps) return ok_status();
  return unsupported("the template did not end within %zu steps and was stopped", limits_.steps);
}

Status Heap::check_bytes(std::uint64_t n_bytes) const {
  if (n_bytes <= limits_.live_bytes && usage_.live_bytes + n_bytes <= limits_.live_bytes) {
    return ok_status();
  }
  return unsupported("the values of the template take more than %zu bytes", limits_.live_bytes);
}

Status Heap::check_extent(const Extent& extent) const {
  if (extent.depth > kMaxNesting) {
    return unsupported("lists or dicts nested deeper than %d levels", kMaxNesting);
  }
  if (extent.cost > limits_.steps) {
    return unsupported("a list or dict holds more than %zu values", limits_.steps);
  }
  return ok_status();
}

Result<Value> Heap::make_text(Text text) {
  QSF_RETURN_IF_ERROR(charge(1 + text.size() / 64 + text.runs().size() / 4));
  QSF_RETURN_IF_ERROR(check_bytes(text.size() + text.runs().size() * sizeof(TrustRun)));
  return Value{TextRef(std::make_shared<const TextNode>(std::move(text), &usage_))};
}

Result<Value> Heap::make_markup(Text text) {
  QSF_RETURN_IF_ERROR(charge(1 + text.size() / 64 + text.runs().size() / 4));
  QSF_RETURN_IF_ERROR(check_bytes(text.size() + text.runs().size() * sizeof(TrustRun)));
  return Value{TextRef(std::make_shared<const TextNode>(std::move(text), &usage_, true))};
}

Result<Value> Heap::make_list(ListKind kind, std::vector<Value> items) {
  QSF_RETURN_IF_ERROR(charge(1 + items.size() / 4));
  QSF_RETURN_IF_ERROR(check_bytes(items.size() * sizeof(Value)));
  Extent extent{.depth = 1};
  for (const Value& item : items) extent.add(item);
  QSF_RETURN_IF_ERROR(check_extent(extent));
  return Value{ListRef(std::make_shared<const List>(kind, std::move(items), extent, &usage_))};
}

Result<Value> Heap::make_dict(const std::vector<DictEntry>& entries) {
  QSF_RETURN_IF_ERROR(charge(1 + entries.size()));
  QSF_RETURN_IF_ERROR(check_bytes(entries.size() * sizeof(DictEntry)));
  std::vector<DictEntry> kept;
  std::map<std::string, std::size_t, std::less<>> index;
  for (const DictEntry& entry : entries) {
    auto key = dict_key(entry.key);
    if (!key) {
      return invalid_argument("a value of type %s cannot be the key of a dict",
                              std::string(type_name(entry.key)).c_str());
    }
    QSF_RETURN_IF_ERROR(charge(extent_of(entry.key).cost));
    const auto [found, is_new] = index.try_emplace(std::move(*key), kept.size());
    if (is_new) {
      kept.push_back(entry);
    } else {
      kept[found->second].value = entry.value;
    }
  }
  Extent extent{.depth = 1};
  for (const DictEntry& entry : kept) {
    extent.add(entry.key);
    extent.add(entry.value);
  }
  QSF_RETURN_IF_ERROR(check_extent(extent));
  return Value{
      DictRef(std::make_shared<const Dict>(std::move(kept), std::move(index), extent, &usage_))};
}

Result<Value> Heap::make_callable(Callable callable) {
  QSF_RETURN_IF_ERROR(charge(1));
  callable.extent.add(callable.self);
  QSF_RETURN_IF_ERROR(check_extent(callable.extent));
  return Value{CallableRef(std::make_shared<const Callable>(std::move(callable)))};
}

Result<Value> Heap::make_namespace() {
  // Kept to the end of the rendering, so it costs more.
  QSF_RETURN_IF_ERROR(charge(kKeptCost));
  namespaces_.push_back(std::make_unique<Namespace>());
  return Value{namespaces_.back().get()};
}

}  // namespace qsf::jinja
