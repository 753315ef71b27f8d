// SPDX-License-Identifier: MIT
//
// Filters of text and numbers.

#include "chat/jinja_filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "chat/jinja_format.h"
#include "chat/jinja_interpreter.h"
#include "chat/jinja_operators.h"
#include "chat/jinja_strings.h"

namespace qsf::jinja {
namespace {

using Args = const CallArgs&;
using Bound = std::vector<const Value*>;

Result<std::int64_t> int_or(const Value* value, std::int64_t fallback, const char* filter) {
  if (value == nullptr) return fallback;
  const auto integer = as_int(*value);
  if (!integer) {
    return invalid_argument("%s: expected an integer, got %s", filter,
                            std::string(type_name(*value)).c_str());
  }
  return *integer;
}

// Filters take str(input).
Result<Text> text_of(Interpreter& interpreter, const Value& value) {
  return to_str(interpreter.heap(), value);
}

template <Text (*kChange)(const Text&)>
Result<Value> change(Interpreter& interpreter, const Value& input, Args args) {
  const auto bound = bind_arguments(args, "the filter", {});
  if (!bound) return bound.error();
  QSF_ASSIGN_OR_RETURN(const Text text, text_of(interpreter, input));
  return interpreter.heap().make_text(kChange(text));
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
    return invalid_argument("replace: expected what to replace, and by what");
  }
  QSF_ASSIGN_OR_RETURN(const Text text, text_of(interpreter, input));
  QSF_ASSIGN_OR_RETURN(const Text old_text, text_of(interpreter, *bound[0]));
  QSF_ASSIGN_OR_RETURN(const Text new_text, text_of(interpreter, *bound[1]));
  const bool has_count = bound[2] != nullptr && !bound[2]->is_none();
  QSF_ASSIGN_OR_RETURN(const std::int64_t count,
                       int_or(has_count ? bound[2] : nullptr, -1, "replace"));
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

Result<Value> filter_escape(Interpreter& interpreter, const Value& input, Args args) {
  const auto bound = bind_arguments(args, "escape", {});
  if (!bound) return bound.error();
  const TextRef* ref = input.get<TextRef>();
  if (ref != nullptr && (*ref)->is_markup) return input;
  QSF_ASSIGN_OR_RETURN(const Text text, text_of(interpreter, input));
  Text out;
  const std::string& bytes = text.bytes();
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string_view entity;
    switch (bytes[at]) {
      case '&': entity = "&amp;"; break;
      case '<': entity = "&lt;"; break;
      case '>': entity = "&gt;"; break;
      case '"': entity = "&#34;"; break;
      case '\'': entity = "&#39;"; break;
      default: break;
    }
    if (entity.empty()) {
      out.append_slice(text, at, at + 1);
    } else {
      out.append(entity, text.trusted_at(at));
      QSF_RETURN_IF_ERROR(interpreter.heap().check_bytes(out.size()));
    }
  }
  return interpreter.heap().make_markup(std::move(out));
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
    QSF_ASSIGN_OR_RETURN(const std::int64_t width, int_or(bound[0], 4, "indent"));
    if (width > 1000) return unsupported("indent: a width past 1000");
    indention =
        Text(std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' '), true);
  }
  const bool first = bound[1] != nullptr && is_true(*bound[1]);
  const bool blank = bound[2] != nullptr && is_true(*bound[2]);
  Text ended = *text;
  ended.append("\n", true);
  Text out;
  bool is_first = true;
  QSF_ASSIGN_OR_RETURN(const std::vector<Text> lines,
                       split_lines(interpreter.heap(), ended, false));
  for (const Text& line : lines) {
    if (!is_first) out.append("\n", true);
    if (is_first ? first : (blank || !line.empty())) out.append(indention);
    out.append(line);
    is_first = false;
    QSF_RETURN_IF_ERROR(interpreter.heap().check_bytes(out.size()));
  }
  return interpreter.heap().make_text(std::move(out));
}

Result<Value> filter_format(Interpreter& interpreter, const Value& input, Args args) {
  if (!args.keywords.empty()) return unsupported("format: names; only positions are supported");
  QSF_ASSIGN_OR_RETURN(const Text format, text_of(interpreter, input));
  QSF_ASSIGN_OR_RETURN(const Value values,
                       interpreter.heap().make_list(ListKind::kTuple, args.positional));
  return format_percent(interpreter.heap(), format, values);
}

