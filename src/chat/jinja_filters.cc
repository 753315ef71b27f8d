// SPDX-License-Identifier: MIT
//
// The filters of Jinja, `value | name(...)`.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/float_text.h"
#include "chat/jinja_format.h"
#include "chat/jinja_functions.h"
#include "chat/jinja_interpreter.h"
#include "chat/jinja_json.h"
#include "chat/jinja_text.h"

namespace qsf::jinja {
namespace {

using Args = const CallArgs&;
using Bound = std::vector<const Value*>;
using Values = std::vector<Value>;

bool flag_of(const Value* value) {
  return value != nullptr && is_true(*value);
}

// Filters of text take str(input).
Result<Text> text_of(Interpreter& interpreter, const Value& value) {
  return to_str(interpreter.heap(), value);
}

template <CaseChange kChange>
Result<Value> filter_case(Interpreter& interpreter, const Value& input, Args args) {
  const auto bound = bind_arguments(args, "the filter", {});
  if (!bound) return bound.error();
  QSF_ASSIGN_OR_RETURN(const Text text, text_of(interpreter, input));
  QSF_ASSIGN_OR_RETURN(Text changed, change_case(text, kChange));
  return interpreter.heap().make_text(std::move(changed));
}

Result<Value> filter_trim(Interpreter& interpreter, const Value& input, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, "trim", {"chars"}));
  QSF_ASSIGN_OR_RETURN(const Text text, text_of(interpreter, input));
  const bool has_chars = bound[0] != nullptr && !bound[0]->is_none();
  const std::string* chars = has_chars ? as_bytes(*bound[0]) : nullptr;
  if (has_chars && chars == nullptr) return invalid_argument("trim: expected a string");
  return interpreter.heap().make_text(strip(text, Side::kBoth, chars));
}

Result<Value> filter_replace(Interpreter& interpreter, const Value& input, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, "replace", {"old", "new", "count"}));
  if (bound[0] == nullptr || bound[1] == nullptr) {
    return invalid_argument("replace: expected an old and a new string");
  }
  QSF_ASSIGN_OR_RETURN(const Text text, text_of(interpreter, input));
  QSF_ASSIGN_OR_RETURN(const Text old_text, text_of(interpreter, *bound[0]));
  QSF_ASSIGN_OR_RETURN(const Text new_text, text_of(interpreter, *bound[1]));
  const bool has_count = bound[2] != nullptr && !bound[2]->is_none();
  QSF_ASSIGN_OR_RETURN(const std::int64_t count,
                       int_argument(has_count ? bound[2] : nullptr, -1, "replace"));
  QSF_ASSIGN_OR_RETURN(Text replaced, replace(interpreter.heap(), text, old_text, new_text, count));
  return interpreter.heap().make_text(std::move(replaced));
}

Result<Value> filter_string(Interpreter& interpreter, const Value& input, Args args) {
  const auto bound = bind_arguments(args, "string", {});
  if (!bound) return bound.error();
  return interpreter.to_text_value(input);
}

Result<Value> filter_safe(Interpreter& interpreter, const Value& input, Args args) {
  const auto bound = bind_arguments(args, "safe", {});
  if (!bound) return bound.error();
  QSF_ASSIGN_OR_RETURN(Text text, text_of(interpreter, input));
  return interpreter.heap().make_markup(std::move(text));
}

Result<Value> filter_indent(Interpreter& interpreter, const Value& input, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound,
                       bind_arguments(args, "indent", {"width", "first", "blank"}));
  if (input.is_undefined()) return undefined_error(input);
  const Text* text = as_text(input);
  if (text == nullptr) return invalid_argument("indent: expected a string");
  Text indention;
  if (bound[0] != nullptr && as_text(*bound[0]) != nullptr) {
    indention = *as_text(*bound[0]);
  } else {
    QSF_ASSIGN_OR_RETURN(const std::int64_t width, int_argument(bound[0], 4, "indent"));
    if (width > 1000) return unsupported("indent: a width above 1000");
    indention =
        Text(std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' '), true);
  }
  const bool first = bound[1] != nullptr && is_true(*bound[1]);
  const bool blank = bound[2] != nullptr && is_true(*bound[2]);
  Text ended = *text;
  ended.append("\n", true);
  Text out;
  bool is_first = true;
  QSF_ASSIGN_OR_RETURN(const std::vector<Text> lines, split_lines(interpreter.heap(), ended));
  for (const Text& line : lines) {
    if (!is_first) out.append("\n", true);
    if (is_first ? first : (blank || !line.empty())) out.append(indention);
    out.append(line);
    is_first = false;
    QSF_RETURN_IF_ERROR(interpreter.heap().check_bytes(out.size()));
  }
  return interpreter.heap().make_text(std::move(out));
}

