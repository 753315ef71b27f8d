// SPDX-License-Identifier: MIT
//
// Filters of sequences and dicts.

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "chat/jinja_filters.h"
#include "chat/jinja_format.h"
#include "chat/jinja_interpreter.h"
#include "chat/jinja_operators.h"
#include "chat/jinja_strings.h"

namespace qsf::jinja {
namespace {

using Args = const CallArgs&;
using Bound = std::vector<const Value*>;
using Values = std::vector<Value>;

bool flag_of(const Value* value) {
  return value != nullptr && is_true(*value);
}

// Gets `attribute` of values: a name, dots between names, or an index; none gets the value itself.
class AttributeGetter {
 public:
  static Result<AttributeGetter> make(Heap& heap, const Value* attribute) {
    AttributeGetter getter;
    if (attribute == nullptr || attribute->is_none()) return getter;
    const Text* text = as_text(*attribute);
    if (text == nullptr) {
      getter.parts_.push_back(*attribute);
      return getter;
    }
    const std::string dot = ".";
    QSF_ASSIGN_OR_RETURN(std::vector<Text> parts, split(heap, *text, &dot, -1, false));
    for (Text& part : parts) {
      const std::string& name = part.bytes();
      const bool is_index = !name.empty() && name.size() < 10 &&
                            name.find_first_not_of("0123456789") == std::string::npos;
      if (is_index) {
        getter.parts_.push_back(make_int(std::stoll(name)));
      } else {
        QSF_ASSIGN_OR_RETURN(Value value, heap.make_text(std::move(part)));
        getter.parts_.push_back(std::move(value));
      }
    }
    return getter;
  }

  // With `fallback` for what is not there.
  Result<Value> get(Interpreter& interpreter, Value value, const Value* fallback = nullptr) const {
    for (const Value& part : parts_) {
      QSF_ASSIGN_OR_RETURN(value, interpreter.item(value, part));
      if (fallback != nullptr && value.is_undefined()) value = *fallback;
    }
    return value;
  }

 private:
  Values parts_;
};

// What sort and its like compare: the attribute, in lower case unless case matters.
Result<Value> sort_key(Interpreter& interpreter, const AttributeGetter& getter, const Value& item,
                       bool case_sensitive) {
  QSF_ASSIGN_OR_RETURN(Value key, getter.get(interpreter, item));
  const Text* text = as_text(key);
  if (case_sensitive || text == nullptr) return key;
  return interpreter.heap().make_text(to_lower(*text));
}

// Sorts items by keys, stably, as Python's sorted().
Status sort_by_keys(Heap& heap, Values& items, const Values& keys, bool reverse) {
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  Status failure;
  const auto is_less = [&](std::size_t a, std::size_t b) {
    if (!failure.ok()) return false;
    Status charged = heap.charge(std::min(extent_of(keys[a]).cost, extent_of(keys[b]).cost));
    if (!charged.ok()) {
      failure = std::move(charged);
      return false;
    }
    auto result = compare(keys[a], keys[b]);
    if (result) return *result < 0;
    failure = result.error();
    return false;
  };
  // In reverse, equal items still keep their order.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return reverse ? is_less(b, a) : is_less(a, b);
  });
  Values sorted;
  for (const std::size_t i : order) sorted.push_back(std::move(items[i]));
  items = std::move(sorted);
  return failure;
}

Result<Value> filter_length(Interpreter&, const Value& input, Args args) {
  const auto bound = bind_arguments(args, "length", {});
  if (!bound) return bound.error();
  if (input.is_undefined()) return make_int(0);
  if (const std::string* text = as_bytes(input)) {
    return make_int(static_cast<std::int64_t>(count_chars(*text)));
  }
  if (const Dict* dict = as_dict(input)) {
    return make_int(static_cast<std::int64_t>(dict->entries.size()));
  }
  const List* list = as_list(input);
  if (list == nullptr || list->kind == ListKind::kIterator) {
    return invalid_argument("length: a value of type %s has none",
                            std::string(type_name(input)).c_str());
  }
  return make_int(static_cast<std::int64_t>(list->items.size()));
}

