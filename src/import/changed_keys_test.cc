// SPDX-License-Identifier: MIT
//
// The configurations of all golden models, each key in turn changed, renamed or left out: of HF
// folders, of GGUF files, and of the metadata that .qsf files have of them. What is accepted is a
// specification that the writer takes; everything else is a Status.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "format/metadata.h"
#include "format/model_spec.h"
#include "format/qsf_layout.h"
#include "import/gguf/gguf_model.h"
#include "import/hf/hf_config.h"
#include "io/testing/faulty_file.h"

namespace qsf {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

// What lies in two folders of testdata, in order of the names.
std::vector<std::filesystem::path> sorted_paths(const char* folder, const char* other) {
  std::vector<std::filesystem::path> paths;
  for (const char* part : {folder, other}) {
    const std::filesystem::path root = std::string(QSF_SOURCE_DIR) + "/testdata/" + part;
    for (const auto& each : std::filesystem::directory_iterator(root)) paths.push_back(each.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The configurations of golden folders that have one.
std::vector<std::pair<std::string, Json>> golden_configs() {
  std::vector<std::pair<std::string, Json>> configs;
  for (const auto& folder : sorted_paths("golden", "embedding")) {
    const std::string text = content_of(folder / "config.json");
    if (!text.empty()) configs.emplace_back(folder.filename().string(), Json::parse(text));
  }
  EXPECT_GE(configs.size(), 80U);
  return configs;
}

// Returns whether it was accepted.
bool expect_config_or_status(const Json& config) {
  const auto parsed = parse_hf_config({config.dump(), "", "", "", ""});
  if (!parsed) {
    EXPECT_THAT(parsed.error().message(), StartsWith("config.json")) << config.dump();
    return false;
  }
  EXPECT_TRUE(validate(parsed->spec).ok()) << config.dump();
  return true;
}

// Changes every value below `part`, which is within `whole`.
void change_each(const Json& whole, Json& part) {
  static const std::vector<Json> kValues = {nullptr,
                                            true,
                                            false,
                                            -1,
                                            0,
                                            1,
                                            3,
                                            0.5,
                                            1e300,
                                            4294967295U,
                                            "text",
                                            "",
                                            Json::array(),
                                            Json::object(),
                                            Json::array({1, "x"}),
                                            Json::array({-1, 0, 65536})};
  for (auto& [key, value] : part.items()) {
    const Json kept = value;
    for (const Json& changed : kValues) {
      value = changed;
      expect_config_or_status(whole);
    }
    value = kept;
    if (value.is_object()) change_each(whole, value);
    if (value.is_array() && !value.empty()) {
      for (const Json& changed : kValues) {
        value.back() = changed;
        expect_config_or_status(whole);
      }
      value = kept;
      value.push_back(kept.back());
      expect_config_or_status(whole);
      value = kept;
    }
  }
}

TEST(ChangedKeysTest, ConfigurationsOfFolders) {
  for (auto& [name, config] : golden_configs()) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(expect_config_or_status(config));
    change_each(config, config);
    const Json whole = config;
    for (const auto& [key, value] : whole.items()) {
      Json less = config;
      less.erase(key);
      expect_config_or_status(less);
      less[key + "x"] = value;
      expect_config_or_status(less);
    }
    if (HasFailure()) return;
  }
}

bool expect_spec_or_status(ByteSpan header, const Metadata& metadata) {
  const auto spec = decode_spec(header, metadata);
  if (!spec) {
    EXPECT_FALSE(spec.error().message().empty());
    return false;
  }
  EXPECT_TRUE(validate(*spec).ok());
  return true;
}

std::vector<std::byte> bytes_of(std::uint64_t value, std::size_t n) {
  std::vector<std::byte> bytes(n);
  std::memcpy(bytes.data(), &value, std::min(n, sizeof value));
  return bytes;
}

void change_entry(ByteSpan header, const Metadata& metadata, const MetadataEntry& entry) {
  Metadata changed = metadata;
  for (const std::uint64_t value :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{3}, std::uint64_t{0x7F800000},
        std::uint64_t{0xBF800000}, std::uint64_t{0xFFFFFFFF}, ~std::uint64_t{0}}) {
    MetadataEntry other = entry;
    const std::size_t n = std::min(entry.value.size(), sizeof value);
    std::memcpy(other.value.data(), &value, n);
    if (entry.type == ValueType::kBool) other.value[0] &= std::byte{1};
    changed.set(other);
    expect_spec_or_status(header, changed);
    // Of another type, and of another length.
    changed.set_u32(entry.key, static_cast<std::uint32_t>(value));
    expect_spec_or_status(header, changed);
    other.value = bytes_of(value, 12);
    other.type = ValueType::kU32Array;
    changed.set(other);
    expect_spec_or_status(header, changed);
    other.type = ValueType::kF32Array;
    changed.set(other);
    expect_spec_or_status(header, changed);
  }
  changed.set_text(entry.key, "text");
  expect_spec_or_status(header, changed);
  changed.erase(entry.key);
  expect_spec_or_status(header, changed);
  MetadataEntry renamed = entry;
  renamed.key.back() = renamed.key.back() == 'x' ? 'y' : 'x';
  changed.set(renamed);
  expect_spec_or_status(header, changed);
  renamed.required = true;
  changed = metadata;
  changed.set(renamed);
  EXPECT_FALSE(metadata.contains(renamed.key) || expect_spec_or_status(header, changed))
      << renamed.key;
}

TEST(ChangedKeysTest, MetadataOfFiles) {
  for (const auto& [name, config] : golden_configs()) {
    SCOPED_TRACE(name);
    const auto parsed = parse_hf_config({config.dump(), "", "", "", ""});
    ASSERT_TRUE(parsed);
    std::vector<std::byte> header(kHeaderBytes);
    encode_spec_header(parsed->spec, header);
    const Metadata metadata = encode_spec_metadata(parsed->spec);
    ASSERT_TRUE(expect_spec_or_status(header, metadata));
    for (const MetadataEntry& entry : metadata.entries()) change_entry(header, metadata, entry);
    if (HasFailure()) return;
  }
}

// A key of a GGUF file: where its name, its type and its value are.
struct GgufKey {
  std::size_t name;
  std::size_t name_bytes;
  std::size_t type;
  std::size_t value;
};

// Of the types by number; 0: texts and arrays.
constexpr std::size_t kGgufValueBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
constexpr std::uint32_t kGgufText = 8;
constexpr std::uint32_t kGgufArray = 9;

std::size_t end_of_value(ByteSpan file, std::uint32_t type, std::size_t at) {
  if (type == kGgufText) return at + 8 + load_le<std::uint64_t>(file, at);
  if (type != kGgufArray) return at + kGgufValueBytes[type];
  const auto element = load_le<std::uint32_t>(file, at);
  const auto n = load_le<std::uint64_t>(file, at + 4);
  at += 12;
  for (std::uint64_t i = 0; i < n; ++i) at = end_of_value(file, element, at);
  return at;
}

std::vector<GgufKey> keys_of(ByteSpan file) {
  std::vector<GgufKey> keys(load_le<std::uint64_t>(file, 16));
  std::size_t at = 24;
  for (GgufKey& key : keys) {
    key.name_bytes = load_le<std::uint64_t>(file, at);
    key.name = at + 8;
    key.type = key.name + key.name_bytes;
    key.value = key.type + 4;
    at = end_of_value(file, load_le<std::uint32_t>(file, key.type), key.value);
  }
  return keys;
}

bool expect_gguf_or_status(ByteSpan file) {
  MemoryFileOps ops(file);
  const auto model = GgufModel::open("model.gguf", I2sLayout::kAuto, ops);
  if (!model) {
    EXPECT_THAT(model.error().message(), StartsWith("model.gguf"));
    return false;
  }
  EXPECT_TRUE(validate((*model)->spec()).ok());
  return true;
}

// A number within the value of a key, which is overwritten.
struct GgufPlace {
  std::size_t at;
  std::size_t n_bytes;
};

// Where a number or what a text or an array begins with is: its type, its size, its first element.
std::vector<GgufPlace> places_of(ByteSpan file, const GgufKey& key) {
  const auto type = load_le<std::uint32_t>(file, key.type);
  if (type == kGgufText) return {{key.value, 8}, {key.value + 8, 1}};
  if (type != kGgufArray) return {{key.value, kGgufValueBytes[type]}};
  const auto element = load_le<std::uint32_t>(file, key.value);
  const std::size_t n_bytes = element == kGgufText ? 8 : kGgufValueBytes[element];
  return {{key.value, 4}, {key.value + 4, 8}, {key.value + 12, n_bytes}};
}

void change_key(std::vector<std::byte>& file, const GgufKey& key) {
  const std::vector<std::byte> kept = file;
  for (const GgufPlace& place : places_of(file, key)) {
    for (const std::uint64_t value :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{3}, std::uint64_t{0x7F800000},
          std::uint64_t{0xBF800000}, std::uint64_t{0xFFFFFFFF}, ~std::uint64_t{0}}) {
      ASSERT_LE(place.at + place.n_bytes, file.size());
      std::memcpy(file.data() + place.at, &value, place.n_bytes);
      expect_gguf_or_status(file);
      file = kept;
    }
  }
  // Of another type of as many bytes, and of none.
  for (const std::uint32_t other : {4U, 5U, 6U, 7U, kGgufText, kGgufArray, 13U}) {
    store_le(MutableByteSpan(file), key.type, other);
    expect_gguf_or_status(file);
  }
  file = kept;
  file[key.type - 1] ^= std::byte{1};  // another key
  expect_gguf_or_status(file);
  file = kept;
}

TEST(ChangedKeysTest, KeysOfGgufFiles) {
  std::size_t n_files = 0;
  for (const auto& path : sorted_paths("gguf", "embedding")) {
    if (path.extension() != ".gguf") continue;
    SCOPED_TRACE(path.filename().string());
    const std::string content = content_of(path);
    const ByteSpan bytes = std::as_bytes(std::span(content));
    std::vector<std::byte> file(bytes.begin(), bytes.end());
    ASSERT_TRUE(expect_gguf_or_status(file));
    for (const GgufKey& key : keys_of(file)) change_key(file, key);
    if (HasFailure()) return;
    ++n_files;
  }
  EXPECT_GE(n_files, 60U);
}

}  // namespace
}  // namespace qsf
