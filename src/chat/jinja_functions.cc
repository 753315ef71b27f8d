// SPDX-License-Identifier: MIT
//
// Tests, methods and global functions.

#include "chat/jinja_functions.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <string>
#include <utility>

#include "chat/jinja_expressions.h"
#include "chat/jinja_format.h"
#include "chat/jinja_interpreter.h"

namespace qsf::jinja {
namespace {

using Args = const CallArgs&;
using Bound = std::vector<const Value*>;

template <typename Entry, std::size_t n>
const Entry* find_entry(const Entry (&entries)[n], std::string_view name) {
  const auto* found = std::find_if(std::begin(entries), std::end(entries),
                                   [name](const Entry& entry) { return entry.name == name; });
  return found == std::end(entries) ? nullptr : found;
}

// Tests.

template <bool (*kPredicate)(const Value&)>
Result<bool> check(Interpreter&, const Value& value, Args args) {
  const auto bound = bind_arguments(args, "the test", {});
  if (!bound) return bound.error();
  return kPredicate(value);
}

bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_undefined(const Value& value) {
  return value.is_undefined();
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_boolean(const Value& value) {
  return value.get<bool>() != nullptr;
}
bool is_exactly_true(const Value& value) {
  return is_boolean(value) && *value.get<bool>();
}
bool is_exactly_false(const Value& value) {
  return is_boolean(value) && !*value.get<bool>();
}
bool is_integer(const Value& value) {
  return value.get<std::int64_t>() != nullptr || value.get<LongInt>() != nullptr;
}
bool is_float(const Value& value) {
  return value.get<double>() != nullptr;
}
bool is_number(const Value& value) {
  return as_number(value).has_value() || value.get<LongInt>() != nullptr;
}
bool is_string(const Value& value) {
  return as_text(value) != nullptr;
}
bool is_mapping(const Value& value) {
  return as_dict(value) != nullptr;
}
bool is_iterable(const Value& value) {
  return value.is_undefined() || is_string(value) || is_mapping(value) ||
         as_list(value) != nullptr || value.get<LoopRef>() != nullptr;
}
bool is_sequence(const Value& value) {
  if (const List* list = as_list(value)) {
    return list->kind != ListKind::kIterator && list->kind != ListKind::kView;
  }
  return value.is_undefined() || is_string(value) || is_mapping(value);
}

Result<const Value*> one_argument(Args args, std::string_view name) {
  QSF_ASSIGN_OR_RETURN(const auto bound, bind_arguments(args, name, {"other"}));
  if (bound[0] == nullptr) {
    return invalid_argument("the test '%s' takes an argument", std::string(name).c_str());
  }
  return bound[0];
}

template <Comparison kComparison>
Result<bool> check_comparison(Interpreter& interpreter, const Value& value, Args args) {
  QSF_ASSIGN_OR_RETURN(const Value* other, one_argument(args, "a comparison"));
  return compare_values(interpreter.heap(), kComparison, value, *other);
}

struct TestEntry {
  std::string_view name;
  TestFunction apply;
};

constexpr TestEntry kTests[] = {
    {"!=", check_comparison<Comparison::kNe>},
    {"<", check_comparison<Comparison::kLt>},
    {"<=", check_comparison<Comparison::kLe>},
    {"==", check_comparison<Comparison::kEq>},
    {">", check_comparison<Comparison::kGt>},
    {">=", check_comparison<Comparison::kGe>},
    {"boolean", check<is_boolean>},
    {"defined", check<is_defined>},
    {"eq", check_comparison<Comparison::kEq>},
    {"equalto", check_comparison<Comparison::kEq>},
    {"false", check<is_exactly_false>},
    {"float", check<is_float>},
    {"ge", check_comparison<Comparison::kGe>},
    {"greaterthan", check_comparison<Comparison::kGt>},
    {"gt", check_comparison<Comparison::kGt>},
    {"in", check_comparison<Comparison::kIn>},
    {"integer", check<is_integer>},
    {"iterable", check<is_iterable>},
    {"le", check_comparison<Comparison::kLe>},
    {"lessthan", check_comparison<Comparison::kLt>},
    {"lt", check_comparison<Comparison::kLt>},
    {"mapping", check<is_mapping>},
    {"ne", check_comparison<Comparison::kNe>},
    {"none", check<is_none>},
    {"number", check<is_number>},
    {"sequence", check<is_sequence>},
    {"string", check<is_string>},
    {"true", check<is_exactly_true>},
    {"undefined", check<is_undefined>},
};

// Methods of strings.

// A string argument; null where none or None was given.
Result<const Text*> text_or_none(const Value* value, const char* method) {
  const Text* absent = nullptr;
  if (value == nullptr || value->is_none()) return absent;
  const Text* text = as_text(*value);
  if (text == nullptr) {
    return invalid_argument("%s: expected a string, got %s", method,
                            std::string(type_name(*value)).c_str());
  }
  return text;
}

Result<const Text*> required_text(const Value* value, const char* method) {
  QSF_ASSIGN_OR_RETURN(const Text* text, text_or_none(value, method));
  if (text == nullptr) return invalid_argument("%s: expected a string", method);
  return text;
}

template <CaseChange kChange>
Result<Value> call_case(Interpreter& interpreter, const Text& self, Args args) {
  const auto bound = bind_arguments(args, "the method", {});
  if (!bound) return bound.error();
  QSF_ASSIGN_OR_RETURN(Text changed, change_case(self, kChange));
  return interpreter.heap().make_text(std::move(changed));
}

template <Side kSide>
Result<Value> call_strip(Interpreter& interpreter, const Text& self, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, "strip", {"chars"}));
  QSF_ASSIGN_OR_RETURN(const Text* chars, text_or_none(bound[0], "strip"));
  return interpreter.heap().make_text(
      strip(self, kSide, chars == nullptr ? nullptr : &chars->bytes()));
}

Result<Value> call_split(Interpreter& interpreter, const Text& self, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, "split", {"sep", "maxsplit"}));
  QSF_ASSIGN_OR_RETURN(const Text* separator, text_or_none(bound[0], "split"));
  QSF_ASSIGN_OR_RETURN(const std::int64_t max_splits, int_argument(bound[1], -1, "split"));
  if (separator != nullptr && separator->empty()) {
    return invalid_argument("split: the separator is empty");
  }
  Heap& heap = interpreter.heap();
  QSF_ASSIGN_OR_RETURN(
      std::vector<Text> parts,
      split(heap, self, separator == nullptr ? nullptr : &separator->bytes(), max_splits));
  std::vector<Value> items;
  for (Text& part : parts) {
    QSF_ASSIGN_OR_RETURN(Value item, heap.make_text(std::move(part)));
    items.push_back(std::move(item));
  }
  return heap.make_list(ListKind::kList, std::move(items));
}