Result<Value> filter_tojson(Interpreter& interpreter, const Value& input, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound,
                       bind_arguments(args, "tojson", {"ensure_ascii", "indent", "separators"}));
  JsonOptions options;
  options.ensure_ascii = flag_of(bound[0]);
  options.item_separator = Text(", ", true);
  options.key_separator = Text(": ", true);
  if (bound[1] != nullptr && !bound[1]->is_none()) {
    options.item_separator = Text(",", true);
    if (const Text* text = as_text(*bound[1])) {
      options.indent = *text;
    } else {
      QSF_ASSIGN_OR_RETURN(const std::int64_t width, int_argument(bound[1], 0, "tojson"));
      if (width > 1000) return unsupported("tojson: an indent above 1000");
      options.indent =
          Text(std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' '), true);
    }
  }
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    const List* list = as_list(*bound[2]);
    if (list == nullptr || list->items.size() != 2 || as_text(list->items[0]) == nullptr ||
        as_text(list->items[1]) == nullptr) {
      return invalid_argument("tojson: separators: expected two strings");
    }
    options.item_separator = *as_text(list->items[0]);
    options.key_separator = *as_text(list->items[1]);
  }
  QSF_ASSIGN_OR_RETURN(Text text, to_json(interpreter.heap(), input, options));
  return interpreter.heap().make_text(std::move(text));
}

// A number in text as Python's float() reads it; nothing where it raises.
std::optional<double> parse_float(std::string_view text) {
  const ByteRange kept = strip_space(text, true, true);
  text = text.substr(kept.begin, kept.end - kept.begin);
  std::string clean;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](std::size_t at) {
      return at < text.size() && text[at] >= '0' && text[at] <= '9';
    };
    if (text[i] == '_') {
      if (i == 0 || !digit(i - 1) || !digit(i + 1)) return std::nullopt;
      continue;
    }
    clean.push_back(text[i]);
  }
  std::string_view digits = clean;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  if (digits.starts_with('-') && digits.size() != clean.size()) return std::nullopt;
  double value = 0;
  const auto parsed = double_from_chars(digits.data(), digits.data() + digits.size(), value);
  if (parsed.ptr != digits.data() + digits.size() || digits.empty()) return std::nullopt;
  if (parsed.ec == std::errc::result_out_of_range) {
    return digits.find("e-") != std::string_view::npos ? 0.0 : HUGE_VAL;
  }
  if (parsed.ec != std::errc() || digits.find('(') != std::string_view::npos) return std::nullopt;
  return value;
}

// An integer in text as Python's int() reads it; nothing where it raises.
std::optional<std::int64_t> parse_int(std::string_view text, int base) {
  const ByteRange kept = strip_space(text, true, true);
  text = text.substr(kept.begin, kept.end - kept.begin);
  const auto alnum = [text](std::size_t at) {
    return at < text.size() && text[at] != '_' && text[at] != '+' && text[at] != '-';
  };
  for (std::size_t i = text.find('_'); i != std::string_view::npos; i = text.find('_', i + 1)) {
    if (i == 0 || !alnum(i - 1) || !alnum(i + 1)) return std::nullopt;
  }
  std::string clean(text);
  std::erase(clean, '_');
  const bool is_negative = clean.starts_with('-');
  if (is_negative || clean.starts_with('+')) clean.erase(0, 1);
  const char mark = clean.size() > 2 && clean[0] == '0' ? static_cast<char>(clean[1] | 0x20) : ' ';
  if ((base == 16 && mark == 'x') || (base == 8 && mark == 'o') || (base == 2 && mark == 'b')) {
    clean.erase(0, 2);
  }
  if (clean.empty() || clean[0] == '-') return std::nullopt;
  const std::string digits = (is_negative ? "-" : "") + clean;
  std::int64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, value, base);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

Result<Value> filter_int(Interpreter&, const Value& input, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, "int", {"default", "base"}));
  if (input.is_undefined()) return undefined_error(input);
  const Value fallback = bound[0] != nullptr ? *bound[0] : make_int(0);
  QSF_ASSIGN_OR_RETURN(const std::int64_t base, int_argument(bound[1], 10, "int"));
  if (base < 2 || base > 36) return unsupported("int: a base outside 2 to 36");
  if (const auto integer = as_int(input)) return make_int(*integer);
  std::optional<double> number;
  if (const std::string* text = as_bytes(input)) {
    if (const auto integer = parse_int(*text, static_cast<int>(base))) return make_int(*integer);
    number = parse_float(*text);
  } else if (const double* value = input.get<double>()) {
    number = *value;
  }
  if (!number || std::isnan(*number) || std::isinf(*number)) return fallback;
  if (std::abs(*number) > 9.2e18) return unsupported("int: a number beyond 64 bits");
  return make_int(static_cast<std::int64_t>(*number));
}

