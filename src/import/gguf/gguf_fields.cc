// SPDX-License-Identifier: MIT

#include "import/gguf/gguf_fields.h"

#include <cmath>
#include <utility>

namespace qsf {

template <typename T>
std::optional<T> GgufFields::take(Result<std::optional<T>> value) {
  if (value) return *value;
  fail(std::move(value).error());
  return std::nullopt;
}

std::string GgufFields::read(const char* name) {
  read_.insert(name);
  return prefix_ + name;
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
  const auto value = take(gguf_.get_unsigned(read(name)));
  if (!value) return status_.ok() ? fallback : 0;
  if (*value >= low && *value <= high) return static_cast<std::uint32_t>(*value);
  fail(corrupt("GGUF: key \"%s%s\" is %llu, expected %u to %u", prefix_.c_str(), name,
               static_cast<unsigned long long>(*value), low, high));
  return 0;
}

float GgufFields::positive(const char* name, std::optional<float> fallback) {
  const auto value = take(gguf_.get_float(read(name)));
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

float GgufFields::positive_or(const char* name, float fallback) {
  const auto value = take(gguf_.get_float(read(name)));
  return !value || *value == 0.0 ? fallback : positive(name, fallback);
}

bool GgufFields::boolean(const char* name, bool fallback) {
  return take(gguf_.get_bool(read(name))).value_or(fallback);
}

std::string GgufFields::text(const char* name, std::string_view fallback) {
  return std::string(take(gguf_.get_string(read(name))).value_or(fallback));
}

std::vector<bool> GgufFields::pattern(const char* name, std::uint32_t n, std::uint32_t period) {
  std::vector<bool> named(n, true);
  const GgufKey* key = gguf_.find_key(prefix_ + name);
  if (key == nullptr || key->type != GgufType::kArray) {
    period = u32_or(name, period, 0, 1U << 20);
    for (std::uint32_t i = 0; i < n && period != 0; ++i) named[i] = i % period < period - 1;
    return named;
  }
  const auto values = take(gguf_.get_integers(read(name)));
  if (!values) return named;
  if (values->size() != n) {
    fail(corrupt("GGUF: key \"%s%s\": %zu values, expected %u", prefix_.c_str(), name,
                 values->size(), n));
    return named;
  }
  for (std::uint32_t i = 0; i < n; ++i) named[i] = (*values)[i] != 0;
  return named;
}

bool GgufFields::is_array(const char* name) const {
  const GgufKey* key = gguf_.find_key(prefix_ + name);
  return key != nullptr && key->type == GgufType::kArray;
}

std::vector<std::uint32_t> GgufFields::u32_array(const char* name, std::uint32_t n,
                                                 std::uint32_t high) {
  std::vector<std::uint32_t> numbers(n);
  const auto values = take(gguf_.get_integers(read(name)));
  if (!values) return numbers;
  if (values->size() != n) {
    fail(corrupt("GGUF: key \"%s%s\": %zu values, expected %u", prefix_.c_str(), name,
                 values->size(), n));
    return numbers;
  }
  for (std::uint32_t i = 0; i < n; ++i) {
    if ((*values)[i] < 0 || (*values)[i] > high) {
      fail(corrupt("GGUF: key \"%s%s\": %lld at index %u, expected 0 to %u", prefix_.c_str(), name,
                   static_cast<long long>((*values)[i]), i, high));
      return std::vector<std::uint32_t>(n);
    }
    numbers[i] = static_cast<std::uint32_t>((*values)[i]);
  }
  return numbers;
}

std::vector<float> GgufFields::f32_array(const char* name, std::uint32_t n) {
  auto values = take(gguf_.get_floats(read(name)));
  if (!values) {
    fail(corrupt("GGUF: key \"%s%s\" is missing", prefix_.c_str(), name));
    return std::vector<float>(n);
  }
  if (values->size() != n) {
    fail(corrupt("GGUF: key \"%s%s\": %zu values, expected %u", prefix_.c_str(), name,
                 values->size(), n));
    return std::vector<float>(n);
  }
  return std::move(*values);
}

void GgufFields::refuse_unread(const char* name, double only) {
  const GgufKey* key = gguf_.find_key(prefix_ + name);
  if (key == nullptr || read_.contains(std::string_view(name))) return;
  std::optional<double> value;
  if (key->type == GgufType::kF32 || key->type == GgufType::kF64) {
    value = take(gguf_.get_float(key->name));
  } else if (key->type == GgufType::kBool) {
    value = take(gguf_.get_bool(key->name)).value_or(false) ? 1.0 : 0.0;
  } else if (const auto integer = take(gguf_.get_unsigned(key->name)); integer.has_value()) {
    value = static_cast<double>(*integer);
  }
  if (!value || *value == only) return;
  fail(unsupported("GGUF: key \"%s%s\" is %g, which is not supported", prefix_.c_str(), name,
                   *value));
}

}  // namespace qsf
