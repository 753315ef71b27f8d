// SPDX-License-Identifier: MIT
//
// A JSON document that was parsed within limits, and its text again.
//
// A plain value of our own, so that the parser's header (nlohmann-json) stays in json_value.cc.
// Objects keep the order of their members, because chat templates and grammars write tools and
// schemas in that order.

#ifndef QSF_TOOLS_SERVE_API_JSON_VALUE_H_
#define QSF_TOOLS_SERVE_API_JSON_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace qsf_tools {

class JsonValue;
struct JsonMember;
using JsonArray = std::vector<JsonValue>;
using JsonObject = std::vector<JsonMember>;

class JsonValue {
 public:
  JsonValue();  // null
  explicit JsonValue(bool value);
  explicit JsonValue(std::int64_t value);
  explicit JsonValue(double value);
  explicit JsonValue(std::string value);
  explicit JsonValue(JsonArray value);
  explicit JsonValue(JsonObject value);
  JsonValue(const JsonValue&);
  JsonValue(JsonValue&&) noexcept;
  JsonValue& operator=(const JsonValue&);
  JsonValue& operator=(JsonValue&&) noexcept;
  ~JsonValue();

  bool is_null() const noexcept { return std::holds_alternative<std::monostate>(value_); }
  // Each returns null where the value has another type.
  const bool* boolean() const noexcept { return std::get_if<bool>(&value_); }
  const std::string* text() const noexcept { return std::get_if<std::string>(&value_); }
  const JsonArray* array() const noexcept { return std::get_if<JsonArray>(&value_); }
  const JsonObject* object() const noexcept { return std::get_if<JsonObject>(&value_); }
  JsonArray* array() noexcept { return std::get_if<JsonArray>(&value_); }
  JsonObject* object() noexcept { return std::get_if<JsonObject>(&value_); }
  // A number; of 64-bit integers, the nearest double.
  std::optional<double> number() const noexcept;
  // A number without a fraction (2 and 2.0) in the range of 64 bits.
  std::optional<std::int64_t> integer() const noexcept;

  // Returns the member of that name; null without one, and for values that are no object.
  const JsonValue* member(std::string_view name) const noexcept;
  // Replaces or appends a member. Requires  an object
  void set(std::string_view name, JsonValue value);

  // "null", "a boolean", "an integer", "a number", "a string", "an array" or "an object".
  const char* type_name() const noexcept;
  // Returns the JSON text, without spaces.
  std::string to_text() const;
  void append_text(std::string& out) const;

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, JsonArray, JsonObject>
      value_;
};

struct JsonMember {
  std::string name;
  JsonValue value;
};

struct JsonLimits {
  int max_depth = 64;                   // arrays and objects in each other
  std::size_t max_values = 512 * 1024;  // 40 bytes each, beside the bytes of strings
};

// Parses a whole text. Refused: what RFC 8259 does not allow (NaN, comments, invalid UTF-8, lone
// surrogates, bytes behind the value), numbers too large for a double, an object that names a
// member twice (programs disagree on which one counts), and what exceeds the limits.
// Returns  true; false with one line in `error`, which names the byte
bool parse_json(std::string_view text, const JsonLimits& limits, JsonValue& value,
                std::string& error);

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_JSON_VALUE_H_
