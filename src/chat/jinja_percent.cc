// SPDX-License-Identifier: MIT
//
// Python's `format % values`, with the conversions s, r, d, i, f, x and %.

#include <array>
#include <cmath>
#include <cstdio>
#include <string>

#include "chat/jinja_format.h"
#include "chat/jinja_operators.h"

namespace qsf::jinja {
namespace {

struct Conversion {
  bool is_left = false;
  bool is_zero_padded = false;
  std::size_t width = 0;
  int precision = -1;
  char kind = 's';
};

// Nothing that a prompt needs is wider.
constexpr std::size_t kMaxWidth = 1000;

// Reads a conversion from behind its '%', to behind its letter.
Result<Conversion> parse_conversion(std::string_view format, std::size_t& at) {
  Conversion conversion;
  const auto digit = [&] { return at < format.size() && format[at] >= '0' && format[at] <= '9'; };
  const auto number = [&] {
    std::size_t value = 0;
    for (; digit() && value <= kMaxWidth; ++at) {
      value = value * 10 + static_cast<std::size_t>(format[at] - '0');
    }
    return value;
  };
  for (; at < format.size() && (format[at] == '-' || format[at] == '0'); ++at) {
    (format[at] == '-' ? conversion.is_left : conversion.is_zero_padded) = true;
  }
  conversion.width = number();
  if (at < format.size() && format[at] == '.') {
    ++at;
    conversion.precision = static_cast<int>(number());
  }
  if (conversion.width > kMaxWidth || conversion.precision > static_cast<int>(kMaxWidth)) {
    return unsupported("'%%' of a string: a width past %zu", kMaxWidth);
  }
  if (at >= format.size()) return invalid_argument("'%%' of a string: the format ends in '%%'");
  conversion.kind = format[at++];
  return conversion;
}

Result<Text> convert_number(const Conversion& conversion, const Value& value) {
  const auto number = as_number(value);
  if (!number) {
    return invalid_argument("'%%%c' of a string takes a number, got %s", conversion.kind,
                            std::string(type_name(value)).c_str());
  }
  // 309 digits before the point, those behind it, sign and point.
  std::array<char, 309 + kMaxWidth + 8> buffer;
  if (conversion.kind == 'f') {
    const int precision = conversion.precision < 0 ? 6 : conversion.precision;
    std::snprintf(buffer.data(), buffer.size(), "%.*f", precision, *number);
    return Text(buffer.data(), true);
  }
  if (!(std::abs(*number) < 9.2e18)) return unsupported("'%%' of a string: a number past 64 bits");
  const auto integer = as_int(value);
  const auto shown =
      static_cast<long long>(integer ? *integer : static_cast<std::int64_t>(*number));
  if (conversion.kind == 'x') {
    if (!integer) return invalid_argument("'%%x' of a string takes an integer, got float");
    std::snprintf(buffer.data(), buffer.size(), "%s%llx", shown < 0 ? "-" : "",
                  shown < 0 ? 0ULL - static_cast<unsigned long long>(shown)
                            : static_cast<unsigned long long>(shown));
  } else {
    std::snprintf(buffer.data(), buffer.size(), "%lld", shown);
  }
  return Text(buffer.data(), true);
}

Result<Text> convert(Heap& heap, const Conversion& conversion, const Value& value) {
  switch (conversion.kind) {
    case 's':
    case 'r': {
      QSF_ASSIGN_OR_RETURN(Text text,
                           conversion.kind == 's' ? to_str(heap, value) : to_repr(heap, value));
      if (conversion.precision < 0) return text;
      const auto kept = static_cast<std::size_t>(conversion.precision);
      return text.slice(0, char_offset(text.bytes(), kept));
    }
    case 'd':
    case 'i':
    case 'f':
    case 'x': return convert_number(conversion, value);
    default: return unsupported("'%%' of a string: the conversion '%c'", conversion.kind);
  }
}

void append_padded(const Conversion& conversion, const Text& text, Text& out) {
  const std::size_t n_chars = count_chars(text.bytes());
  const std::size_t n_pad = conversion.width > n_chars ? conversion.width - n_chars : 0;
  const bool is_number = conversion.kind != 's' && conversion.kind != 'r';
  if (n_pad > 0 && conversion.is_zero_padded && is_number && !conversion.is_left) {
    const std::size_t sign = text.bytes()[0] == '-' ? 1 : 0;
    out.append_slice(text, 0, sign);
    out.append(std::string(n_pad, '0'), true);
    out.append_slice(text, sign, text.size());
    return;
  }
  if (!conversion.is_left) out.append(std::string(n_pad, ' '), true);
  out.append(text);
  if (conversion.is_left) out.append(std::string(n_pad, ' '), true);
}

}  // namespace

Result<Value> format_percent(Heap& heap, const Text& format, const Value& value) {
  QSF_RETURN_IF_ERROR(heap.charge(1 + format.size() / 16));
  const List* list = as_list(value);
  const bool is_tuple = list != nullptr && list->kind == ListKind::kTuple;
  const std::size_t n_values = is_tuple ? list->items.size() : 1;
  std::size_t n_used = 0;
  const std::string& bytes = format.bytes();
  Text out;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t percent = bytes.find('%', at);
    if (percent == std::string::npos) {
      out.append_slice(format, at, bytes.size());
      break;
    }
    out.append_slice(format, at, percent);
    at = percent + 1;
    if (at < bytes.size() && bytes[at] == '(') {
      return unsupported("'%%' of a string with names: only positions are supported");
    }
    QSF_ASSIGN_OR_RETURN(const Conversion conversion, parse_conversion(bytes, at));
    if (conversion.kind == '%') {
      out.append_slice(format, percent, percent + 1);
      continue;
    }
    if (n_used == n_values) {
      return invalid_argument("'%%' of a string: got %zu values, expected more", n_values);
    }
    const Value& next = is_tuple ? list->items[n_used] : value;
    ++n_used;
    QSF_ASSIGN_OR_RETURN(const Text converted, convert(heap, conversion, next));
    QSF_RETURN_IF_ERROR(heap.charge(1 + converted.size() / 64));
    append_padded(conversion, converted, out);
    QSF_RETURN_IF_ERROR(heap.check_bytes(out.size()));
  }
  // A single value that has items may go unused, as in Python.
  const bool has_items =
      as_dict(value) != nullptr ||
      (list != nullptr && list->kind != ListKind::kView && list->kind != ListKind::kIterator);
  if (n_used < n_values && (is_tuple || !has_items)) {
    return invalid_argument("'%%' of a string: got %zu values, expected %zu", n_values, n_used);
  }
  return heap.make_text(std::move(out));
}

}  // namespace qsf::jinja