// startswith and endswith: of a string, or of any string of a tuple.
template <bool kAtEnd>
Result<Value> call_affix(Interpreter&, const Text& self, Args args) {
  const char* method = kAtEnd ? "endswith" : "startswith";
  QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, method, {"affix"}));
  if (bound[0] == nullptr) return invalid_argument("%s: expected a string", method);
  const auto matches = [&self](const Value& value) -> Result<bool> {
    QSF_ASSIGN_OR_RETURN(const Text* affix, required_text(&value, "startswith or endswith"));
    const std::string_view bytes = self.bytes();
    return kAtEnd ? bytes.ends_with(affix->bytes()) : bytes.starts_with(affix->bytes());
  };
  const List* list = as_list(*bound[0]);
  if (list == nullptr || list->kind != ListKind::kTuple) {
    QSF_ASSIGN_OR_RETURN(const bool found, matches(*bound[0]));
    return make_bool(found);
  }
  for (const Value& item : list->items) {
    QSF_ASSIGN_OR_RETURN(const bool found, matches(item));
    if (found) return make_bool(true);
  }
  return make_bool(false);
}

Result<Value> call_replace(Interpreter& interpreter, const Text& self, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, "replace", {"old", "new", "count"}));
  QSF_ASSIGN_OR_RETURN(const Text* old_text, required_text(bound[0], "replace"));
  QSF_ASSIGN_OR_RETURN(const Text* new_text, required_text(bound[1], "replace"));
  QSF_ASSIGN_OR_RETURN(const std::int64_t count, int_argument(bound[2], -1, "replace"));
  QSF_ASSIGN_OR_RETURN(Text replaced,
                       replace(interpreter.heap(), self, *old_text, *new_text, count));
  return interpreter.heap().make_text(std::move(replaced));
}

