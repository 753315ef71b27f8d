// SPDX-License-Identifier: MIT

#include "format/metadata.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/utf8_text.h"

namespace qsf {
namespace {

constexpr std::size_t kMaxKeyBytes = 64;
constexpr std::uint8_t kRequiredFlag = 1;

template <typename T>
std::vector<std::byte> bytes_of(std::span<const T> values) {
  const auto view = std::as_bytes(values);
  return {view.begin(), view.end()};
}

template <typename T>
MetadataEntry scalar_entry(std::string_view key, ValueType type, T value, bool required) {
  return {std::string(key), type, required, bytes_of(std::span<const T>(&value, 1))};
}

Status check_text(const MetadataEntry& entry) {
  const std::size_t at = find_non_text(as_text(entry.value));
  if (at == entry.value.size()) return ok_status();
  return corrupt("metadata key \"%s\": byte %zu of its text is NUL or no UTF-8", entry.key.c_str(),
                 at);
}

// Checks that a value of a known type is one: its length fits, a text is UTF-8.
Status check_value(const MetadataEntry& entry) {
  const std::size_t n = entry.value.size();
  bool fits = true;
  switch (entry.type) {
    case ValueType::kBool: fits = n == 1 && std::to_integer<unsigned>(entry.value[0]) <= 1; break;
    case ValueType::kU32:
    case ValueType::kF32: fits = n == 4; break;
    case ValueType::kU64: fits = n == 8; break;
    case ValueType::kU32Array:
    case ValueType::kF32Array: fits = n % 4 == 0; break;
    case ValueType::kText: return check_text(entry);
  }
  if (fits) return ok_status();
  return corrupt("metadata key \"%s\": %zu bytes do not fit a value of type %u", entry.key.c_str(),
                 n, static_cast<unsigned>(entry.type));
}

bool is_key_text(std::string_view key) noexcept {
  return std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
  });
}

}  // namespace

const MetadataEntry* Metadata::find(std::string_view key) const noexcept {
  const auto at =
      std::lower_bound(entries_.begin(), entries_.end(), key,
                       [](const MetadataEntry& e, std::string_view k) { return e.key < k; });
  return at != entries_.end() && at->key == key ? &*at : nullptr;
}

void Metadata::set(MetadataEntry entry) {
  QSF_CHECK(!entry.key.empty() && entry.key.size() <= kMaxKeyBytes && is_key_text(entry.key));
  const auto at =
      std::lower_bound(entries_.begin(), entries_.end(), entry.key,
                       [](const MetadataEntry& e, const std::string& k) { return e.key < k; });
  if (at != entries_.end() && at->key == entry.key) {
    *at = std::move(entry);
  } else {
    entries_.insert(at, std::move(entry));
  }
}

void Metadata::erase(std::string_view key) {
  std::erase_if(entries_, [key](const MetadataEntry& e) { return e.key == key; });
}

void Metadata::set_bool(std::string_view key, bool value, bool required) {
  set(scalar_entry<std::uint8_t>(key, ValueType::kBool, value ? 1 : 0, required));
}
void Metadata::set_u32(std::string_view key, std::uint32_t value, bool required) {
  set(scalar_entry(key, ValueType::kU32, value, required));
}
void Metadata::set_u64(std::string_view key, std::uint64_t value, bool required) {
  set(scalar_entry(key, ValueType::kU64, value, required));
}
void Metadata::set_f32(std::string_view key, float value, bool required) {
  set(scalar_entry(key, ValueType::kF32, value, required));
}
void Metadata::set_text(std::string_view key, std::string_view value, bool required) {
  set({std::string(key), ValueType::kText, required,
       bytes_of(std::span<const char>(value.data(), value.size()))});
}
void Metadata::set_u32_array(std::string_view key, std::span<const std::uint32_t> values,
                             bool required) {
  set({std::string(key), ValueType::kU32Array, required, bytes_of(values)});
}
void Metadata::set_f32_array(std::string_view key, std::span<const float> values, bool required) {
  set({std::string(key), ValueType::kF32Array, required, bytes_of(values)});
}

