// SPDX-License-Identifier: MIT
//
// The global functions: range, dict, namespace, raise_exception and strftime_now.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <string>
#include <utility>

#include "chat/jinja_format.h"
#include "chat/jinja_methods.h"
#include "chat/jinja_operators.h"

namespace qsf::jinja {
namespace {

using Function = Result<Value> (*)(Interpreter&, const CallArgs&);

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

// The entries of a dict or of a list of pairs, then the keywords.
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
      return invalid_argument("namespace: the name of an attribute is no string or begins with _");
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
  // Years of four digits, which is all that Python's strftime agrees on.
  constexpr std::int64_t kYear1000 = -30610224000;
  constexpr std::int64_t kYear10000 = 253402300800;
  const std::int64_t now = interpreter.now_seconds();
  if (now < kYear1000 || now >= kYear10000) {
    return invalid_argument("strftime_now: %lld seconds since 1970 is no date",
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

template <std::size_t n>
Result<Value> refuse(Interpreter&, const CallArgs&) {
  static constexpr const char* kNames[] = {"cycler", "joiner", "lipsum"};
  return unsupported("the function '%s' is not supported", kNames[n]);
}

struct FunctionEntry {
  std::string_view name;
  Function call;
};

constexpr FunctionEntry kFunctions[] = {
    {"cycler", refuse<0>},         {"dict", call_dict},
    {"joiner", refuse<1>},         {"lipsum", refuse<2>},
    {"namespace", call_namespace}, {"raise_exception", call_raise},
    {"range", call_range},         {"strftime_now", call_strftime},
};

const FunctionEntry* find_function(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kFunctions), std::end(kFunctions),
                   [name](const FunctionEntry& entry) { return entry.name == name; });
  return found == std::end(kFunctions) ? nullptr : found;
}

}  // namespace

bool is_function(std::string_view name) {
  return find_function(name) != nullptr;
}

Result<Value> call_function(Interpreter& interpreter, std::string_view name, const CallArgs& args) {
  const FunctionEntry* function = find_function(name);
  if (function == nullptr) return internal_error("a function of no name");
  return function->call(interpreter, args);
}

}  // namespace qsf::jinja