struct StringMethodEntry {
  std::string_view name;
  Result<Value> (*call)(Interpreter&, const Text& self, const CallArgs&);
};

constexpr StringMethodEntry kStringMethods[] = {
    {"capitalize", call_case<CaseChange::kCapitalize>},
    {"endswith", call_affix<true>},
    {"lower", call_case<CaseChange::kLower>},
    {"lstrip", call_strip<Side::kLeft>},
    {"replace", call_replace},
    {"rstrip", call_strip<Side::kRight>},
    {"split", call_split},
    {"startswith", call_affix<false>},
    {"strip", call_strip<Side::kBoth>},
    {"title", call_case<CaseChange::kTitle>},
    {"upper", call_case<CaseChange::kUpper>},
};

constexpr std::string_view kDictMethods[] = {"get", "items", "keys", "values"};

// The other public methods of Python's types, so that reading one is refused, not undefined. Those
// that change a list or dict are missing: Python's sandbox hides them.
constexpr std::string_view kOtherStringMethods[] = {
    "casefold",   "center",       "count",        "encode",   "expandtabs", "find",
    "format",     "format_map",   "index",        "isalnum",  "isalpha",    "isascii",
    "isdecimal",  "isdigit",      "isidentifier", "islower",  "isnumeric",  "isprintable",
    "isspace",    "istitle",      "isupper",      "join",     "ljust",      "maketrans",
    "partition",  "removeprefix", "removesuffix", "rfind",    "rindex",     "rjust",
    "rpartition", "rsplit",       "splitlines",   "swapcase", "translate",  "zfill"};
constexpr std::string_view kOtherDictMethods[] = {"copy", "fromkeys"};
constexpr std::string_view kOtherListMethods[] = {"copy", "count", "index"};

