// SPDX-License-Identifier: MIT

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "chat/jinja_format.h"
#include "chat/jinja_methods.h"
#include "chat/jinja_strings.h"
#include "chat/unicode_table.h"

namespace qsf::jinja {
namespace {

constexpr auto npos = std::string_view::npos;

using Args = const CallArgs&;
using Bound = std::vector<const Value*>;

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

Result<std::int64_t> int_or(const Value* value, std::int64_t fallback, const char* method) {
  if (value == nullptr) return fallback;
  const auto integer = as_int(*value);
  if (!integer) {
    return invalid_argument("%s: expected an integer, got %s", method,
                            std::string(type_name(*value)).c_str());
  }
  return *integer;
}

template <Text (*kChange)(const Text&)>
Result<Value> change(Interpreter& interpreter, const Text& self, Args args) {
  const auto bound = bind_arguments(args, "the method", {});
  if (!bound) return bound.error();
  return interpreter.heap().make_text(kChange(self));
}

template <Side kSide>
Result<Value> call_strip(Interpreter& interpreter, const Text& self, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, "strip", {"chars"}));
  QSF_ASSIGN_OR_RETURN(const Text* chars, text_or_none(bound[0], "strip"));
  return interpreter.heap().make_text(
      strip(self, kSide, chars == nullptr ? nullptr : &chars->bytes()));
}

Result<Value> make_list_of(Heap& heap, std::vector<Text> texts) {
  std::vector<Value> items;
  for (Text& text : texts) {
    QSF_ASSIGN_OR_RETURN(Value item, heap.make_text(std::move(text)));
    items.push_back(std::move(item));
  }
  return heap.make_list(ListKind::kList, std::move(items));
}

template <bool kFromRight>
Result<Value> call_split(Interpreter& interpreter, const Text& self, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, "split", {"sep", "maxsplit"}));
  QSF_ASSIGN_OR_RETURN(const Text* separator, text_or_none(bound[0], "split"));
  QSF_ASSIGN_OR_RETURN(const std::int64_t max_splits, int_or(bound[1], -1, "split"));
  if (separator != nullptr && separator->empty()) {
    return invalid_argument("split: the separator is empty");
  }
  QSF_ASSIGN_OR_RETURN(
      std::vector<Text> parts,
      split(interpreter.heap(), self, separator == nullptr ? nullptr : &separator->bytes(),
            max_splits, kFromRight));
  return make_list_of(interpreter.heap(), std::move(parts));
}

Result<Value> call_splitlines(Interpreter& interpreter, const Text& self, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, "splitlines", {"keepends"}));
  QSF_ASSIGN_OR_RETURN(
      std::vector<Text> lines,
      split_lines(interpreter.heap(), self, bound[0] != nullptr && is_true(*bound[0])));
  return make_list_of(interpreter.heap(), std::move(lines));
}

// startswith and endswith: of a string, or of one out of a tuple.
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

template <bool kAtEnd>
Result<Value> call_remove(Interpreter& interpreter, const Text& self, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, "removeprefix", {"affix"}));
  QSF_ASSIGN_OR_RETURN(const Text* affix, required_text(bound[0], "removeprefix"));
  const std::string_view bytes = self.bytes();
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  if (kAtEnd && bytes.ends_with(affix->bytes())) end -= affix->size();
  if (!kAtEnd && bytes.starts_with(affix->bytes())) begin += affix->size();
  return interpreter.heap().make_text(self.slice(begin, end));
}

Result<Value> call_replace(Interpreter& interpreter, const Text& self, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, "replace", {"old", "new", "count"}));
  QSF_ASSIGN_OR_RETURN(const Text* old_text, required_text(bound[0], "replace"));
  QSF_ASSIGN_OR_RETURN(const Text* new_text, required_text(bound[1], "replace"));
  QSF_ASSIGN_OR_RETURN(const std::int64_t count, int_or(bound[2], -1, "replace"));
  QSF_ASSIGN_OR_RETURN(Text replaced,
                       replace(interpreter.heap(), self, *old_text, *new_text, count));
  return interpreter.heap().make_text(std::move(replaced));
}

// The byte offset of the first or last occurrence, npos where there is none.
template <bool kLast>
Result<std::size_t> locate(const Text& self, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, "find", {"part"}));
  QSF_ASSIGN_OR_RETURN(const Text* part, required_text(bound[0], "find"));
  return kLast ? find_last_bytes(self.bytes(), part->bytes())
               : find_bytes(self.bytes(), part->bytes(), 0);
}

template <bool kLast, bool kMustExist>
Result<Value> call_find(Interpreter&, const Text& self, Args args) {
  QSF_ASSIGN_OR_RETURN(const std::size_t found, locate<kLast>(self, args));
  if (found != npos) {
    const std::string_view before = std::string_view(self.bytes()).substr(0, found);
    return make_int(static_cast<std::int64_t>(count_chars(before)));
  }
  if (kMustExist) return invalid_argument("index: the part is not in the string");
  return make_int(-1);
}

