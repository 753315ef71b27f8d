// SPDX-License-Identifier: MIT
//
// ConfigFields: typed values of the keys of one JSON object, such as config.json.
//
// The first failure is kept; later reads return harmless values. A caller therefore reads a block
// of keys and checks status() once.

#ifndef QSF_IMPORT_HF_CONFIG_FIELDS_H_
#define QSF_IMPORT_HF_CONFIG_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "import/json_document.h"

namespace qsf {

class ConfigFields {
 public:
  // Requires  `object` is an object and outlives the fields
  explicit ConfigFields(const JsonValue& object) : object_(object) {}

  const Status& status() const noexcept { return status_; }

  // Returns the value, or null when the key is absent or its value is null.
  const JsonValue* find(const char* key) const { return object_.find(key); }
  bool has(const char* key) const { return object_.contains(key); }
  // Returns whether the key is present with the value null.
  bool is_null(const char* key) const { return has(key) && find(key) == nullptr; }
  // Returns `key` when it has a value, otherwise `other`: for keys with an older name.
  const char* either(const char* key, const char* other) const {
    return find(key) != nullptr ? key : other;
  }

  std::uint32_t u32(const char* key, std::uint32_t low, std::uint32_t high);
  std::uint32_t u32_or(const char* key, std::uint32_t fallback, std::uint32_t low,
                       std::uint32_t high);
  // A number above zero. The key is required when there is no fallback.
  float positive(const char* key, std::optional<float> fallback);
  // A number above zero and at most one.
  double fraction(const char* key, double fallback);
  // A list of at most `most` numbers. The key is required.
  std::vector<float> numbers(const char* key, std::size_t most);
  bool boolean(const char* key, bool fallback);
  std::string text(const char* key, std::string_view fallback);

  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

 private:
  const JsonValue& object_;
  Status status_;
};

}  // namespace qsf

#endif  // QSF_IMPORT_HF_CONFIG_FIELDS_H_
