// SPDX-License-Identifier: MIT

#include "chat/jinja_format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/float_text.h"

namespace qsf::jinja {
namespace {

std::string hex_escape(char kind, int n_digits, std::uint32_t value) {
  char buffer[16];
  std::snprintf(buffer, sizeof buffer, "\\%c%0*x", kind, n_digits, value);
  return buffer;
}

// The escape of an ASCII character in repr, empty where it stands for itself.
std::string repr_escape(std::uint32_t c, char quote) {
  if (c == '\\') return "\\\\";
  if (c == static_cast<unsigned char>(quote)) return std::string("\\") + quote;
  if (c == '\n') return "\\n";
  if (c == '\r') return "\\r";
  if (c == '\t') return "\\t";
  return c < 0x20 || c == 0x7F ? hex_escape('x', 2, c) : std::string();
}

std::string json_escape(std::uint32_t c, bool ensure_ascii) {
  switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    case '\f': return "\\f";
    case '\b': return "\\b";
    case kNoCodePoint: return {};
    default: break;
  }
  if (c < 0x20) return hex_escape('u', 4, c);
  if (!ensure_ascii || c < 0x7F) return {};
  if (c < 0x10000) return hex_escape('u', 4, c);
  return hex_escape('u', 4, 0xD7C0 + (c >> 10U)) + hex_escape('u', 4, 0xDC00 + (c & 0x3FFU));
}

Status check_size(const Heap& heap, const Text& out) {
  return heap.check_bytes(out.size());
}

// Appends `text`; replaces each character for which `escape` returns a non-empty string.
template <typename Escape>
Status append_escaped(const Heap& heap, const Text& text, Escape escape, Text& out) {
  const std::string& bytes = text.bytes();
  std::size_t plain = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const DecodedChar next = decode_char(bytes, at);
    const std::string replacement = escape(next.code_point);
    if (!replacement.empty()) {
      out.append_slice(text, plain, at);
      out.append(replacement, text.trusted_at(at));
      QSF_RETURN_IF_ERROR(check_size(heap, out));
      plain = at + next.n_bytes;
    }
    at += next.n_bytes;
  }
  out.append_slice(text, plain, bytes.size());
  return ok_status();
}

Status append_repr(Heap& heap, const Value& value, Text& out);

// The text of none, a bool or a number; nothing for other values.
std::optional<std::string> scalar_text(const Value& value) {
  if (value.is_none()) return "None";
  if (const bool* flag = value.get<bool>()) return *flag ? "True" : "False";
  if (const auto* integer = value.get<std::int64_t>()) return std::to_string(*integer);
  if (const auto* integer = value.get<LongInt>()) return *integer->digits;
  if (const double* number = value.get<double>()) return format_float(*number);
  return std::nullopt;
}

Status append_list_repr(Heap& heap, const List& list, Text& out) {
  if (list.kind != ListKind::kList && list.kind != ListKind::kTuple) {
    return unsupported("a %s cannot be printed; convert it with the filter list",
                       list.kind == ListKind::kRange  ? "range"
                       : list.kind == ListKind::kView ? "dict view"
                                                      : "generator");
  }
  const bool is_tuple = list.kind == ListKind::kTuple;
  out.append(is_tuple ? "(" : "[", true);
  bool is_first = true;
  for (const Value& item : list.items) {
    if (!is_first) out.append(", ", true);
    is_first = false;
    QSF_RETURN_IF_ERROR(append_repr(heap, item, out));
  }
  if (is_tuple && list.items.size() == 1) out.append(",", true);
  out.append(is_tuple ? ")" : "]", true);
  return ok_status();
}

Status append_repr(Heap& heap, const Value& value, Text& out) {
  QSF_RETURN_IF_ERROR(check_size(heap, out));
  if (const auto scalar = scalar_text(value)) {
    out.append(*scalar, true);
    return ok_status();
  }
  if (value.is_undefined()) {
    out.append("Undefined", true);
    return ok_status();
  }
  if (const Text* text = as_text(value)) {
    const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
    if (!std::all_of(text->bytes().begin(), text->bytes().end(), is_ascii)) {
      return unsupported("printing a list or dict with text beyond ASCII; use the filter tojson");
    }
    const bool use_double = text->bytes().find('\'') != std::string::npos &&
                            text->bytes().find('"') == std::string::npos;
    const char quote = use_double ? '"' : '\'';
    out.append(std::string_view(&quote, 1), true);
    QSF_RETURN_IF_ERROR(append_escaped(
        heap, *text, [quote](std::uint32_t c) { return repr_escape(c, quote); }, out));
    out.append(std::string_view(&quote, 1), true);
    return ok_status();
  }
  if (const List* list = as_list(value)) return append_list_repr(heap, *list, out);
  if (const Dict* dict = as_dict(value)) {
    out.append("{", true);
    bool is_first = true;
    for (const DictEntry& entry : dict->entries) {
      if (!is_first) out.append(", ", true);
      is_first = false;
      QSF_RETURN_IF_ERROR(append_repr(heap, entry.key, out));
      out.append(": ", true);
      QSF_RETURN_IF_ERROR(append_repr(heap, entry.value, out));
    }
    out.append("}", true);
    return ok_status();
  }
  return unsupported("a %s cannot be printed", std::string(type_name(value)).c_str());
}