Result<Value> filter_default(Interpreter&, const Value& input, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound,
                       bind_arguments(args, "default", {"default_value", "boolean"}));
  if (!input.is_undefined() && !(flag_of(bound[1]) && !is_true(input))) return input;
  if (bound[0] != nullptr) return *bound[0];
  return Value{std::make_shared<const TextNode>(Text(), nullptr)};
}

Result<Value> filter_first(Interpreter& interpreter, const Value& input, Args args) {
  const auto bound = bind_arguments(args, "first", {});
  if (!bound) return bound.error();
  const List* list = as_list(input);
  if (list != nullptr) {
    if (list->next == list->items.size()) {
      return make_undefined("No first item, sequence was empty.");
    }
    const Value& first = list->items[list->next];
    if (list->kind == ListKind::kIterator) ++list->next;
    return first;
  }
  QSF_ASSIGN_OR_RETURN(const Values items, interpreter.iterate(input));
  return items.empty() ? make_undefined("No first item, sequence was empty.") : items.front();
}

Result<Value> filter_last(Interpreter& interpreter, const Value& input, Args args) {
  const auto bound = bind_arguments(args, "last", {});
  if (!bound) return bound.error();
  const List* list = as_list(input);
  if (list != nullptr && list->kind == ListKind::kIterator) {
    return invalid_argument("last: a generator has no last item; make it a list first");
  }
  QSF_ASSIGN_OR_RETURN(const Values items, interpreter.iterate(input));
  return items.empty() ? make_undefined("No last item, sequence was empty.") : items.back();
}

Result<Value> filter_join(Interpreter& interpreter, const Value& input, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, "join", {"d", "attribute"}));
  Heap& heap = interpreter.heap();
  Text separator;
  if (bound[0] != nullptr) {
    QSF_ASSIGN_OR_RETURN(separator, to_str(heap, *bound[0]));
  }
  QSF_ASSIGN_OR_RETURN(const AttributeGetter getter, AttributeGetter::make(heap, bound[1]));
  QSF_ASSIGN_OR_RETURN(const Values items, interpreter.iterate(input));
  Text joined;
  bool is_first = true;
  for (const Value& item : items) {
    QSF_ASSIGN_OR_RETURN(const Value value, getter.get(interpreter, item));
    QSF_ASSIGN_OR_RETURN(const Text text, to_str(heap, value));
    if (!is_first) joined.append(separator);
    is_first = false;
    joined.append(text);
    QSF_RETURN_IF_ERROR(heap.charge(1 + (separator.size() + text.size()) / 64));
    QSF_RETURN_IF_ERROR(heap.check_bytes(joined.size()));
  }
  return heap.make_text(std::move(joined));
}

Result<Value> filter_list(Interpreter& interpreter, const Value& input, Args args) {
  const auto bound = bind_arguments(args, "list", {});
  if (!bound) return bound.error();
  QSF_ASSIGN_OR_RETURN(Values items, interpreter.iterate(input));
  return interpreter.heap().make_list(ListKind::kList, std::move(items));
}

Result<Value> filter_items(Interpreter& interpreter, const Value& input, Args args) {
  const auto bound = bind_arguments(args, "items", {});
  if (!bound) return bound.error();
  Values items;
  const Dict* dict = as_dict(input);
  if (dict == nullptr && !input.is_undefined()) {
    return invalid_argument("items: expected a dict, got %s",
                            std::string(type_name(input)).c_str());
  }
  for (std::size_t i = 0; dict != nullptr && i < dict->entries.size(); ++i) {
    const DictEntry& entry = dict->entries[i];
    QSF_ASSIGN_OR_RETURN(Value pair,
                         interpreter.heap().make_list(ListKind::kTuple, {entry.key, entry.value}));
    items.push_back(std::move(pair));
  }
  return interpreter.heap().make_list(ListKind::kIterator, std::move(items));
}

