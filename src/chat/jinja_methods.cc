// SPDX-License-Identifier: MIT

#include "chat/jinja_methods.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "chat/jinja_operators.h"

namespace qsf::jinja {
namespace {

// All public methods of Python's types, so that one which is not here is refused, not undefined.
constexpr std::string_view kStringMethods[] = {
    "capitalize",   "casefold",    "center",    "count",      "encode",       "endswith",
    "expandtabs",   "find",        "format",    "format_map", "index",        "isalnum",
    "isalpha",      "isascii",     "isdecimal", "isdigit",    "isidentifier", "islower",
    "isnumeric",    "isprintable", "isspace",   "istitle",    "isupper",      "join",
    "ljust",        "lower",       "lstrip",    "maketrans",  "partition",    "removeprefix",
    "removesuffix", "replace",     "rfind",     "rindex",     "rjust",        "rpartition",
    "rsplit",       "rstrip",      "split",     "splitlines", "startswith",   "strip",
    "swapcase",     "title",       "translate", "upper",      "zfill"};
constexpr std::string_view kDictMethods[] = {"copy", "fromkeys", "get", "items", "keys", "values"};
constexpr std::string_view kListMethods[] = {"copy", "count", "index"};

template <std::size_t n>
bool is_one_of(const std::string_view (&names)[n], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

Status not_supported(const Value& self, std::string_view name) {
  return unsupported("method '%s' of type %s is not supported", std::string(name).c_str(),
                     std::string(type_name(self)).c_str());
}

Result<Value> call_dict_method(Heap& heap, const Value& self, std::string_view name,
                               const CallArgs& args) {
  const Dict& dict = *as_dict(self);
  if (name == "get") {
    QSF_ASSIGN_OR_RETURN(const auto bound, bind_arguments(args, "get", {"key", "default"}));
    if (bound[0] == nullptr) return invalid_argument("get: expected a key");
    if (!dict_key(*bound[0])) {
      return invalid_argument("get: a value of type %s cannot be a key",
                              std::string(type_name(*bound[0])).c_str());
    }
    const Value* found = dict.find(*bound[0]);
    if (found != nullptr) return *found;
    return bound[1] != nullptr ? *bound[1] : make_none();
  }
  QSF_ASSIGN_OR_RETURN(const auto none, bind_arguments(args, name, {}));
  static_cast<void>(none);
  if (name == "copy") return self;
  if (name == "fromkeys") return not_supported(self, name);
  std::vector<Value> items;
  for (const DictEntry& entry : dict.entries) {
    if (name == "keys") {
      items.push_back(entry.key);
    } else if (name == "values") {
      items.push_back(entry.value);
    } else {
      QSF_ASSIGN_OR_RETURN(Value pair, heap.make_list(ListKind::kTuple, {entry.key, entry.value}));
      items.push_back(std::move(pair));
    }
  }
  return heap.make_list(ListKind::kView, std::move(items));
}

Result<Value> call_list_method(const Value& self, std::string_view name, const CallArgs& args) {
  const List& list = *as_list(self);
  if (name == "copy") return self;
  QSF_ASSIGN_OR_RETURN(const auto bound, bind_arguments(args, name, {"value"}));
  if (bound[0] == nullptr) {
    return invalid_argument("%s: expected a value", std::string(name).c_str());
  }
  const auto is_it = [&](const Value& item) { return equal(item, *bound[0]); };
  if (name == "count") {
    return make_int(std::count_if(list.items.begin(), list.items.end(), is_it));
  }
  const auto found = std::find_if(list.items.begin(), list.items.end(), is_it);
  if (found == list.items.end()) return invalid_argument("index: the value is not in the list");
  return make_int(found - list.items.begin());
}

}  // namespace

bool has_method(const Value& value, std::string_view name) {
  if (as_text(value) != nullptr) return is_one_of(kStringMethods, name);
  if (as_dict(value) != nullptr) return is_one_of(kDictMethods, name);
  const List* list = as_list(value);
  if (list == nullptr) return false;
  const bool is_sequence = list->kind != ListKind::kView && list->kind != ListKind::kIterator;
  return is_sequence && is_one_of(kListMethods, name) &&
         (name != "copy" || list->kind == ListKind::kList);
}

Result<Value> call_method(Interpreter& interpreter, const Value& self, std::string_view name,
                          const CallArgs& args) {
  if (const Text* text = as_text(self)) {
    const StringMethod method = find_string_method(name);
    if (method == nullptr) return not_supported(self, name);
    return method(interpreter, *text, args);
  }
  if (as_dict(self) != nullptr) return call_dict_method(interpreter.heap(), self, name, args);
  return call_list_method(self, name, args);
}

}  // namespace qsf::jinja
