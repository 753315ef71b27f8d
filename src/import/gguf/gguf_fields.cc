// SPDX-License-Identifier: MIT

#include "import/gguf/gguf_fields.h"

#include <cmath>
#include <limits>
#include <utility>

namespace qsf {

template <typename T>
std::optional<T> GgufFields::take(Result<std::optional<T>> value) {
  if (value) return *value;
  fail(std::move(value).error());
  return std::nullopt;
}

std::uint32_t GgufFields::u32(const char* name, std::uint32_t low, std::uint32_t high) {
  if (!has(name)) {
    fail(corrupt("GGUF: key \"%s%s\" is missing", prefix_.c_str(), name));
    return 0;
  }
  return u32_or(name, low, low, high);
}

std::uint32_t GgufFields::u32_or(const char* name, std::uint32_t fallback, std::uint32_t low,
                                 std::uint32_t high) {
  const auto value = take(gguf_.get_unsigned(prefix_ + name));
  if (!value) return status_.ok() ? fallback : 0;
  if (*value >= low && *value <= high) return static_cast<std::uint32_t>(*value);
  fail(corrupt("GGUF: key \"%s%s\" is %llu, expected %u to %u", prefix_.c_str(), name,
               static_cast<unsigned long long>(*value), low, high));
  return 0;
}

float GgufFields::positive(const char* name, std::optional<float> fallback) {
  const auto value = take(gguf_.get_float(prefix_ + name));
  if (!value) {
    if (!fallback) fail(corrupt("GGUF: key \"%s%s\" is missing", prefix_.c_str(), name));
    return fallback.value_or(1.0F);
  }
  const auto number = static_cast<float>(*value);
  if (std::isfinite(number) && number > 0.0F) return number;
  fail(corrupt("GGUF: key \"%s%s\" is %g, expected a finite number above 0", prefix_.c_str(), name,
               *value));
  return 1.0F;
}

bool GgufFields::boolean(const char* name, bool fallback) {
  return take(gguf_.get_bool(prefix_ + name)).value_or(fallback);
}

std::string GgufFields::text(const char* name, std::string_view fallback) {
  return std::string(take(gguf_.get_string(prefix_ + name)).value_or(fallback));
}

void GgufFields::refuse_unless(const char* name, double only) {
  const GgufKey* key = gguf_.find_key(prefix_ + name);
  if (key == nullptr) return;
  std::optional<double> value;
  if (key->type == GgufType::kF32 || key->type == GgufType::kF64) {
    value = take(gguf_.get_float(prefix_ + name));
  } else if (key->type == GgufType::kBool) {
    value = take(gguf_.get_bool(prefix_ + name)).value_or(false) ? 1.0 : 0.0;
  } else if (const auto integer = take(gguf_.get_unsigned(prefix_ + name)); integer.has_value()) {
    value = static_cast<double>(*integer);
  }
  if (!value || *value == only) return;
  fail(unsupported("GGUF: key \"%s%s\" is %g, which this version does not run", prefix_.c_str(),
                   name, *value));
}

}  // namespace qsf
