// SPDX-License-Identifier: MIT
//
// Values of the template language, with Python's meaning of them.
//
// Strings, lists, dicts and callables do not change once made, so shared pointers cannot form a
// circle. What changes (namespaces, loops, scopes) is owned by the interpreter and named here by
// plain pointers, which live as long as a rendering.

#ifndef QSF_CHAT_JINJA_VALUE_H_
#define QSF_CHAT_JINJA_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "chat/jinja_text.h"

namespace qsf::jinja {

struct Callable;
struct Dict;
struct List;
struct Namespace;
struct TextNode;
class Loop;

using TextRef = std::shared_ptr<const TextNode>;
using ListRef = std::shared_ptr<const List>;
using DictRef = std::shared_ptr<const Dict>;
using CallableRef = std::shared_ptr<const Callable>;
using LoopRef = std::shared_ptr<Loop>;

struct None {};

// `why` is the message of the error that using it raises, such as "'x' is undefined".
struct Undefined {
  std::shared_ptr<const std::string> why;
};

struct Value {
  std::variant<Undefined, None, bool, std::int64_t, double, TextRef, ListRef, DictRef, CallableRef,
               Namespace*, LoopRef>
      state;

  template <typename T>
  const T* get() const {
    return std::get_if<T>(&state);
  }
  bool is_undefined() const { return get<Undefined>() != nullptr; }
  bool is_none() const { return get<None>() != nullptr; }
};

inline Value make_none() {
  return {None{}};
}
inline Value make_bool(bool value) {
  return {value};
}
inline Value make_int(std::int64_t value) {
  return {value};
}
inline Value make_float(double value) {
  return {value};
}
Value make_undefined(std::string why);
// Returns the beginning of a name for `why`, which nothing bounds otherwise.
std::string shown_name(std::string_view name);

// Bytes of values alive, held down by their nodes.
struct Usage {
  std::size_t live_bytes = 0;
};

class Accounted {
 public:
  Accounted() = default;
  Accounted(Usage* usage, std::size_t n_bytes) : usage_(usage), n_bytes_(n_bytes) {
    if (usage_ != nullptr) usage_->live_bytes += n_bytes_;
  }
  Accounted(const Accounted&) = delete;
  Accounted& operator=(const Accounted&) = delete;
  ~Accounted() {
    if (usage_ != nullptr) usage_->live_bytes -= n_bytes_;
  }

 private:
  Usage* usage_ = nullptr;
  std::size_t n_bytes_ = 0;
};

struct TextNode {
  TextNode(Text content, Usage* usage, bool is_markup_text = false)
      : text(std::move(content)),
        is_markup(is_markup_text),
        account(usage, text.size() + text.runs().size() * sizeof(TrustRun) + sizeof(TextNode)) {}

  const Text text;
  const bool is_markup;  // came out of the filters `safe` or `escape`
  Accounted account;
};

enum class ListKind : std::uint8_t {
  kList,
  kTuple,
  kRange,     // as a list, but neither equal to one nor printed
  kView,      // keys(), values(), items(): no subscripts
  kIterator,  // what map, select and their like give: read once, without a length
};

// How large a value is, with all that it holds, each time that it holds it.
struct Extent {
  int depth = 0;           // of containers in containers
  std::uint64_t cost = 1;  // of visiting all of it: one a value, and one per 64 bytes of text

  void add(const Value& part);
};
Extent extent_of(const Value& value);

struct List {
  List(ListKind list_kind, std::vector<Value> values, Extent size, Usage* usage)
      : kind(list_kind),
        items(std::move(values)),
        extent(size),
        account(usage, items.size() * sizeof(Value) + sizeof(List)) {}

  const ListKind kind;
  const std::vector<Value> items;
  const Extent extent;
  mutable std::size_t next = 0;  // of an iterator: the first item not read yet
  Accounted account;
};

struct DictEntry {
  Value key;
  Value value;
};

// In the order of insertion.
struct Dict {
  Dict(std::vector<DictEntry> values, std::map<std::string, std::size_t, std::less<>> keys,
       Extent size, Usage* usage)
      : entries(std::move(values)),
        index(std::move(keys)),
        extent(size),
        account(usage, entries.size() * (sizeof(DictEntry) + 96) + sizeof(Dict)) {}

  // Returns the value of `key`, null when there is none.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;

  const std::vector<DictEntry> entries;
  const std::map<std::string, std::size_t, std::less<>> index;  // by dict_key
  const Extent extent;
  Accounted account;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;

  const Value* find(std::string_view name) const;
  void assign(std::string_view name, Value value);
};

// Returns a string that is the same for keys that Python takes as equal (1, 1.0 and True), nothing
// for what cannot be a key here.
std::optional<std::string> dict_key(const Value& key);

// Returns the text, null when `value` is no string.
const Text* as_text(const Value& value);
const std::string* as_bytes(const Value& value);
const List* as_list(const Value& value);
const Dict* as_dict(const Value& value);

// Returns a number that is integral in Python's eyes, which a bool is.
std::optional<std::int64_t> as_int(const Value& value);
std::optional<double> as_number(const Value& value);

bool is_true(const Value& value);

// Returns Python's name of the type, as its messages use it ("str", "dict", "NoneType").
std::string_view type_name(const Value& value);

// Python's ==, which never fails; values of types that do not compare are unequal.
bool equal(const Value& a, const Value& b);

// Python's ordering: below, at or above 0.
// Fails  kInvalidArgument on what Python does not order: mixed types, none, dicts
Result<int> compare(const Value& a, const Value& b);

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_VALUE_H_
