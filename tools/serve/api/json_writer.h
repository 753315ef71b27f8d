// SPDX-License-Identifier: MIT
//
// Writes JSON text, member by member, in the order of the calls.

#ifndef QSF_TOOLS_SERVE_API_JSON_WRITER_H_
#define QSF_TOOLS_SERVE_API_JSON_WRITER_H_

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace qsf_tools {

// Appends `text` as a JSON string, with quotes. Invalid UTF-8 becomes U+FFFD.
void append_json_string(std::string_view text, std::string& out);
// Appends the shortest text that reads back as `number`; null where it is not finite.
void append_json_number(double number, std::string& out);
void append_json_number(float number, std::string& out);

// The caller pairs begin and end, and names each member of an object.
class JsonWriter {
 public:
  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& name(std::string_view member);

  JsonWriter& null();
  JsonWriter& text(std::string_view value);
  JsonWriter& number(double value);
  JsonWriter& number(float value);
  JsonWriter& integer(std::int64_t value);
  JsonWriter& boolean(bool value);
  // Appends text that is JSON already.
  JsonWriter& raw(std::string_view json);

  JsonWriter& member(std::string_view key, std::string_view value) { return name(key).text(value); }
  JsonWriter& member(std::string_view key, const char* value) { return name(key).text(value); }
  JsonWriter& member(std::string_view key, const std::string& value) {
    return name(key).text(value);
  }
  JsonWriter& member(std::string_view key, bool value) { return name(key).boolean(value); }
  JsonWriter& member(std::string_view key, double value) { return name(key).number(value); }
  JsonWriter& member(std::string_view key, float value) { return name(key).number(value); }
  template <std::integral Integer>
  JsonWriter& member(std::string_view key, Integer value) {
    return name(key).integer(static_cast<std::int64_t>(value));
  }
  JsonWriter& null_member(std::string_view key) { return name(key).null(); }
  JsonWriter& raw_member(std::string_view key, std::string_view json) {
    return name(key).raw(json);
  }
  // A string, or null where it is empty.
  JsonWriter& text_or_null(std::string_view key, std::string_view value) {
    return value.empty() ? null_member(key) : member(key, value);
  }

  const std::string& str() const noexcept { return out_; }
  std::string take() { return std::exchange(out_, {}); }

 private:
  void separate();

  std::string out_;
  bool needs_comma_ = false;
};

}  // namespace qsf_tools

#endif  // QSF_TOOLS_SERVE_API_JSON_WRITER_H_
