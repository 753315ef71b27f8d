// SPDX-License-Identifier: MIT
//
// Values of the template language with Python's meaning, the heap that makes them, and the limits
// of a rendering.
//
// Strings, lists, dicts and callables are immutable, so shared pointers cannot form a cycle. The
// interpreter owns everything mutable (namespaces, loops, scopes); values refer to it by plain
// pointers, which are valid until the end of the rendering.

#ifndef QSF_CHAT_JINJA_VALUE_H_
#define QSF_CHAT_JINJA_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
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

// Limits. A model's file may come from anywhere, and its template is a program: these bounds keep
// it from hanging the process or exhausting its memory. Real templates stay a hundredfold below
// them.

// The longest templates of public models have 30 KB.
inline constexpr std::size_t kMaxTemplateBytes = 1U << 20U;

// Nesting of brackets, tags and operators in the source: the parser recurses.
inline constexpr int kMaxParseDepth = 100;

// Height of an expression's tree: `a + b + c ...` grows to the left without recursion in the
// parser.
inline constexpr int kMaxExprHeight = 250;

// Nesting at run time, over expressions, blocks and calls of macros; each takes below 2 KB of
// stack.
inline constexpr int kMaxRunDepth = 500;

// Nesting of lists and dicts: recursive functions over values rely on this bound.
inline constexpr int kMaxNesting = 60;

// The most items that Python's sandbox allows in range().
inline constexpr std::int64_t kMaxRange = 100000;

// Steps charged for an object that lives to the end of the rendering (namespace, scope of a macro).
inline constexpr std::uint64_t kKeptCost = 100;

struct RunLimits {
  // A step is a node evaluated, or 64 bytes of text or 4 items written or searched.
  std::size_t steps = 20'000'000;
  std::size_t live_bytes = std::size_t{256} << 20U;
  std::size_t output_bytes = std::size_t{64} << 20U;
};

struct Callable;
struct Dict;
struct List;
struct Namespace;
struct TextNode;
class Loop;
struct Scope;
struct Stmt;

using TextRef = std::shared_ptr<const TextNode>;
using ListRef = std::shared_ptr<const List>;
using DictRef = std::shared_ptr<const Dict>;
using CallableRef = std::shared_ptr<const Callable>;
using LoopRef = std::shared_ptr<Loop>;

struct None {};

// An integer beyond 64 bits, which can be printed and compared for equality alone.
struct LongInt {
  std::shared_ptr<const std::string> digits;
};

// `why` is the message of the error that using it raises, such as "'x' is undefined".
struct Undefined {
  std::shared_ptr<const std::string> why;
};

struct Value {
  std::variant<Undefined, None, bool, std::int64_t, double, LongInt, TextRef, ListRef, DictRef,
               CallableRef, Namespace*, LoopRef>
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
Value make_long_int(std::string digits);
Value make_undefined(std::string why);
// The failure of using an undefined value.
Status undefined_error(const Value& value);
// Returns the name, cut after 100 bytes, for use in messages.
std::string shown_name(std::string_view name);

// Bytes of the values that are alive; each node adds its own and subtracts them at its end.
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
  const bool is_markup;  // a result of the filter `safe`
  Accounted account;
};

enum class ListKind : std::uint8_t {
  kList,
  kTuple,
  kRange,     // like a list, but not equal to one and without a text form
  kView,      // keys(), values(), items(): no subscripts
  kIterator,  // result of map, select and similar filters: read once, no length
};

// Size of a value with everything in it; a value that occurs twice counts twice.
struct Extent {
  int depth = 0;           // of containers in containers
  std::uint64_t cost = 1;  // steps to visit all of it: one a value and one per 64 bytes of text

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

// Returns a string that is equal for keys that are equal in Python (1, 1.0 and True); nothing for a
// value that cannot be a key.
std::optional<std::string> dict_key(const Value& key);

// Returns the text, null when `value` is not a string.
const Text* as_text(const Value& value);
const std::string* as_bytes(const Value& value);
const List* as_list(const Value& value);
const Dict* as_dict(const Value& value);

// Returns the integer of an int or bool, and the number of an int, bool or float.
std::optional<std::int64_t> as_int(const Value& value);
std::optional<double> as_number(const Value& value);

bool is_true(const Value& value);

// Returns Python's name of the type, as its messages use it ("str", "dict", "NoneType").
std::string_view type_name(const Value& value);

// Python's ==. Never fails: values of different types are unequal.
bool equal(const Value& a, const Value& b);

// Python's ordering: negative, 0 or positive.
// Fails  kInvalidArgument: mixed types, none or dicts, which Python does not order
Result<int> compare(const Value& a, const Value& b);

enum class CallableKind : std::uint8_t {
  kFunction,  // a global function called `name`
  kMethod,    // method `name` of `self`
  kMacro,     // `macro`, which sees the names of `scope`
};

struct Callable {
  CallableKind kind;
  std::string name;
  Value self = {};
  const Stmt* macro = nullptr;
  Scope* scope = nullptr;
  Extent extent = {};
};

struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;

  const Value* find_keyword(std::string_view name) const;
};

// Returns the arguments in the order of `names`, null where an argument was not given.
// Fails  kInvalidArgument: too many arguments, an unknown name, an argument given twice
Result<std::vector<const Value*>> bind_arguments(const CallArgs& args, std::string_view callee,
                                                 std::initializer_list<std::string_view> names);

// Makes values and counts their cost, so that a template is stopped before it exhausts the process.
// Must outlive every value that it made.
class Heap {
 public:
  explicit Heap(const RunLimits& limits) : limits_(limits) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  const RunLimits& limits() const { return limits_; }

  // Counts steps.
  // Fails  kUnsupported past limits().steps
  Status charge(std::uint64_t steps);

  // Checks before an allocation of n_bytes.
  // Fails  kUnsupported when the values would take too many bytes
  Status check_bytes(std::uint64_t n_bytes) const;

  // Each of these makes a value and charges for it.
  Result<Value> make_text(Text text);
  Result<Value> make_text(std::string_view bytes, bool trusted) {
    return make_text(Text(bytes, trusted));
  }
  // Python's Markup, the result of the filter `safe`: `+` escapes other text.
  Result<Value> make_markup(Text text);
  Result<Value> make_list(ListKind kind, std::vector<Value> items);
  // A repeated key replaces the value and keeps its place.
  // Fails  kInvalidArgument: a list or dict as a key
  Result<Value> make_dict(const std::vector<DictEntry>& entries);
  Result<Value> make_callable(Callable callable);
  Result<Value> make_namespace();

 private:
  Status check_extent(const Extent& extent) const;

  RunLimits limits_;
  std::uint64_t steps_ = 0;
  Usage usage_;
  std::vector<std::unique_ptr<Namespace>> namespaces_;
};

}  // namespace qsf::jinja

#endif  // QSF_CHAT_JINJA_VALUE_H_