Result<Value> filter_map(Interpreter& interpreter, const Value& input, Args args) {
  QSF_ASSIGN_OR_RETURN(const Values items, interpreter.iterate(input));
  Values mapped;
  if (args.positional.empty() && args.find_keyword("attribute") != nullptr) {
    QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, "map", {"attribute", "default"}));
    QSF_ASSIGN_OR_RETURN(const AttributeGetter getter,
                         AttributeGetter::make(interpreter.heap(), bound[0]));
    for (const Value& item : items) {
      QSF_ASSIGN_OR_RETURN(Value value, getter.get(interpreter, item, bound[1]));
      mapped.push_back(std::move(value));
    }
    return interpreter.heap().make_list(ListKind::kIterator, std::move(mapped));
  }
  const std::string* name = args.positional.empty() ? nullptr : as_bytes(args.positional[0]);
  if (name == nullptr)
    return invalid_argument("map: expected an attribute or the name of a filter");
  CallArgs rest = args;
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : items) {
    QSF_ASSIGN_OR_RETURN(Value value, interpreter.apply_filter(*name, item, rest));
    mapped.push_back(std::move(value));
  }
  return interpreter.heap().make_list(ListKind::kIterator, std::move(mapped));
}

// select, reject and their variants of an attribute.
template <bool kWanted, bool kByAttribute>
Result<Value> filter_select(Interpreter& interpreter, const Value& input, Args args) {
  QSF_ASSIGN_OR_RETURN(const Values items, interpreter.iterate(input));
  CallArgs rest = args;
  AttributeGetter getter;
  if (kByAttribute) {
    if (rest.positional.empty()) return invalid_argument("selectattr: expected an attribute");
    QSF_ASSIGN_OR_RETURN(getter, AttributeGetter::make(interpreter.heap(), &rest.positional[0]));
    rest.positional.erase(rest.positional.begin());
  }
  std::string test;
  if (!rest.positional.empty()) {
    const std::string* name = as_bytes(rest.positional[0]);
    if (name == nullptr) return invalid_argument("select: expected the name of a test");
    test = *name;
    rest.positional.erase(rest.positional.begin());
  }
  Values selected;
  for (const Value& item : items) {
    QSF_ASSIGN_OR_RETURN(const Value value, getter.get(interpreter, item));
    bool passes = is_true(value);
    if (!test.empty()) {
      QSF_ASSIGN_OR_RETURN(passes, interpreter.apply_test(test, value, rest));
    }
    if (passes == kWanted) selected.push_back(item);
  }
  return interpreter.heap().make_list(ListKind::kIterator, std::move(selected));
}

Result<Value> filter_sort(Interpreter& interpreter, const Value& input, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound,
                       bind_arguments(args, "sort", {"reverse", "case_sensitive", "attribute"}));
  Heap& heap = interpreter.heap();
  std::vector<AttributeGetter> getters;
  const Text* text = bound[2] == nullptr ? nullptr : as_text(*bound[2]);
  if (text == nullptr) {
    QSF_ASSIGN_OR_RETURN(AttributeGetter getter, AttributeGetter::make(heap, bound[2]));
    getters.push_back(std::move(getter));
  } else {
    const std::string comma = ",";
    QSF_ASSIGN_OR_RETURN(std::vector<Text> parts, split(heap, *text, &comma, -1, false));
    for (Text& part : parts) {
      QSF_ASSIGN_OR_RETURN(const Value name, heap.make_text(std::move(part)));
      QSF_ASSIGN_OR_RETURN(AttributeGetter getter, AttributeGetter::make(heap, &name));
      getters.push_back(std::move(getter));
    }
  }
  QSF_ASSIGN_OR_RETURN(Values items, interpreter.iterate(input));
  Values keys;
  for (const Value& item : items) {
    Values parts;
    for (const AttributeGetter& getter : getters) {
      QSF_ASSIGN_OR_RETURN(Value part, sort_key(interpreter, getter, item, flag_of(bound[1])));
      parts.push_back(std::move(part));
    }
    QSF_ASSIGN_OR_RETURN(Value key, heap.make_list(ListKind::kList, std::move(parts)));
    keys.push_back(std::move(key));
  }
  QSF_RETURN_IF_ERROR(sort_by_keys(heap, items, keys, flag_of(bound[0])));
  return heap.make_list(ListKind::kList, std::move(items));
}

