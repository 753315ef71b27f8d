// SPDX-License-Identifier: MIT
#include "tools/serve/api/json_value.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tools/serve/api/json_writer.h"

namespace qsf_tools {

namespace {

// Receives what the parser reads, and builds values within the limits. A function that returns
// false ends the parse.
class JsonBuilder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  JsonBuilder(const JsonLimits& limits, std::string& error) : limits_(limits), error_(error) {}

  bool null() { return add(JsonValue()); }
  bool boolean(bool value) { return add(JsonValue(value)); }
  bool number_integer(number_integer_t value) {
    return add(JsonValue(static_cast<std::int64_t>(value)));
  }
  bool number_unsigned(number_unsigned_t value) {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return add(JsonValue(static_cast<double>(value)));
    }
    return add(JsonValue(static_cast<std::int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t& /*text*/) {
    if (std::isfinite(value)) return add(JsonValue(value));
    return fail("a number is too large");
  }
  bool string(string_t& value) { return add(JsonValue(std::move(value))); }
  bool binary(binary_t& /*value*/) { return fail("binary data"); }

  bool start_object(std::size_t /*n_members*/) { return open(JsonValue(JsonObject())); }
  bool start_array(std::size_t /*n_items*/) { return open(JsonValue(JsonArray())); }
  bool key(string_t& name) {
    open_.back().name = std::move(name);
    return true;
  }
  bool end_array() { return close(); }
  bool end_object() {
    const JsonObject& members = *open_.back().value.object();
    std::vector<std::string_view> names;
    names.reserve(members.size());
    for (const JsonMember& member : members) names.emplace_back(member.name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice == names.end()) return close();
    return fail("an object has two members '" + std::string(twice->substr(0, 64)) + "'");
  }

  template <typename Exception>
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/, const Exception& what) {
    const std::string_view text = what.what();
    const std::size_t end_of_code = text.find("] ");  // [json.exception.parse_error.101]
    const std::size_t begin = end_of_code == std::string_view::npos ? 0 : end_of_code + 2;
    return fail(std::string(text.substr(begin, 200)));
  }

  JsonValue take() { return std::move(root_); }

 private:
  struct Open {
    JsonValue value;
    std::string name;  // of the member that comes next
  };

  bool fail(std::string message) {
    error_ = std::move(message);
    return false;
  }

  bool count() {
    if (++n_values_ <= limits_.max_values) return true;
    return fail("more than " + std::to_string(limits_.max_values) + " values");
  }

  bool add(JsonValue value) {
    if (!count()) return false;
    place(std::move(value));
    return true;
  }

  void place(JsonValue value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (JsonArray* items = open_.back().value.array()) {
      items->push_back(std::move(value));
    } else {
      open_.back().value.object()->push_back({std::move(open_.back().name), std::move(value)});
    }
  }

  bool open(JsonValue value) {
    if (!count()) return false;
    if (open_.size() >= static_cast<std::size_t>(limits_.max_depth)) {
      return fail("arrays and objects are nested deeper than " + std::to_string(limits_.max_depth));
    }
    open_.push_back({std::move(value), {}});
    return true;
  }

  bool close() {
    JsonValue value = std::move(open_.back().value);
    open_.pop_back();
    place(std::move(value));
    return true;
  }

  const JsonLimits& limits_;
  std::string& error_;
  std::vector<Open> open_;
  JsonValue root_;
  std::size_t n_values_ = 0;
};

}  // namespace

JsonValue::JsonValue() = default;
JsonValue::JsonValue(bool value) : value_(value) {}
JsonValue::JsonValue(std::int64_t value) : value_(value) {}
JsonValue::JsonValue(double value) : value_(value) {}
JsonValue::JsonValue(std::string value) : value_(std::move(value)) {}
JsonValue::JsonValue(JsonArray value) : value_(std::move(value)) {}
JsonValue::JsonValue(JsonObject value) : value_(std::move(value)) {}
JsonValue::JsonValue(const JsonValue&) = default;
JsonValue::JsonValue(JsonValue&&) noexcept = default;
JsonValue& JsonValue::operator=(const JsonValue&) = default;
JsonValue& JsonValue::operator=(JsonValue&&) noexcept = default;
JsonValue::~JsonValue() = default;

std::optional<double> JsonValue::number() const noexcept {
  if (const double* real = std::get_if<double>(&value_)) return *real;
  if (const std::int64_t* whole = std::get_if<std::int64_t>(&value_)) {
    return static_cast<double>(*whole);
  }
  return std::nullopt;
}

std::optional<std::int64_t> JsonValue::integer() const noexcept {
  if (const std::int64_t* whole = std::get_if<std::int64_t>(&value_)) return *whole;
  const double* real = std::get_if<double>(&value_);
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  if (real == nullptr || *real < -kLimit || *real >= kLimit || std::trunc(*real) != *real) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(*real);
}

const JsonValue* JsonValue::member(std::string_view name) const noexcept {
  const JsonObject* members = object();
  if (members == nullptr) return nullptr;
  for (const JsonMember& member : *members) {
    if (member.name == name) return &member.value;
  }
  return nullptr;
}

void JsonValue::set(std::string_view name, JsonValue value) {
  JsonObject& members = *object();
  for (JsonMember& member : members) {
    if (member.name == name) {
      member.value = std::move(value);
      return;
    }
  }
  members.push_back({std::string(name), std::move(value)});
}

const char* JsonValue::type_name() const noexcept {
  static constexpr const char* kNames[] = {"null",     "a boolean", "an integer", "a number",
                                           "a string", "an array",  "an object"};
  return kNames[value_.index()];
}

std::string JsonValue::to_text() const {
  std::string text;
  append_text(text);
  return text;
}

void JsonValue::append_text(std::string& out) const {
  if (is_null()) {
    out += "null";
  } else if (const bool* truth = boolean()) {
    out += *truth ? "true" : "false";
  } else if (const std::int64_t* whole = std::get_if<std::int64_t>(&value_)) {
    out += std::to_string(*whole);
  } else if (const double* real = std::get_if<double>(&value_)) {
    const std::size_t begin = out.size();
    append_json_number(*real, out);
    // 2.0 stays a number that templates write with its fraction.
    if (out.find_first_of(".en", begin) == std::string::npos) out += ".0";
  } else if (const std::string* characters = text()) {
    append_json_string(*characters, out);
  } else if (const JsonArray* items = array()) {
    out += '[';
    for (std::size_t i = 0; i < items->size(); ++i) {
      if (i != 0) out += ',';
      (*items)[i].append_text(out);
    }
    out += ']';
  } else {
    out += '{';
    bool is_first = true;
    for (const JsonMember& member : *object()) {
      if (!is_first) out += ',';
      is_first = false;
      append_json_string(member.name, out);
      out += ':';
      member.value.append_text(out);
    }
    out += '}';
  }
}

bool parse_json(std::string_view text, const JsonLimits& limits, JsonValue& value,
                std::string& error) {
  error.clear();
  JsonBuilder builder(limits, error);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
    if (error.empty()) error = "not valid JSON";
    return false;
  }
  value = builder.take();
  return true;
}

}  // namespace qsf_tools
