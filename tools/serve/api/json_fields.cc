// SPDX-License-Identifier: MIT
#include "tools/serve/api/json_fields.h"

#include "tools/serve/api/api_error.h"
#include "tools/serve/api/json_writer.h"

namespace qsf_tools {

namespace {

// Returns the value as an error shows it: short ones as they are, others by their type.
std::string shown(const JsonValue& value) {
  constexpr std::size_t kMaxBytes = 40;
  if (value.array() != nullptr || value.object() != nullptr) return value.type_name();
  std::string text = value.to_text();
  return text.size() <= kMaxBytes ? text : value.type_name();
}

std::string limit_text(double limit) {
  std::string text;
  append_json_number(limit, text);
  return text;
}

bool is_neutral(const JsonValue& value, unsigned neutral) {
  if (const bool* truth = value.boolean()) {
    return (neutral & (*truth ? kNeutralTrue : kNeutralFalse)) != 0;
  }
  if (const std::optional<double> number = value.number()) {
    return (*number == 0 && (neutral & kNeutralZero) != 0) ||
           (*number == 1 && (neutral & kNeutralOne) != 0);
  }
  const bool is_empty = (value.text() != nullptr && value.text()->empty()) ||
                        (value.array() != nullptr && value.array()->empty()) ||
                        (value.object() != nullptr && value.object()->empty());
  return is_empty && (neutral & kNeutralEmpty) != 0;
}

}  // namespace

FieldReader::FieldReader(const JsonValue& object, std::string path, FieldReport& report)
    : object_(&object), path_(std::move(path)), report_(&report) {
  if (object.object() != nullptr) is_read_.resize(object.object()->size());
}

const JsonValue* FieldReader::find(std::string_view field) {
  const JsonObject* members = object_->object();
  if (members == nullptr) return nullptr;
  for (std::size_t i = 0; i < members->size(); ++i) {
    const JsonMember& member = (*members)[i];
    if (member.name != field) continue;
    is_read_[i] = true;
    return member.value.is_null() ? nullptr : &member.value;
  }
  return nullptr;
}

void FieldReader::read(std::string_view field, bool& value) {
  const JsonValue* found = find(field);
  if (found == nullptr) return;
  const bool* truth = found->boolean();
  if (truth == nullptr) return fail_type(field, *found, "a boolean");
  value = *truth;
}

void FieldReader::read(std::string_view field, int& value, int min, int max) {
  const JsonValue* found = find(field);
  if (found == nullptr) return;
  const std::optional<std::int64_t> number = found->integer();
  if (!number) return fail_type(field, *found, "an integer");
  if (*number < min || *number > max) {
    return fail(field, "'" + full_name(field) + "' is " + std::to_string(*number) +
                           ", expected an integer from " + std::to_string(min) + " to " +
                           std::to_string(max));
  }
  value = static_cast<int>(*number);
}

void FieldReader::read(std::string_view field, float& value, NumberRange range) {
  const JsonValue* found = find(field);
  if (found == nullptr) return;
  const std::optional<double> number = found->number();
  if (!number) return fail_type(field, *found, "a number");
  const bool is_below = range.above_min ? *number <= range.min : *number < range.min;
  if (is_below || *number > range.max) {
    return fail(field, "'" + full_name(field) + "' is " + shown(*found) + ", expected a number " +
                           (range.above_min ? "above " : "from ") + limit_text(range.min) + " to " +
                           limit_text(range.max));
  }
  value = static_cast<float>(*number);
}

void FieldReader::read(std::string_view field, std::string& value) {
  std::optional<std::string> text;
  read_text(field, text);
  if (text) value = std::move(*text);
}

void FieldReader::read_text(std::string_view field, std::optional<std::string>& value) {
  const JsonValue* found = find(field);
  if (found == nullptr) return;
  if (found->text() == nullptr) return fail_type(field, *found, "a string");
  value = *found->text();
}

void FieldReader::read_seed(std::string_view field, std::optional<std::uint64_t>& value) {
  const JsonValue* found = find(field);
  if (found == nullptr) return;
  const std::optional<std::int64_t> number = found->integer();
  if (!number) return fail_type(field, *found, "an integer of 64 bits");
  value = static_cast<std::uint64_t>(*number);
}

void FieldReader::read_texts(std::string_view field, std::size_t max,
                             std::vector<std::string>& values) {
  const JsonValue* found = find(field);
  if (found == nullptr) return;
  if (const std::string* text = found->text()) {
    values.assign(1, *text);
    return;
  }
  const JsonArray* items = found->array();
  if (items == nullptr) return fail_type(field, *found, "a string or an array of strings");
  if (items->size() > max) {
    return fail(field, "'" + full_name(field) + "' has " + std::to_string(items->size()) +
                           " entries, expected at most " + std::to_string(max));
  }
  values.clear();
  for (const JsonValue& item : *items) {
    if (item.text() == nullptr) return fail_type(field, item, "an array of strings");
    values.push_back(*item.text());
  }
}

void FieldReader::read_word(std::string_view field, std::initializer_list<std::string_view> words,
                            std::size_t& word) {
  const JsonValue* found = find(field);
  if (found == nullptr) return;
  std::string expected;
  std::size_t index = 0;
  for (const std::string_view candidate : words) {
    if (found->text() != nullptr && *found->text() == candidate) {
      word = index;
      return;
    }
    if (index != 0) expected += index + 1 == words.size() ? " or " : ", ";
    expected += "'" + std::string(candidate) + "'";
    ++index;
  }
  fail_type(field, *found, expected);
}

const JsonArray* FieldReader::read_array(std::string_view field) {
  const JsonValue* found = find(field);
  if (found == nullptr) return nullptr;
  if (found->array() == nullptr) fail_type(field, *found, "an array");
  return found->array();
}

const JsonValue* FieldReader::read_object(std::string_view field) {
  const JsonValue* found = find(field);
  if (found == nullptr) return nullptr;
  if (found->object() != nullptr) return found;
  fail_type(field, *found, "an object");
  return nullptr;
}

void FieldReader::not_built(std::string_view field, unsigned neutral, std::string_view reason) {
  const JsonValue* found = find(field);
  if (found == nullptr || is_neutral(*found, neutral)) return;
  std::string message = "'" + full_name(field) + "' is not supported";
  if (!reason.empty()) message += ": " + std::string(reason);
  fail(field, std::move(message), "unsupported_parameter");
}

void FieldReader::accept(std::initializer_list<std::string_view> fields) {
  for (const std::string_view field : fields) find(field);
}

void FieldReader::finish(bool strict) {
  for (std::size_t i = 0; i < is_read_.size(); ++i) {
    if (is_read_[i]) continue;
    const std::string& field = (*object_->object())[i].name;
    if (strict) {
      fail(field, "Unknown parameter: '" + full_name(field) + "'.", "unknown_parameter");
    } else {
      report_->ignored.push_back(full_name(field));
    }
  }
}

void FieldReader::fail(std::string_view field, std::string message, std::string code) {
  if (report_->error) return;
  report_->error = invalid_field(full_name(field), std::move(message), std::move(code));
}

std::string FieldReader::full_name(std::string_view field) const {
  return path_.empty() ? std::string(field) : path_ + "." + std::string(field);
}

void FieldReader::fail_type(std::string_view field, const JsonValue& got,
                            std::string_view expected) {
  fail(field,
       "'" + full_name(field) + "' is " + shown(got) + ", expected " + std::string(expected));
}

std::optional<JsonValue> parse_body(std::string_view body, FieldReport& report) {
  JsonValue value;
  std::string error;
  if (!parse_json(body, JsonLimits(), value, error)) {
    report.error = invalid_field("", "the body is not valid JSON: " + error);
    return std::nullopt;
  }
  if (value.object() == nullptr) {
    report.error = invalid_field(
        "", "the body is " + std::string(value.type_name()) + ", expected a JSON object");
    return std::nullopt;
  }
  return value;
}

}  // namespace qsf_tools