Result<Value> filter_dictsort(Interpreter& interpreter, const Value& input, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound,
                       bind_arguments(args, "dictsort", {"case_sensitive", "by", "reverse"}));
  const Dict* dict = as_dict(input);
  if (dict == nullptr) return invalid_argument("dictsort: expected a dict");
  const std::string* by = bound[1] == nullptr ? nullptr : as_bytes(*bound[1]);
  if (bound[1] != nullptr && (by == nullptr || (*by != "key" && *by != "value"))) {
    return invalid_argument("dictsort: 'by' is \"key\" or \"value\"");
  }
  const bool by_value = by != nullptr && *by == "value";
  Heap& heap = interpreter.heap();
  Values items;
  Values keys;
  for (const DictEntry& entry : dict->entries) {
    QSF_ASSIGN_OR_RETURN(Value pair, heap.make_list(ListKind::kTuple, {entry.key, entry.value}));
    QSF_ASSIGN_OR_RETURN(
        Value key, sort_key(interpreter, AttributeGetter(), by_value ? entry.value : entry.key,
                            flag_of(bound[0])));
    items.push_back(std::move(pair));
    keys.push_back(std::move(key));
  }
  QSF_RETURN_IF_ERROR(sort_by_keys(heap, items, keys, flag_of(bound[2])));
  return heap.make_list(ListKind::kList, std::move(items));
}

Result<Value> filter_unique(Interpreter& interpreter, const Value& input, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound,
                       bind_arguments(args, "unique", {"case_sensitive", "attribute"}));
  QSF_ASSIGN_OR_RETURN(const AttributeGetter getter,
                       AttributeGetter::make(interpreter.heap(), bound[1]));
  QSF_ASSIGN_OR_RETURN(const Values items, interpreter.iterate(input));
  std::set<std::string> seen;
  Values kept;
  for (const Value& item : items) {
    QSF_ASSIGN_OR_RETURN(const Value key, sort_key(interpreter, getter, item, flag_of(bound[0])));
    auto text = dict_key(key);
    if (!text) {
      return invalid_argument("unique: a value of type %s cannot be told apart by its hash",
                              std::string(type_name(key)).c_str());
    }
    if (seen.insert(std::move(*text)).second) kept.push_back(item);
  }
  return interpreter.heap().make_list(ListKind::kIterator, std::move(kept));
}

Result<Value> filter_reverse(Interpreter& interpreter, const Value& input, Args args) {
  const auto bound = bind_arguments(args, "reverse", {});
  if (!bound) return bound.error();
  QSF_ASSIGN_OR_RETURN(Values items, interpreter.iterate(input));
  std::reverse(items.begin(), items.end());
  if (as_text(input) == nullptr) {
    // What Python cannot walk backwards it makes a list of; the rest gives an iterator.
    const List* list = as_list(input);
    const bool is_iterator = list != nullptr && list->kind == ListKind::kIterator;
    return interpreter.heap().make_list(is_iterator ? ListKind::kList : ListKind::kIterator,
                                        std::move(items));
  }
  Text reversed;
  for (const Value& item : items) reversed.append(*as_text(item));
  return interpreter.heap().make_text(std::move(reversed));
}