Result<Value> call_count(Interpreter&, const Text& self, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, "count", {"part"}));
  QSF_ASSIGN_OR_RETURN(const Text* part, required_text(bound[0], "count"));
  return make_int(count_occurrences(self.bytes(), part->bytes()));
}

template <bool kLast>
Result<Value> call_partition(Interpreter& interpreter, const Text& self, Args args) {
  Heap& heap = interpreter.heap();
  QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, "partition", {"sep"}));
  QSF_ASSIGN_OR_RETURN(const Text* separator, required_text(bound[0], "partition"));
  if (separator->empty()) return invalid_argument("partition: the separator is empty");
  const std::size_t found = kLast ? find_last_bytes(self.bytes(), separator->bytes())
                                  : find_bytes(self.bytes(), separator->bytes(), 0);
  std::size_t cuts[4] = {0, self.size(), self.size(), self.size()};
  if (found != npos) {
    cuts[1] = found;
    cuts[2] = found + separator->size();
  } else if (kLast) {
    cuts[1] = cuts[2] = 0;
  }
  std::vector<Value> parts;
  for (int i = 0; i < 3; ++i) {
    QSF_ASSIGN_OR_RETURN(Value part, heap.make_text(self.slice(cuts[i], cuts[i + 1])));
    parts.push_back(std::move(part));
  }
  return heap.make_list(ListKind::kTuple, std::move(parts));
}

Result<Value> call_join(Interpreter& interpreter, const Text& self, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, "join", {"items"}));
  if (bound[0] == nullptr) return invalid_argument("join: expected a list");
  QSF_ASSIGN_OR_RETURN(const std::vector<Value> items, interpreter.iterate(*bound[0]));
  Text joined;
  for (std::size_t i = 0; i < items.size(); ++i) {
    QSF_ASSIGN_OR_RETURN(const Text* item, required_text(&items[i], "join"));
    if (i > 0) joined.append(self);
    joined.append(*item);
    QSF_RETURN_IF_ERROR(interpreter.heap().check_bytes(joined.size()));
  }
  return interpreter.heap().make_text(std::move(joined));
}

// ljust, rjust, center and zfill.
enum class Padding : std::uint8_t { kAfter, kBefore, kAround, kZeros };

template <Padding kPadding>
Result<Value> call_pad(Interpreter& interpreter, const Text& self, Args args) {
  QSF_ASSIGN_OR_RETURN(const Bound bound, bind_arguments(args, "justify", {"width", "fill"}));
  QSF_ASSIGN_OR_RETURN(const std::int64_t width, int_or(bound[0], 0, "justify"));
  QSF_ASSIGN_OR_RETURN(const Text* fill, text_or_none(bound[1], "justify"));
  if (fill != nullptr && count_chars(fill->bytes()) != 1) {
    return invalid_argument("justify: expected one character to fill with");
  }
  const auto n_chars = static_cast<std::int64_t>(count_chars(self.bytes()));
  const std::uint64_t n_pad = width > n_chars ? static_cast<std::uint64_t>(width - n_chars) : 0;
  const std::uint64_t limit = interpreter.heap().limits().live_bytes;
  QSF_RETURN_IF_ERROR(interpreter.heap().check_bytes(std::min(n_pad, limit + 1) * 4));
  QSF_RETURN_IF_ERROR(interpreter.heap().charge(n_pad));
  const Text filler = fill != nullptr ? *fill : Text(kPadding == Padding::kZeros ? "0" : " ", true);
  std::size_t n_before = n_pad;
  if (kPadding == Padding::kAfter) n_before = 0;
  // Python puts the odd one before the text when the width is odd.
  if (kPadding == Padding::kAround)
    n_before = n_pad / 2 + (n_pad & static_cast<std::uint64_t>(width) & 1U);
  std::size_t sign = 0;
  if (kPadding == Padding::kZeros && !self.empty() &&
      (self.bytes()[0] == '-' || self.bytes()[0] == '+')) {
    sign = 1;
  }
  Text out = self.slice(0, sign);
  for (std::size_t i = 0; i < n_before; ++i) out.append(filler);
  out.append_slice(self, sign, self.size());
  for (std::size_t i = n_before; i < n_pad; ++i) out.append(filler);
  return interpreter.heap().make_text(std::move(out));
}

// Predicates over all characters of a string, which hold for no empty one. What letters and digits
// are beyond ASCII is not decided here.
enum class CharClass : std::uint8_t { kSpace, kDigit, kAlpha, kAlnum };

template <CharClass kClass>
Result<Value> call_is_class(Interpreter&, const Text& self, Args args) {
  const auto bound = bind_arguments(args, "the method", {});
  if (!bound) return bound.error();
  const std::string& bytes = self.bytes();
  for (std::size_t at = 0; at < bytes.size();) {
    const DecodedChar next = decode_char(bytes, at);
    at += next.n_bytes;
    const std::uint32_t c = next.code_point;
    if (kClass == CharClass::kSpace) {
      if (!is_space(c)) return make_bool(false);
      continue;
    }
    if (c >= 0x80) return unsupported("isdigit, isalpha and isalnum of text beyond ASCII");
    const bool digit = c >= '0' && c <= '9';
    const bool alpha = (c | 0x20U) >= 'a' && (c | 0x20U) <= 'z';
    if (!((digit && kClass != CharClass::kAlpha) || (alpha && kClass != CharClass::kDigit))) {
      return make_bool(false);
    }
  }
  return make_bool(!bytes.empty());
}