template <std::size_t n>
bool is_one_of(const std::string_view (&names)[n], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

Result<Value> call_dict_method(Heap& heap, const Dict& dict, std::string_view name, Args args) {
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
  const auto bound = bind_arguments(args, name, {});
  if (!bound) return bound.error();
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

// Global functions.

Result<Value> call_range(Interpreter& interpreter, const CallArgs& args) {
  std::int64_t numbers[3] = {0, 0, 1};
  if (args.positional.empty() || args.positional.size() > 3 || !args.keywords.empty()) {
    return invalid_argument("range: expected 1 to 3 integers");
  }
  for (std::size_t i = 0; i < args.positional.size(); ++i) {
    if (args.positional[i].is_undefined()) return undefined_error(args.positional[i]);
    const auto integer = as_int(args.positional[i]);
    if (!integer) {
      return invalid_argument("range: expected integers, got %s",
                              std::string(type_name(args.positional[i])).c_str());
    }
    numbers[i] = *integer;
  }
  if (args.positional.size() == 1) std::swap(numbers[0], numbers[1]);
  const auto [begin, end, step] = numbers;
  if (step == 0) return invalid_argument("range: the step cannot be zero");
  std::vector<Value> items;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<std::int64_t>(items.size()) == kMaxRange) {
      return invalid_argument("range: more than %lld numbers", static_cast<long long>(kMaxRange));
    }
    items.push_back(make_int(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return interpreter.heap().make_list(ListKind::kRange, std::move(items));
}

// Takes the entries of a dict or of a list of pairs, then the keywords.
Result<Value> call_dict(Interpreter& interpreter, const CallArgs& args) {
  if (args.positional.size() > 1) return invalid_argument("dict: expected at most one value");
  std::vector<DictEntry> entries;
  if (!args.positional.empty()) {
    if (const Dict* dict = as_dict(args.positional[0])) {
      entries = dict->entries;
    } else {
      QSF_ASSIGN_OR_RETURN(const auto pairs, interpreter.iterate(args.positional[0]));
      for (const Value& pair : pairs) {
        QSF_ASSIGN_OR_RETURN(auto parts, interpreter.iterate(pair));
        if (parts.size() != 2) return invalid_argument("dict: expected a list of pairs");
        entries.push_back({std::move(parts[0]), std::move(parts[1])});
      }
    }
  }
  for (const auto& [name, value] : args.keywords) {
    QSF_ASSIGN_OR_RETURN(Value key, interpreter.heap().make_text(name, true));
    entries.push_back({std::move(key), value});
  }
  return interpreter.heap().make_dict(entries);
}

Result<Value> call_namespace(Interpreter& interpreter, const CallArgs& args) {
  QSF_ASSIGN_OR_RETURN(const Value dict, call_dict(interpreter, args));
  QSF_ASSIGN_OR_RETURN(Value value, interpreter.heap().make_namespace());
  Namespace& space = **value.get<Namespace*>();
  for (const DictEntry& entry : as_dict(dict)->entries) {
    const std::string* name = as_bytes(entry.key);
    if (name == nullptr || name->starts_with('_')) {
      return invalid_argument(
          "namespace: the name of an attribute must be a string and not begin with _");
    }
    QSF_RETURN_IF_ERROR(interpreter.heap().charge(8));
    space.attributes.emplace_back(*name, entry.value);
  }
  return value;
}

Result<Value> call_raise(Interpreter& interpreter, const CallArgs& args) {
  QSF_ASSIGN_OR_RETURN(const auto bound, bind_arguments(args, "raise_exception", {"message"}));
  if (bound[0] == nullptr) return invalid_argument("raise_exception: expected a message");
  QSF_ASSIGN_OR_RETURN(const Text message, to_str(interpreter.heap(), *bound[0]));
  return invalid_argument("%.2000s", message.bytes().c_str());
}

constexpr std::string_view kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                      "Thursday", "Friday", "Saturday"};
constexpr std::string_view kMonths[] = {"January",   "February", "March",    "April",
                                        "May",       "June",     "July",     "August",
                                        "September", "October",  "November", "December"};

// One conversion of strftime in the C locale; empty for one that is not supported. `pad` is false
// for %-d and its like.
std::string format_date_part(std::int64_t now_seconds, char kind, bool pad) {
  using std::chrono::days;
  using std::chrono::sys_days;
  const std::chrono::sys_seconds now{std::chrono::seconds(now_seconds)};
  const sys_days day = std::chrono::floor<days>(now);
  const std::chrono::year_month_day date(day);
  const auto second_of_day = static_cast<int>((now - day).count());
  const int hour = second_of_day / 3600;
  const int year = static_cast<int>(date.year());
  const unsigned month = static_cast<unsigned>(date.month());
  const unsigned weekday = std::chrono::weekday(day).c_encoding();
  const auto number = [pad](int value, int width) {
    char buffer[24];
    std::snprintf(buffer, sizeof buffer, "%0*d", pad ? width : 1, value);
    return std::string(buffer);
  };
  switch (kind) {
    case 'Y': return number(year, 4);
    case 'y': return number(year % 100, 2);
    case 'm': return number(static_cast<int>(month), 2);
    case 'd': return number(static_cast<int>(static_cast<unsigned>(date.day())), 2);
    case 'H': return number(hour, 2);
    case 'I': return number(hour % 12 == 0 ? 12 : hour % 12, 2);
    case 'M': return number(second_of_day / 60 % 60, 2);
    case 'S': return number(second_of_day % 60, 2);
    case 'j': {
      const sys_days new_year = date.year() / std::chrono::January / 1;
      return number(static_cast<int>((day - new_year).count()) + 1, 3);
    }
    case 'p': return hour < 12 ? "AM" : "PM";
    case 'A': return std::string(kDays[weekday]);
    case 'a': return std::string(kDays[weekday].substr(0, 3));
    case 'B': return std::string(kMonths[month - 1]);
    case 'b': return std::string(kMonths[month - 1].substr(0, 3));
    case '%': return "%";
    default: return {};
  }
}

Result<Value> call_strftime(Interpreter& interpreter, const CallArgs& args) {
  QSF_ASSIGN_OR_RETURN(const auto bound, bind_arguments(args, "strftime_now", {"format"}));
  const Text* format = bound[0] == nullptr ? nullptr : as_text(*bound[0]);
  if (format == nullptr) return invalid_argument("strftime_now: expected a format");
  // Years of four digits: for others Python's strftime depends on the platform.
  constexpr std::int64_t kYear1000 = -30610224000;
  constexpr std::int64_t kYear10000 = 253402300800;
  const std::int64_t now = interpreter.now_seconds();
  if (now < kYear1000 || now >= kYear10000) {
    return invalid_argument(
        "strftime_now: %lld seconds since 1970: expected a year from 1000 to 9999",
        static_cast<long long>(now));
  }
  const std::string& bytes = format->bytes();
  Text out;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t percent = std::min(bytes.find('%', at), bytes.size());
    out.append_slice(*format, at, percent);
    if (percent == bytes.size()) break;
    at = percent + 1;
    const bool pad = at >= bytes.size() || bytes[at] != '-';
    if (!pad) ++at;
    const std::string part = at < bytes.size() ? format_date_part(now, bytes[at], pad) : "";
    if (part.empty()) {
      return unsupported("strftime_now: the conversion '%.3s' is not supported",
                         bytes.substr(percent, 3).c_str());
    }
    out.append(part, true);
    ++at;
  }
  return interpreter.heap().make_text(std::move(out));
}

struct FunctionEntry {
  std::string_view name;
  Result<Value> (*call)(Interpreter&, const CallArgs&);
};

constexpr FunctionEntry kFunctions[] = {
    {"dict", call_dict},
    {"namespace", call_namespace},
    {"range", call_range},
    {"raise_exception", call_raise},
    {"strftime_now", call_strftime},
};

}  // namespace

