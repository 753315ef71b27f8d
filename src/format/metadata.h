// SPDX-License-Identifier: MIT
//
// Metadata: the typed key-value pairs of a .qsf file.
//
// Keys are sorted and unique, so the same pairs always give the same bytes. A value of an unknown
// type is kept as bytes. docs/format-metadata.md has the meaning of the keys; format/model_spec.h
// reads and writes them.

#ifndef QSF_FORMAT_METADATA_H_
#define QSF_FORMAT_METADATA_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/status.h"

namespace qsf {

// Part of the file format.
enum class ValueType : std::uint8_t {
  kBool = 1,  // u8, 0 or 1
  kU32 = 2,
  kU64 = 3,
  kF32 = 4,
  kText = 5,  // UTF-8, no terminator
  kU32Array = 6,
  kF32Array = 7,
};

struct MetadataEntry {
  std::string key;
  ValueType type;
  bool required = false;  // a reader that does not know the key must refuse the file
  std::vector<std::byte> value;
  friend bool operator==(const MetadataEntry&, const MetadataEntry&) = default;
};

class Metadata {
 public:
  // In ascending byte order of the keys.
  std::span<const MetadataEntry> entries() const noexcept { return entries_; }
  const MetadataEntry* find(std::string_view key) const noexcept;
  bool contains(std::string_view key) const noexcept { return find(key) != nullptr; }

  // Adds a pair or replaces the value of the key. Requires  a key of 1 to 64 bytes.
  void set_bool(std::string_view key, bool value, bool required = false);
  void set_u32(std::string_view key, std::uint32_t value, bool required = false);
  void set_u64(std::string_view key, std::uint64_t value, bool required = false);
  void set_f32(std::string_view key, float value, bool required = false);
  void set_text(std::string_view key, std::string_view value, bool required = false);
  void set_u32_array(std::string_view key, std::span<const std::uint32_t> values,
                     bool required = false);
  void set_f32_array(std::string_view key, std::span<const float> values, bool required = false);
  void set(MetadataEntry entry);
  void erase(std::string_view key);

  // Return the value of a key, or `fallback` when there is none.
  // Fails  kCorrupt when the value has another type or length
  Result<bool> get_bool(std::string_view key, bool fallback) const;
  Result<std::uint32_t> get_u32(std::string_view key, std::uint32_t fallback) const;
  Result<std::uint64_t> get_u64(std::string_view key, std::uint64_t fallback) const;
  Result<float> get_f32(std::string_view key, float fallback) const;
  Result<std::string> get_text(std::string_view key, std::string_view fallback) const;
  // Return the elements, none when there is no such key.
  Result<std::vector<std::uint32_t>> get_u32_array(std::string_view key) const;
  Result<std::vector<float>> get_f32_array(std::string_view key) const;

  // Appends the pairs in the layout of docs/format-metadata.md.
  void encode(ByteWriter& to) const;
  // Reads `n_keys` pairs.
  // Fails  kCorrupt when keys are unsorted, repeated or malformed, or a value does not fit its type
  static Result<Metadata> decode(ByteReader& from, std::uint32_t n_keys);

  friend bool operator==(const Metadata&, const Metadata&) = default;

 private:
  std::vector<MetadataEntry> entries_;
};

}  // namespace qsf

#endif  // QSF_FORMAT_METADATA_H_