class JsonWriter {
 public:
  JsonWriter(Heap& heap, const JsonOptions& options) : heap_(heap), options_(options) {}

  Status write(const Value& value, int level) {
    QSF_RETURN_IF_ERROR(check_size(heap_, out_));
    if (const Text* text = as_text(value)) {
      return write_string(*text);
    } else if (const List* list = as_list(value);
               list != nullptr &&
               (list->kind == ListKind::kList || list->kind == ListKind::kTuple)) {
      return write_list(*list, level);
    } else if (const Dict* dict = as_dict(value)) {
      return write_dict(*dict, level);
    } else if (const auto scalar = json_scalar(value)) {
      out_.append(*scalar, true);
    } else {
      return invalid_argument("tojson: a value of type %s cannot be written as JSON",
                              std::string(type_name(value)).c_str());
    }
    return ok_status();
  }

  Text take() { return std::move(out_); }

 private:
  static std::optional<std::string> json_scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (const bool* flag = value.get<bool>()) return *flag ? "true" : "false";
    if (const double* number = value.get<double>()) {
      if (std::isnan(*number)) return "NaN";
      if (std::isinf(*number)) return *number > 0 ? "Infinity" : "-Infinity";
    }
    return scalar_text(value);
  }

  Status write_string(const Text& text) {
    out_.append("\"", true);
    const bool ensure_ascii = options_.ensure_ascii;
    QSF_RETURN_IF_ERROR(append_escaped(
        heap_, text, [ensure_ascii](std::uint32_t c) { return json_escape(c, ensure_ascii); },
        out_));
    out_.append("\"", true);
    return ok_status();
  }

  void write_line(int level) {
    if (!options_.indent) return;
    out_.append("\n", true);
    for (int i = 0; i < level; ++i) out_.append(*options_.indent);
  }

  Status write_list(const List& list, int level) {
    out_.append("[", true);
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.append(options_.item_separator);
      write_line(level + 1);
      QSF_RETURN_IF_ERROR(write(list.items[i], level + 1));
    }
    if (!list.items.empty()) write_line(level);
    out_.append("]", true);
    return ok_status();
  }

  Status write_dict(const Dict& dict, int level) {
    out_.append("{", true);
    bool is_first = true;
    for (const DictEntry& entry : dict.entries) {
      if (!is_first) out_.append(options_.item_separator);
      is_first = false;
      write_line(level + 1);
      if (const Text* key = as_text(entry.key)) {
        QSF_RETURN_IF_ERROR(write_string(*key));
      } else {
        const auto key_text = json_scalar(entry.key);
        out_.append("\"" + key_text.value_or("") + "\"", true);
      }
      out_.append(options_.key_separator);
      QSF_RETURN_IF_ERROR(write(entry.value, level + 1));
    }
    if (!dict.entries.empty()) write_line(level);
    out_.append("}", true);
    return ok_status();
  }

  Heap& heap_;
  const JsonOptions& options_;
  Text out_;
};

}  // namespace

std::string format_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto end = double_to_scientific(buffer, buffer + sizeof buffer, value).ptr;
  std::string text(buffer, end);
  const std::size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16) return text;
  std::string digits = text.substr(0, e);
  const bool is_negative = digits[0] == '-';
  if (is_negative) digits.erase(0, 1);
  std::erase(digits, '.');
  if (exponent < 0) {
    digits = "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  } else {
    const auto n_integer = static_cast<std::size_t>(exponent) + 1;
    if (digits.size() <= n_integer) digits.resize(n_integer + 1, '0');
    digits.insert(n_integer, ".");
  }
  return is_negative ? "-" + digits : digits;
}

Result<Text> to_str(Heap& heap, const Value& value) {
  if (const Text* text = as_text(value)) return *text;
  if (value.is_undefined()) return Text();
  return to_repr(heap, value);
}

Result<Text> to_repr(Heap& heap, const Value& value) {
  QSF_RETURN_IF_ERROR(heap.charge(extent_of(value).cost));
  Text out;
  QSF_RETURN_IF_ERROR(append_repr(heap, value, out));
  return out;
}

Result<Text> to_json(Heap& heap, const Value& value, const JsonOptions& options) {
  QSF_RETURN_IF_ERROR(heap.charge(extent_of(value).cost));
  JsonWriter writer(heap, options);
  QSF_RETURN_IF_ERROR(writer.write(value, 0));
  return writer.take();
}

}  // namespace qsf::jinja
