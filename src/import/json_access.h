// SPDX-License-Identifier: MIT
//
// Type-checked access to JSON of unknown shape: a member of the wrong type is absent, nothing
// throws.

#ifndef QSF_IMPORT_JSON_ACCESS_H_
#define QSF_IMPORT_JSON_ACCESS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace qsf {

using Json = nlohmann::json;

// Parses a whole document, whose outermost value must be an object. Fails  kCorrupt, naming `file`.
inline Result<Json> parse_json(std::string_view text, const char* file) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    return corrupt("%s: not a JSON object; the file is damaged", file);
  }
  return json;
}

// Returns the member of that name, or null when there is none, it is null or `json` is no object.
inline const Json* json_member(const Json& json, const char* name) noexcept {
  if (!json.is_object()) return nullptr;
  const auto at = json.find(name);
  return at == json.end() || at->is_null() ? nullptr : &*at;
}

inline const std::string* json_string(const Json& json) noexcept {
  return json.get_ptr<const Json::string_t*>();
}
inline const std::string* json_string(const Json& json, const char* name) noexcept {
  const Json* member = json_member(json, name);
  return member == nullptr ? nullptr : json_string(*member);
}

inline std::optional<bool> json_bool(const Json& json, const char* name) noexcept {
  const Json* member = json_member(json, name);
  if (member == nullptr || !member->is_boolean()) return std::nullopt;
  return *member->get_ptr<const Json::boolean_t*>();
}

// Returns a non-negative integer.
inline std::optional<std::uint64_t> json_unsigned(const Json& json) noexcept {
  if (!json.is_number_unsigned()) return std::nullopt;
  return *json.get_ptr<const Json::number_unsigned_t*>();
}
inline std::optional<std::uint64_t> json_unsigned(const Json& json, const char* name) noexcept {
  const Json* member = json_member(json, name);
  return member == nullptr ? std::nullopt : json_unsigned(*member);
}

}  // namespace qsf

#endif  // QSF_IMPORT_JSON_ACCESS_H_