template <bool kUpper>
Result<Value> call_is_case(Interpreter& interpreter, const Text& self, Args args) {
  const auto bound = bind_arguments(args, "the method", {});
  if (!bound) return bound.error();
  QSF_ASSIGN_OR_RETURN(const Value text, interpreter.heap().make_text(self));
  QSF_ASSIGN_OR_RETURN(const bool holds,
                       interpreter.apply_test(kUpper ? "upper" : "lower", text, {}));
  return make_bool(holds);
}

// The value that a field of str.format names: a position, or nothing for the next one; or a name.
Result<const Value*> format_field(std::string_view field, Args args, std::size_t& n_used) {
  if (field.find_first_of(".[!:") != npos) {
    return unsupported("format: the field {%.40s}; only {}, {0} and {name} are supported",
                       std::string(field).c_str());
  }
  std::size_t position = field.empty() ? n_used++ : 0;
  if (field.find_first_not_of("0123456789") != npos) {
    const Value* named = args.find_keyword(field);
    if (named == nullptr) {
      return invalid_argument("format: no argument is called '%.40s'", std::string(field).c_str());
    }
    return named;
  }
  for (const char c : field.substr(0, 9)) {
    position = position * 10 + static_cast<std::size_t>(c - '0');
  }
  if (position >= args.positional.size()) {
    return invalid_argument("format: got %zu arguments, expected more", args.positional.size());
  }
  return &args.positional[position];
}

Result<Value> call_format(Interpreter& interpreter, const Text& self, Args args) {
  Heap& heap = interpreter.heap();
  const std::string_view bytes = self.bytes();
  Text out;
  std::size_t n_used = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
    out.append_slice(self, at, brace);
    if (brace == bytes.size()) break;
    at = brace + 1;
    if (at < bytes.size() && bytes[at] == bytes[brace]) {
      out.append_slice(self, brace, at);
      ++at;
      continue;
    }
    const std::size_t end = bytes[brace] == '{' ? bytes.find('}', at) : npos;
    if (end == npos) return invalid_argument("format: a single '%c'", bytes[brace]);
    QSF_ASSIGN_OR_RETURN(const Value* value,
                         format_field(bytes.substr(at, end - at), args, n_used));
    QSF_ASSIGN_OR_RETURN(const Text text, to_str(heap, *value));
    out.append(text);
    QSF_RETURN_IF_ERROR(heap.charge(1 + text.size() / 64));
    QSF_RETURN_IF_ERROR(heap.check_bytes(out.size()));
    at = end + 1;
  }
  return heap.make_text(std::move(out));
}

struct MethodEntry {
  std::string_view name;
  StringMethod call;
};

constexpr MethodEntry kMethods[] = {
    {"capitalize", change<capitalize>},
    {"center", call_pad<Padding::kAround>},
    {"count", call_count},
    {"endswith", call_affix<true>},
    {"find", call_find<false, false>},
    {"format", call_format},
    {"index", call_find<false, true>},
    {"isalnum", call_is_class<CharClass::kAlnum>},
    {"isalpha", call_is_class<CharClass::kAlpha>},
    {"isdecimal", call_is_class<CharClass::kDigit>},
    {"isdigit", call_is_class<CharClass::kDigit>},
    {"islower", call_is_case<false>},
    {"isnumeric", call_is_class<CharClass::kDigit>},
    {"isspace", call_is_class<CharClass::kSpace>},
    {"isupper", call_is_case<true>},
    {"join", call_join},
    {"ljust", call_pad<Padding::kAfter>},
    {"lower", change<to_lower>},
    {"lstrip", call_strip<Side::kLeft>},
    {"partition", call_partition<false>},
    {"removeprefix", call_remove<false>},
    {"removesuffix", call_remove<true>},
    {"replace", call_replace},
    {"rfind", call_find<true, false>},
    {"rindex", call_find<true, true>},
    {"rjust", call_pad<Padding::kBefore>},
    {"rpartition", call_partition<true>},
    {"rsplit", call_split<true>},
    {"rstrip", call_strip<Side::kRight>},
    {"split", call_split<false>},
    {"splitlines", call_splitlines},
    {"startswith", call_affix<false>},
    {"strip", call_strip<Side::kBoth>},
    {"title", change<title_words>},
    {"upper", change<to_upper>},
    {"zfill", call_pad<Padding::kZeros>},
};

}  // namespace

StringMethod find_string_method(std::string_view name) {
  const auto* found = std::find_if(std::begin(kMethods), std::end(kMethods),
                                   [name](const MethodEntry& entry) { return entry.name == name; });
  return found == std::end(kMethods) ? nullptr : found->call;
}

}  // namespace qsf::jinja