TestFunction find_test(std::string_view name) {
  const TestEntry* entry = find_entry(kTests, name);
  return entry == nullptr ? nullptr : entry->apply;
}

bool is_method_name(std::string_view name) {
  return find_entry(kStringMethods, name) != nullptr || is_one_of(kDictMethods, name) ||
         name == "append" || name == "pop";
}

Result<bool> has_method(const Value& value, std::string_view name) {
  bool is_known = false;
  if (as_text(value) != nullptr) {
    if (find_entry(kStringMethods, name) != nullptr) return true;
    is_known = is_one_of(kOtherStringMethods, name);
  } else if (as_dict(value) != nullptr) {
    if (is_one_of(kDictMethods, name)) return true;
    is_known = is_one_of(kOtherDictMethods, name);
  } else if (as_list(value) != nullptr) {
    is_known = is_one_of(kOtherListMethods, name);
  }
  if (!is_known) return false;
  return unsupported("the method '%s' of type %s is not supported", std::string(name).c_str(),
                     std::string(type_name(value)).c_str());
}

Result<Value> call_method(Interpreter& interpreter, const Value& self, std::string_view name,
                          const CallArgs& args) {
  if (const Dict* dict = as_dict(self)) {
    return call_dict_method(interpreter.heap(), *dict, name, args);
  }
  const Text* text = as_text(self);
  const StringMethodEntry* method = find_entry(kStringMethods, name);
  if (text == nullptr || method == nullptr) return internal_error("a method that does not exist");
  return method->call(interpreter, *text, args);
}

bool is_function(std::string_view name) {
  return find_entry(kFunctions, name) != nullptr;
}

Result<Value> call_function(Interpreter& interpreter, std::string_view name, const CallArgs& args) {
  const FunctionEntry* function = find_entry(kFunctions, name);
  if (function == nullptr) return internal_error("a function that does not exist");
  return function->call(interpreter, args);
}

Result<std::int64_t> int_argument(const Value* value, std::int64_t fallback, const char* callee) {
  if (value == nullptr) return fallback;
  const auto integer = as_int(*value);
  if (!integer) {
    return invalid_argument("%s: got %s, expected an integer", callee,
                            std::string(type_name(*value)).c_str());
  }
  return *integer;
}

}  // namespace qsf::jinja
