// SPDX-License-Identifier: MIT

#include "import/hf/config_fields.h"

#include <cinttypes>
#include <cmath>

namespace qsf {

std::uint32_t ConfigFields::u32(const char* key, std::uint32_t low, std::uint32_t high) {
  if (find(key) == nullptr) {
    fail(corrupt("%s: missing, expected a whole number", key));
    return low;
  }
  return u32_or(key, low, low, high);
}

std::uint32_t ConfigFields::u32_or(const char* key, std::uint32_t fallback, std::uint32_t low,
                                   std::uint32_t high) {
  const JsonValue* value = find(key);
  if (value == nullptr) return fallback;
  const auto number = value->unsigned_integer();
  if (!number || *number < low || *number > high) {
    fail(corrupt("%s: %s, expected a whole number from %" PRIu32 " to %" PRIu32, key,
                 value->shown().c_str(), low, high));
    return low;
  }
  return static_cast<std::uint32_t>(*number);
}

float ConfigFields::positive(const char* key, std::optional<float> fallback) {
  const JsonValue* value = find(key);
  if (value == nullptr) {
    if (!fallback) fail(corrupt("%s: missing, expected a number above 0", key));
    return fallback.value_or(1.0F);
  }
  const double number = value->number().value_or(0.0);
  const float narrow = static_cast<float>(number);
  if (!(narrow > 0.0F) || !std::isfinite(narrow)) {
    fail(corrupt("%s: %s, expected a number above 0", key, value->shown().c_str()));
    return 1.0F;
  }
  return narrow;
}

double ConfigFields::fraction(const char* key, double fallback) {
  const JsonValue* value = find(key);
  if (value == nullptr) return fallback;
  const double number = value->number().value_or(0.0);
  if (!(number > 0.0) || number > 1.0) {
    fail(corrupt("%s: %s, expected a number above 0 and at most 1", key, value->shown().c_str()));
    return 1.0;
  }
  return number;
}

std::vector<float> ConfigFields::numbers(const char* key, std::size_t most) {
  std::vector<float> list;
  const JsonValue* value = find(key);
  if (value == nullptr || !value->is_array() || value->size() > most) {
    fail(corrupt("%s: %s, expected a list of at most %zu numbers", key,
                 value == nullptr ? "missing" : value->shown().c_str(), most));
    return list;
  }
  for (const JsonValue& number : value->elements()) {
    if (!number.number()) {
      fail(corrupt("%s: %s in the list, expected numbers", key, number.shown().c_str()));
      return list;
    }
    list.push_back(static_cast<float>(*number.number()));
  }
  return list;
}

bool ConfigFields::boolean(const char* key, bool fallback) {
  const JsonValue* value = find(key);
  if (value == nullptr) return fallback;
  const auto flag = value->boolean();
  if (!flag) {
    fail(corrupt("%s: %s, expected true or false", key, value->shown().c_str()));
    return fallback;
  }
  return *flag;
}

std::string ConfigFields::text(const char* key, std::string_view fallback) {
  const JsonValue* value = find(key);
  if (value == nullptr) return std::string(fallback);
  const auto string = value->text();
  if (!string) {
    fail(corrupt("%s: %s, expected a string", key, value->shown().c_str()));
    return std::string(fallback);
  }
  return std::string(*string);
}

}  // namespace qsf