namespace {

// Returns the entry of `key` if it has `type`, null when there is none.
Result<const MetadataEntry*> find_typed(const Metadata& metadata, std::string_view key,
                                        ValueType type) {
  const MetadataEntry* entry = metadata.find(key);
  if (entry == nullptr) return entry;
  if (entry->type != type) {
    return corrupt("metadata key \"%s\": value of type %u, expected %u", entry->key.c_str(),
                   static_cast<unsigned>(entry->type), static_cast<unsigned>(type));
  }
  QSF_RETURN_IF_ERROR(check_value(*entry));
  return entry;
}

template <typename T>
Result<T> get_scalar(const Metadata& metadata, std::string_view key, ValueType type, T fallback) {
  QSF_ASSIGN_OR_RETURN(const MetadataEntry* entry, find_typed(metadata, key, type));
  return entry == nullptr ? fallback : load_le<T>(entry->value, 0);
}

template <typename T>
Result<std::vector<T>> get_array(const Metadata& metadata, std::string_view key, ValueType type) {
  QSF_ASSIGN_OR_RETURN(const MetadataEntry* entry, find_typed(metadata, key, type));
  std::vector<T> values;
  if (entry == nullptr) return values;
  for (std::size_t at = 0; at < entry->value.size(); at += sizeof(T)) {
    values.push_back(load_le<T>(entry->value, at));
  }
  return values;
}

}  // namespace

Result<bool> Metadata::get_bool(std::string_view key, bool fallback) const {
  QSF_ASSIGN_OR_RETURN(const std::uint8_t value,
                       get_scalar<std::uint8_t>(*this, key, ValueType::kBool, fallback ? 1 : 0));
  return value != 0;
}
Result<std::uint32_t> Metadata::get_u32(std::string_view key, std::uint32_t fallback) const {
  return get_scalar(*this, key, ValueType::kU32, fallback);
}
Result<std::uint64_t> Metadata::get_u64(std::string_view key, std::uint64_t fallback) const {
  return get_scalar(*this, key, ValueType::kU64, fallback);
}
Result<float> Metadata::get_f32(std::string_view key, float fallback) const {
  return get_scalar(*this, key, ValueType::kF32, fallback);
}
Result<std::string> Metadata::get_text(std::string_view key, std::string_view fallback) const {
  QSF_ASSIGN_OR_RETURN(const MetadataEntry* entry, find_typed(*this, key, ValueType::kText));
  return std::string(entry == nullptr ? fallback : as_text(entry->value));
}
Result<std::vector<std::uint32_t>> Metadata::get_u32_array(std::string_view key) const {
  return get_array<std::uint32_t>(*this, key, ValueType::kU32Array);
}
Result<std::vector<float>> Metadata::get_f32_array(std::string_view key) const {
  return get_array<float>(*this, key, ValueType::kF32Array);
}

void Metadata::encode(ByteWriter& to) const {
  for (const MetadataEntry& entry : entries_) {
    to.write(static_cast<std::uint16_t>(entry.key.size()));
    to.write(static_cast<std::uint8_t>(entry.type));
    to.write(static_cast<std::uint8_t>(entry.required ? kRequiredFlag : 0));
    to.write(static_cast<std::uint32_t>(entry.value.size()));
    to.write_text(entry.key);
    to.write_bytes(entry.value);
  }
}

Result<Metadata> Metadata::decode(ByteReader& from, std::uint32_t n_keys) {
  Metadata metadata;
  for (std::uint32_t i = 0; i < n_keys; ++i) {
    const auto key_bytes = from.read<std::uint16_t>();
    const auto type = from.read<std::uint8_t>();
    const auto flags = from.read<std::uint8_t>();
    const auto value_bytes = from.read<std::uint32_t>();
    const std::string_view key = from.read_text(key_bytes);
    const ByteSpan value = from.read_bytes(value_bytes);
    if (!from.ok()) {
      return corrupt("metadata key %u of %u: passes the end of the metadata section", i, n_keys);
    }
    if (key.empty() || key.size() > kMaxKeyBytes || !is_key_text(key)) {
      return corrupt("metadata key %u: its name has %zu bytes or a character outside a-z 0-9 _ . -",
                     i, key.size());
    }
    if ((flags & ~kRequiredFlag) != 0) {
      return corrupt("metadata key \"%.*s\": flags 0x%02x, expected 0 or 1",
                     static_cast<int>(key.size()), key.data(), flags);
    }
    if (!metadata.entries_.empty() && !(metadata.entries_.back().key < key)) {
      return corrupt("metadata key \"%.*s\": follows \"%s\"; keys must be sorted and unique",
                     static_cast<int>(key.size()), key.data(),
                     metadata.entries_.back().key.c_str());
    }
    metadata.entries_.push_back({std::string(key), static_cast<ValueType>(type), flags != 0,
                                 std::vector<std::byte>(value.begin(), value.end())});
    QSF_RETURN_IF_ERROR(check_value(metadata.entries_.back()));
  }
  return metadata;
}

}  // namespace qsf