template <bool kLargest>
Result<Value> filter_extreme(Interpreter& interpreter, const Value& input, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound,
                       bind_arguments(args, "min or max", {"case_sensitive", "attribute"}));
  QSF_ASSIGN_OR_RETURN(const AttributeGetter getter,
                       AttributeGetter::make(interpreter.heap(), bound[1]));
  QSF_ASSIGN_OR_RETURN(const Values items, interpreter.iterate(input));
  if (items.empty()) return make_undefined("No aggregated item, sequence was empty.");
  std::size_t best = 0;
  Value best_key;
  for (std::size_t i = 0; i < items.size(); ++i) {
    QSF_ASSIGN_OR_RETURN(Value key, sort_key(interpreter, getter, items[i], flag_of(bound[0])));
    if (i > 0) {
      QSF_ASSIGN_OR_RETURN(const int order, compare(key, best_key));
      if (kLargest ? order <= 0 : order >= 0) continue;
    }
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

Result<Value> filter_sum(Interpreter& interpreter, const Value& input, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, "sum", {"attribute", "start"}));
  QSF_ASSIGN_OR_RETURN(const AttributeGetter getter,
                       AttributeGetter::make(interpreter.heap(), bound[0]));
  QSF_ASSIGN_OR_RETURN(const Values items, interpreter.iterate(input));
  Value sum = bound[1] != nullptr ? *bound[1] : make_int(0);
  if (as_text(sum) != nullptr) return invalid_argument("sum: strings are not summed; join them");
  for (const Value& item : items) {
    QSF_ASSIGN_OR_RETURN(const Value value, getter.get(interpreter, item));
    QSF_ASSIGN_OR_RETURN(sum, apply_binary(interpreter.heap(), "+", sum, value));
  }
  return sum;
}

Result<Value> filter_batch(Interpreter& interpreter, const Value& input, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound,
                       bind_arguments(args, "batch", {"linecount", "fill_with"}));
  const auto n_line = bound[0] == nullptr ? std::nullopt : as_int(*bound[0]);
  if (!n_line || *n_line < 1) return invalid_argument("batch: expected a positive integer");
  QSF_ASSIGN_OR_RETURN(const Values items, interpreter.iterate(input));
  const bool fills = bound[1] != nullptr && !bound[1]->is_none();
  Values batches;
  Values line;
  const auto flush = [&]() -> Status {
    auto batch = interpreter.heap().make_list(ListKind::kList, std::exchange(line, {}));
    if (!batch) return batch.error();
    batches.push_back(std::move(*batch));
    return ok_status();
  };
  for (const Value& item : items) {
    line.push_back(item);
    if (static_cast<std::int64_t>(line.size()) == *n_line) QSF_RETURN_IF_ERROR(flush());
  }
  if (!line.empty()) {
    if (fills) {
      const auto n_items = static_cast<std::uint64_t>(*n_line);
      const std::uint64_t limit = interpreter.heap().limits().live_bytes;
      QSF_RETURN_IF_ERROR(interpreter.heap().check_bytes(std::min(n_items, limit) * sizeof(Value)));
      line.resize(n_items, *bound[1]);
    }
    QSF_RETURN_IF_ERROR(flush());
  }
  return interpreter.heap().make_list(ListKind::kIterator, std::move(batches));
}

Result<Value> filter_attr(Interpreter& interpreter, const Value& input, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, "attr", {"name"}));
  const std::string* name = bound[0] == nullptr ? nullptr : as_bytes(*bound[0]);
  if (name == nullptr) return invalid_argument("attr: expected a name");
  if (as_dict(input) != nullptr) {
    return make_undefined("'dict object' has no attribute '" + shown_name(*name) + "'");
  }
  return interpreter.attribute(input, *name);
}

constexpr FilterEntry kSequenceFilters[] = {
    {"attr", filter_attr},
    {"batch", filter_batch},
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"dictsort", filter_dictsort},
    {"first", filter_first},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"map", filter_map},
    {"max", filter_extreme<true>},
    {"min", filter_extreme<false>},
    {"reject", filter_select<false, false>},
    {"rejectattr", filter_select<false, true>},
    {"reverse", filter_reverse},
    {"select", filter_select<true, false>},
    {"selectattr", filter_select<true, true>},
    {"sort", filter_sort},
    {"sum", filter_sum},
    {"unique", filter_unique},
};

}  // namespace

std::span<const FilterEntry> sequence_filters() {
  return kSequenceFilters;
}

}  // namespace qsf::jinja
