// SPDX-License-Identifier: MIT
//
// ConfigFields: typed values out of one JSON object of a configuration.
//
// The first failure sticks; reading goes on with harmless values, so a block of fields is read
// first and checked once.

#ifndef QSF_IMPORT_CONFIG_FIELDS_H_
#define QSF_IMPORT_CONFIG_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace qsf {

class ConfigFields {
 public:
  // Requires  `object` is an object and outlives the fields
  explicit ConfigFields(const nlohmann::json& object) : object_(object) {}

  const Status& status() const noexcept { return status_; }

  // Returns the value, or null when the key is absent or its value is null.
  const nlohmann::json* find(const char* key) const;
  bool has(const char* key) const { return object_.contains(key); }
  // Returns whether the key is there with null for its value.
  bool is_null(const char* key) const { return has(key) && find(key) == nullptr; }
  // Returns `key` when it has a value, otherwise `other`: for keys with an older name.
  const char* either(const char* key, const char* other) const {
    return find(key) != nullptr ? key : other;
  }

  std::uint32_t u32(const char* key, std::uint32_t low, std::uint32_t high);
  std::uint32_t u32_or(const char* key, std::uint32_t fallback, std::uint32_t low,
                       std::uint32_t high);
  // Numbers above zero; without a fallback the key must be there.
  float positive(const char* key, std::optional<float> fallback);
  // Numbers above zero and at most one.
  double fraction(const char* key, double fallback);
  // A list of at most `most` numbers; it must be there.
  std::vector<float> numbers(const char* key, std::size_t most);
  bool boolean(const char* key, bool fallback);
  std::string text(const char* key, std::string_view fallback);

  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  // The value as it may stand in a message: short, on one line, ASCII.
  static std::string shown(const nlohmann::json& value);

 private:
  const nlohmann::json& object_;
  Status status_;
};

}  // namespace qsf

#endif  // QSF_IMPORT_CONFIG_FIELDS_H_