Result<Value> filter_tojson(Interpreter& interpreter, const Value& input, Args args) {
  QSF_ASSIGN_OR_RETURN(
      const Bound bound,
      bind_arguments(args, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonOptions options;
  options.ensure_ascii = bound[0] != nullptr && is_true(*bound[0]);
  options.sort_keys = bound[3] != nullptr && is_true(*bound[3]);
  options.item_separator = Text(", ", true);
  options.key_separator = Text(": ", true);
  if (bound[1] != nullptr && !bound[1]->is_none()) {
    options.item_separator = Text(",", true);
    if (const Text* text = as_text(*bound[1])) {
      options.indent = *text;
    } else {
      QSF_ASSIGN_OR_RETURN(const std::int64_t width, int_or(bound[1], 0, "tojson"));
      if (width > 1000) return unsupported("tojson: an indent past 1000");
      options.indent =
          Text(std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' '), true);
    }
  }
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    const List* list = as_list(*bound[2]);
    if (list == nullptr || list->items.size() != 2 || as_text(list->items[0]) == nullptr ||
        as_text(list->items[1]) == nullptr) {
      return invalid_argument("tojson: separators are two strings");
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
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (parsed.ptr != digits.data() + digits.size() || digits.empty()) return std::nullopt;
  if (parsed.ec == std::errc::result_out_of_range) {
    return digits.find("e-") != std::string_view::npos ? 0.0 : HUGE_VAL;
  }
  if (parsed.ec != std::errc() || digits.find('(') != std::string_view::npos) return std::nullopt;
  return value;
}

// An integer in text as Python's int() reads it.
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
  QSF_ASSIGN_OR_RETURN(const std::int64_t base, int_or(bound[1], 10, "int"));
  if (base < 2 || base > 36) return unsupported("int: a base outside of 2 to 36");
  if (const auto integer = as_int(input)) return make_int(*integer);
  std::optional<double> number;
  if (const std::string* text = as_bytes(input)) {
    if (const auto integer = parse_int(*text, static_cast<int>(base))) return make_int(*integer);
    number = parse_float(*text);
  } else if (const double* value = input.get<double>()) {
    number = *value;
  }
  if (!number || std::isnan(*number) || std::isinf(*number)) return fallback;
  if (std::abs(*number) > 9.2e18) return unsupported("int: a number past 64 bits");
  return make_int(static_cast<std::int64_t>(*number));
}

Result<Value> filter_float(Interpreter&, const Value& input, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, "float", {"default"}));
  if (input.is_undefined()) return undefined_error(input);
  const Value fallback = bound[0] != nullptr ? *bound[0] : make_float(0);
  if (const auto number = as_number(input)) return make_float(*number);
  const std::string* text = as_bytes(input);
  const auto number = text == nullptr ? std::nullopt : parse_float(*text);
  return number ? make_float(*number) : fallback;
}

Result<Value> filter_abs(Interpreter&, const Value& input, Args args) {
  const auto bound = bind_arguments(args, "abs", {});
  if (!bound) return bound.error();
  if (const double* number = input.get<double>()) return make_float(std::abs(*number));
  const auto integer = as_int(input);
  if (!integer) {
    if (input.is_undefined()) return undefined_error(input);
    return invalid_argument("abs: expected a number, got %s",
                            std::string(type_name(input)).c_str());
  }
  return *integer < 0 ? negate(input) : make_int(*integer);
}

Result<Value> filter_round(Interpreter&, const Value& input, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, "round", {"precision", "method"}));
  QSF_ASSIGN_OR_RETURN(const std::int64_t precision, int_or(bound[0], 0, "round"));
  const std::string* given = bound[1] == nullptr ? nullptr : as_bytes(*bound[1]);
  const std::string method = bound[1] == nullptr ? "common" : given == nullptr ? "" : *given;
  if (method != "common" && method != "ceil" && method != "floor") {
    return invalid_argument("round: the method is common, ceil or floor");
  }
  const auto number = as_number(input);
  if (!number) {
    if (input.is_undefined()) return undefined_error(input);
    return invalid_argument("round: expected a number, got %s",
                            std::string(type_name(input)).c_str());
  }
  if (precision < -15 || precision > 15) return unsupported("round: a precision past 15 digits");
  if (method == "common") {
    if (as_int(input) && precision >= 0) return make_int(*as_int(input));
    if (precision < 0) return unsupported("round: a precision below zero");
    if (!std::isfinite(*number)) return make_float(*number);
    // Python rounds the decimal digits of the exact value, half to even, as printf does.
    char buffer[400];
    std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(precision), *number);
    return make_float(std::strtod(buffer, nullptr));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = *number * scale;
  if (!(std::abs(scaled) < 9.2e18)) return unsupported("round: a number past 64 bits");
  // Python's floor and ceil give integers, and dividing them gives a float.
  return make_float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale + 0.0);
}

Result<Value> filter_wordcount(Interpreter& interpreter, const Value& input, Args args) {
  const auto bound = bind_arguments(args, "wordcount", {});
  if (!bound) return bound.error();
  QSF_ASSIGN_OR_RETURN(const Text text, text_of(interpreter, input));
  std::int64_t n_words = 0;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const DecodedChar next = decode_char(text.bytes(), at);
    at += next.n_bytes;
    const std::uint32_t c = next.code_point;
    if (c >= 0x80) return unsupported("wordcount of text beyond ASCII");
    const bool is_word =
        (c >= '0' && c <= '9') || ((c | 0x20U) >= 'a' && (c | 0x20U) <= 'z') || c == '_';
    n_words += is_word && !in_word ? 1 : 0;
    in_word = is_word;
  }
  return make_int(n_words);
}

constexpr FilterEntry kTextFilters[] = {
    {"abs", filter_abs},         {"capitalize", change<capitalize>},
    {"e", filter_escape},        {"escape", filter_escape},
    {"float", filter_float},     {"format", filter_format},
    {"indent", filter_indent},   {"int", filter_int},
    {"lower", change<to_lower>}, {"replace", filter_replace},
    {"round", filter_round},     {"safe", filter_safe},
    {"string", filter_string},   {"title", change<title_filter>},
    {"tojson", filter_tojson},   {"trim", filter_trim},
    {"upper", change<to_upper>}, {"wordcount", filter_wordcount},
};

}  // namespace

std::span<const FilterEntry> text_filters() {
  return kTextFilters;
}

FilterFunction find_filter(std::string_view name) {
  for (const auto entries : {text_filters(), sequence_filters()}) {
    const auto found =
        std::find_if(entries.begin(), entries.end(),
                     [name](const FilterEntry& entry) { return entry.name == name; });
    if (found != entries.end()) return found->apply;
  }
  return nullptr;
}

}  // namespace qsf::jinja