// Reads an attribute of values: a name, names with dots between them, or an index. Without an
// attribute it returns the value itself.
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
    QSF_ASSIGN_OR_RETURN(std::vector<Text> parts, split(heap, *text, &dot, -1));
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

  // Returns `fallback` for an attribute that is not there, where it is given.
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

// The key that sort, dictsort and unique compare: the attribute, in lower case unless case matters.
Result<Value> sort_key(Interpreter& interpreter, const AttributeGetter& getter, const Value& item,
                       bool case_sensitive) {
  QSF_ASSIGN_OR_RETURN(Value key, getter.get(interpreter, item));
  const Text* text = as_text(key);
  if (case_sensitive || text == nullptr) return key;
  QSF_ASSIGN_OR_RETURN(Text lower, change_case(*text, CaseChange::kLower));
  return interpreter.heap().make_text(std::move(lower));
}

// Sorts items by keys, stably, like Python's sorted().
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
    return invalid_argument("length: a value of type %s has no length",
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
    return invalid_argument("last: a generator has no last item; convert it with the filter list");
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

// The items of map, select and reject: none for a false value, whether Python can iterate over it
// or not.
Result<Values> iterate_if_true(Interpreter& interpreter, const Value& input) {
  if (!is_true(input)) return Values();
  return interpreter.iterate(input);
}

Result<Value> filter_map(Interpreter& interpreter, const Value& input, Args args) {
  QSF_ASSIGN_OR_RETURN(const Values items, iterate_if_true(interpreter, input));
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
  if (name == nullptr) return invalid_argument("map: expected an attribute or a filter's name");
  CallArgs rest = args;
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : items) {
    QSF_ASSIGN_OR_RETURN(Value value, interpreter.apply_filter(*name, item, rest));
    mapped.push_back(std::move(value));
  }
  return interpreter.heap().make_list(ListKind::kIterator, std::move(mapped));
}

// select and reject, of the values or of an attribute of them.
template <bool kWanted, bool kByAttribute>
Result<Value> filter_select(Interpreter& interpreter, const Value& input, Args args) {
  QSF_ASSIGN_OR_RETURN(const Values items, iterate_if_true(interpreter, input));
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
    if (name == nullptr) return invalid_argument("select: expected a test's name");
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
  const std::string* attribute = bound[2] == nullptr ? nullptr : as_bytes(*bound[2]);
  if (attribute != nullptr && attribute->find(',') != std::string::npos) {
    return unsupported("sort: several attributes");
  }
  QSF_ASSIGN_OR_RETURN(const AttributeGetter getter, AttributeGetter::make(heap, bound[2]));
  QSF_ASSIGN_OR_RETURN(Values items, interpreter.iterate(input));
  Values keys;
  for (const Value& item : items) {
    QSF_ASSIGN_OR_RETURN(Value key, sort_key(interpreter, getter, item, flag_of(bound[1])));
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
    return invalid_argument("dictsort: by: expected \"key\" or \"value\"");
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
      return invalid_argument("unique: a value of type %s has no hash",
                              std::string(type_name(key)).c_str());
    }
    if (seen.insert(std::move(*text)).second) kept.push_back(item);
  }
  return interpreter.heap().make_list(ListKind::kIterator, std::move(kept));
}

// A filter of llama.cpp, which templates apply to the arguments of tool calls.
Result<Value> filter_from_json(Interpreter& interpreter, const Value& input, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, "from_json", {}));
  const std::string* text = as_bytes(input);
  if (text == nullptr) return invalid_argument("from_json: expected a string");
  QSF_RETURN_IF_ERROR(interpreter.heap().charge(text->size()));
  QSF_ASSIGN_OR_RETURN(const ChatJson json, parse_chat_json(*text, "from_json"));
  return make_value(interpreter.heap(), json);
}

struct FilterEntry {
  std::string_view name;
  FilterFunction apply;
};

constexpr FilterEntry kFilters[] = {
    {"capitalize", filter_case<CaseChange::kCapitalize>},
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"dictsort", filter_dictsort},
    {"first", filter_first},
    {"from_json", filter_from_json},
    {"indent", filter_indent},
    {"int", filter_int},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"lower", filter_case<CaseChange::kLower>},
    {"map", filter_map},
    {"reject", filter_select<false, false>},
    {"rejectattr", filter_select<false, true>},
    {"replace", filter_replace},
    {"safe", filter_safe},
    {"select", filter_select<true, false>},
    {"selectattr", filter_select<true, true>},
    {"sort", filter_sort},
    {"string", filter_string},
    {"title", filter_case<CaseChange::kTitleFilter>},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"unique", filter_unique},
    {"upper", filter_case<CaseChange::kUpper>},
};

}  // namespace

FilterFunction find_filter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                   [name](const FilterEntry& entry) { return entry.name == name; });
  return found == std::end(kFilters) ? nullptr : found->apply;
}

}  // namespace qsf::jinja
