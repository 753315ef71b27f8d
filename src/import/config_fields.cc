// SPDX-License-Identifier: MIT

#include "import/config_fields.h"

#include <cinttypes>
#include <cmath>

namespace qsf {

using Json = nlohmann::json;

const Json* ConfigFields::find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::uint32_t ConfigFields::u32(const char* key, std::uint32_t low, std::uint32_t high) {
  if (find(key) == nullptr) {
    fail(corrupt("%s: missing, expected a whole number", key));
    return low;
  }
  return u32_or(key, low, low, high);
}

std::uint32_t ConfigFields::u32_or(const char* key, std::uint32_t fallback, std::uint32_t low,
                                   std::uint32_t high) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_number_unsigned() || value->get<std::uint64_t>() < low ||
      value->get<std::uint64_t>() > high) {
    fail(corrupt("%s: %s, expected a whole number from %" PRIu32 " to %" PRIu32, key,
                 shown(*value).c_str(), low, high));
    return low;
  }
  return value->get<std::uint32_t>();
}

float ConfigFields::positive(const char* key, std::optional<float> fallback) {
  const Json* value = find(key);
  if (value == nullptr) {
    if (!fallback) fail(corrupt("%s: missing, expected a number above 0", key));
    return fallback.value_or(1.0F);
  }
  const double number = value->is_number() ? value->get<double>() : 0.0;
  const float narrow = static_cast<float>(number);
  if (!(narrow > 0.0F) || !std::isfinite(narrow)) {
    fail(corrupt("%s: %s, expected a number above 0", key, shown(*value).c_str()));
    return 1.0F;
  }
  return narrow;
}

double ConfigFields::fraction(const char* key, double fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  const double number = value->is_number() ? value->get<double>() : 0.0;
  if (!(number > 0.0) || number > 1.0) {
    fail(corrupt("%s: %s, expected a number above 0 and at most 1", key, shown(*value).c_str()));
    return 1.0;
  }
  return number;
}

std::vector<float> ConfigFields::numbers(const char* key, std::size_t most) {
  std::vector<float> list;
  const Json* value = find(key);
  if (value == nullptr || !value->is_array() || value->size() > most) {
    fail(corrupt("%s: %s, expected a list of at most %zu numbers", key,
                 value == nullptr ? "missing" : shown(*value).c_str(), most));
    return list;
  }
  for (const Json& number : *value) {
    if (!number.is_number()) {
      fail(corrupt("%s: %s in the list, expected numbers", key, shown(number).c_str()));
      return list;
    }
    list.push_back(static_cast<float>(number.get<double>()));
  }
  return list;
}

bool ConfigFields::boolean(const char* key, bool fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    fail(corrupt("%s: %s, expected true or false", key, shown(*value).c_str()));
    return fallback;
  }
  return value->get<bool>();
}

std::string ConfigFields::text(const char* key, std::string_view fallback) {
  const Json* value = find(key);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) {
    fail(corrupt("%s: %s, expected a string", key, shown(*value).c_str()));
    return std::string(fallback);
  }
  return value->get<std::string>();
}

std::string ConfigFields::shown(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 64) text = text.substr(0, 61) + "...";
  return text;
}

}  // namespace qsf
