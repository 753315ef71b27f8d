// SPDX-License-Identifier: MIT

#include "chat/jinja_value.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "chat/jinja_callable.h"

namespace qsf::jinja {

Value make_undefined(std::string why) {
  return {Undefined{std::make_shared<const std::string>(std::move(why))}};
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
  if (value.get<std::int64_t>() != nullptr) return "int";
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
    if (const Undefined* undefined = value->get<Undefined>()) {
      return invalid_argument("%s", undefined->why->c_str());
    }
  }
  return invalid_argument("values of the types %s and %s have no order",
                          std::string(type_name(a)).c_str(), std::string(type_name(b)).c_str());
}

}  // namespace qsf::jinja
