// SPDX-License-Identifier: MIT

#include "import/safetensors.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/f16.h"
#include "import/json_text.h"
#include "quant/types.h"

namespace qsf {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxIndexBytes = 32U << 20;
constexpr std::size_t kMaxDimensions = 8;
constexpr std::size_t kMaxNameBytes = 1024;
constexpr std::size_t kMaxFiles = 1000;

struct TypeInfo {
  std::string_view name;
  std::uint32_t bytes;
};
constexpr TypeInfo kTypes[] = {{"F32", 4},     {"F16", 2}, {"BF16", 2}, {"F64", 8}, {"F8_E4M3", 1},
                               {"F8_E5M2", 1}, {"I64", 8}, {"I32", 4},  {"I16", 2}, {"I8", 1},
                               {"U64", 8},     {"U32", 4}, {"U16", 2},  {"U8", 1},  {"BOOL", 1}};

std::uint32_t element_bytes(SafetensorsType type) noexcept {
  return kTypes[static_cast<std::size_t>(type)].bytes;
}

struct Entry {
  SafetensorsTensor tensor;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Takes the header's events one by one: 100 MB of hostile JSON must not become a tree of gigabytes.
class HeaderParser final : public nlohmann::json_sax<Json> {
 public:
  std::vector<Entry> entries;
  Status status;

  bool null() override { return unexpected("null"); }
  bool boolean(bool /*value*/) override { return unexpected("true or false"); }
  bool number_integer(number_integer_t /*value*/) override {
    return unexpected("a negative number");
  }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override {
    return unexpected("a fraction");
  }
  bool binary(binary_t& /*value*/) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape) {
      if (entries.back().tensor.shape.size() == kMaxDimensions) {
        return tensor_error("more than 8 dimensions");
      }
      entries.back().tensor.shape.push_back(value);
      return true;
    }
    if (place_ == Place::kOffsets && n_offsets_ < 2) {
      (n_offsets_++ == 0 ? entries.back().begin : entries.back().end) = value;
      return true;
    }
    return unexpected("a number");
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kField || field_ != "dtype") return unexpected("a string");
    const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                     [&](const TypeInfo& type) { return type.name == value; });
    if (found == std::end(kTypes)) {
      status = unsupported("tensor \"%s\": dtype \"%s\" is not known to this version",
                           entries.back().tensor.name.c_str(), value.substr(0, 32).c_str());
      return false;
    }
    entries.back().tensor.type = static_cast<SafetensorsType>(found - std::begin(kTypes));
    return finish_field(kHasType);
  }

  bool start_object(std::size_t /*n*/) override {
    switch (place_) {
      case Place::kStart: place_ = Place::kTop; return true;
      case Place::kTop:
        if (name_ == "__metadata__") {
          place_ = Place::kMetadata;
          return true;
        }
        place_ = Place::kTensor;
        entries.emplace_back();
        entries.back().tensor.name = std::move(name_);
        fields_ = 0;
        return true;
      default: return unexpected("an object");
    }
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      if (fields_ != (kHasType | kHasShape | kHasOffsets)) {
        return tensor_error("dtype, shape or data_offsets is missing");
      }
      place_ = Place::kTop;
    } else if (place_ == Place::kMetadata) {
      place_ = Place::kTop;
    } else {
      place_ = Place::kEnd;
    }
    return true;
  }

  bool start_array(std::size_t /*n*/) override {
    if (place_ != Place::kField || field_ == "dtype") return unexpected("an array");
    place_ = field_ == "shape" ? Place::kShape : Place::kOffsets;
    n_offsets_ = 0;
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && n_offsets_ != 2) {
      return tensor_error("data_offsets has not two numbers");
    }
    return finish_field(place_ == Place::kShape ? kHasShape : kHasOffsets);
  }

  bool key(string_t& name) override {
    if (place_ == Place::kMetadata) return true;
    if (place_ == Place::kTop) {
      if (name.size() > kMaxNameBytes) {
        status = corrupt("a tensor name of %zu bytes, expected at most 1024", name.size());
        return false;
      }
      name_ = std::move(name);
      return true;
    }
    if (name != "dtype" && name != "shape" && name != "data_offsets") {
      return tensor_error("a key that is not dtype, shape or data_offsets");
    }
    field_ = std::move(name);
    place_ = Place::kField;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const Json::exception& /*error*/) override {
    status = corrupt("the header is not valid JSON at byte %zu", position);
    return false;
  }

 private:
  enum class Place { kStart, kTop, kTensor, kField, kShape, kOffsets, kMetadata, kEnd };
  static constexpr unsigned kHasType = 1, kHasShape = 2, kHasOffsets = 4;

  bool unexpected(const char* what) {
    if (entries.empty()) {
      status = corrupt("the header has %s where a tensor is expected", what);
    } else {
      status = corrupt("the header has %s in a place where it means nothing, at or after \"%s\"",
                       what, entries.back().tensor.name.c_str());
    }
    return false;
  }
  bool tensor_error(const char* what) {
    status = corrupt("tensor \"%s\": %s", entries.back().tensor.name.c_str(), what);
    return false;
  }
  bool finish_field(unsigned bit) {
    if ((fields_ & bit) != 0) return tensor_error("dtype, shape or data_offsets twice");
    fields_ |= bit;
    place_ = Place::kTensor;
    return true;
  }

  Place place_ = Place::kStart;
  std::string name_;
  std::string field_;
  unsigned fields_ = 0;
  unsigned n_offsets_ = 0;
};

Status check_size(Entry& entry) {
  const char* name = entry.tensor.name.c_str();
  std::optional<std::uint64_t> elements = 1;
  for (const std::uint64_t dimension : entry.tensor.shape) {
    if (elements) elements = checked_mul(*elements, dimension);
  }
  const auto bytes =
      elements ? checked_mul(*elements, element_bytes(entry.tensor.type)) : std::nullopt;
  if (!bytes) return corrupt("tensor \"%s\": its shape does not fit 64 bits", name);
  if (entry.end < entry.begin || entry.end - entry.begin != *bytes) {
    return corrupt("tensor \"%s\": data_offsets [%" PRIu64 ", %" PRIu64 "], expected %" PRIu64
                   " bytes from its shape and dtype",
                   name, entry.begin, entry.end, *bytes);
  }
  entry.tensor.elements = *elements;
  entry.tensor.offset = entry.begin;
  return ok_status();
}

// The tensors must follow one another without gaps and end where the data ends.
Status check_cover(std::vector<Entry>& entries, std::uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t end = 0;
  for (const Entry& entry : entries) {
    if (entry.end > data_bytes) {
      return corrupt("tensor \"%s\": ends at byte %" PRIu64 " of the data, which has %" PRIu64
                     " bytes; the file is truncated or its header wrong",
                     entry.tensor.name.c_str(), entry.end, data_bytes);
    }
    if (entry.begin != end) {
      return corrupt("tensor \"%s\": begins at byte %" PRIu64 " of the data, expected %" PRIu64
                     "; tensors may not overlap or leave gaps",
                     entry.tensor.name.c_str(), entry.begin, end);
    }
    end = entry.end;
  }
  if (end != data_bytes) {
    return corrupt("%" PRIu64 " bytes of data, but the header describes %" PRIu64, data_bytes, end);
  }
  return ok_status();
}

bool by_name(const SafetensorsTensor& a, const SafetensorsTensor& b) noexcept {
  return a.name < b.name;
}

// Returns the first name that occurs twice among sorted tensors, or null.
const SafetensorsTensor* find_repeated(std::span<const SafetensorsTensor> tensors) noexcept {
  const auto found = std::adjacent_find(
      tensors.begin(), tensors.end(),
      [](const SafetensorsTensor& a, const SafetensorsTensor& b) { return a.name == b.name; });
  return found == tensors.end() ? nullptr : &*found;
}

bool is_plain_file_name(const std::string& name) noexcept {
  return !name.empty() && name.size() <= 255 && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos && name != "." && name != "..";
}

struct ShardIndex {
  std::vector<std::string> files;                           // sorted
  std::vector<std::pair<std::string, std::string>> places;  // tensor, file
};

Result<ShardIndex> parse_index(std::string_view text) {
  QSF_ASSIGN_OR_RETURN(const Json json, parse_json_object(text));
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object() || map->empty()) {
    return corrupt("weight_map is missing, empty or not an object");
  }
  ShardIndex index;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_plain_file_name(file.get_ref<const std::string&>())) {
      return corrupt("weight_map: the file of \"%s\" is not a plain file name",
                     tensor.substr(0, 256).c_str());
    }
    index.places.emplace_back(tensor, file.get<std::string>());
    index.files.push_back(index.places.back().second);
  }
  std::sort(index.files.begin(), index.files.end());
  index.files.erase(std::unique(index.files.begin(), index.files.end()), index.files.end());
  if (index.files.size() > kMaxFiles) {
    return unsupported("weight_map names %zu files, expected at most 1000", index.files.size());
  }
  return index;
}

}  // namespace

std::string_view safetensors_type_name(SafetensorsType type) noexcept {
  return kTypes[static_cast<std::size_t>(type)].name;
}

Result<std::vector<SafetensorsTensor>> parse_safetensors_header(std::string_view json,
                                                                std::uint64_t data_bytes) {
  HeaderParser parser;
  if (!Json::sax_parse(json.begin(), json.end(), &parser)) {
    if (parser.status.ok()) return corrupt("the header is not valid JSON");
    return parser.status;
  }
  for (Entry& entry : parser.entries) QSF_RETURN_IF_ERROR(check_size(entry));
  QSF_RETURN_IF_ERROR(check_cover(parser.entries, data_bytes));
  std::vector<SafetensorsTensor> tensors;
  tensors.reserve(parser.entries.size());
  for (Entry& entry : parser.entries) tensors.push_back(std::move(entry.tensor));
  std::sort(tensors.begin(), tensors.end(), by_name);
  if (const SafetensorsTensor* twice = find_repeated(tensors)) {
    return corrupt("tensor \"%s\" is described twice", twice->name.c_str());
  }
  return tensors;
}

Status SafetensorsModel::add_file(const std::string& path, FileOps& ops) {
  QSF_ASSIGN_OR_RETURN(File file, File::open(path, ops));
  std::array<std::byte, 9> start{};
  if (file.size_bytes() < start.size()) {
    return corrupt("%s: %" PRIu64 " bytes, too short for a safetensors file", path.c_str(),
                   file.size_bytes());
  }
  QSF_RETURN_IF_ERROR(file.read_exact_at(0, start));
  const auto header_bytes = load_le<std::uint64_t>(start, 0);
  if (header_bytes > kMaxSafetensorsHeaderBytes || start[8] != std::byte{'{'}) {
    return corrupt("%s: not a safetensors file: it does not begin with the length of a JSON header",
                   path.c_str());
  }
  if (header_bytes > file.size_bytes() - 8) {
    return corrupt("%s: a header of %" PRIu64 " bytes in a file of %" PRIu64
                   "; the file is truncated",
                   path.c_str(), header_bytes, file.size_bytes());
  }
  std::vector<std::byte> header(header_bytes);
  QSF_RETURN_IF_ERROR(file.read_exact_at(8, header));
  const std::uint64_t data_offset = 8 + header_bytes;
  auto parsed = parse_safetensors_header(as_text(header), file.size_bytes() - data_offset);
  if (!parsed) return std::move(parsed).error().with_context(path);
  for (SafetensorsTensor& tensor : *parsed) {
    tensor.offset += data_offset;
    tensor.file = static_cast<std::uint32_t>(files_.size());
    tensors_.push_back(std::move(tensor));
  }
  files_.push_back(std::move(file));
  return ok_status();
}

Status SafetensorsModel::sort_names() {
  std::sort(tensors_.begin(), tensors_.end(), by_name);
  if (const SafetensorsTensor* twice = find_repeated(tensors_)) {
    return corrupt("tensor \"%s\" stands in two files", twice->name.c_str());
  }
  return ok_status();
}

Result<SafetensorsModel> SafetensorsModel::open(const std::string& folder, FileOps& ops) {
  SafetensorsModel model;
  const std::string single = folder + "/model.safetensors";
  const std::string index_path = single + ".index.json";
  if (ops.path_kind(single) != PathKind::kMissing) {
    QSF_RETURN_IF_ERROR(model.add_file(single, ops));
    return model;
  }
  if (ops.path_kind(index_path) == PathKind::kMissing) {
    if (ops.path_kind(folder + "/pytorch_model.bin") != PathKind::kMissing ||
        ops.path_kind(folder + "/pytorch_model.bin.index.json") != PathKind::kMissing) {
      return unsupported(
          "%s: weights in pytorch_model.bin are for a later version to read; save the model as "
          "safetensors (save_pretrained with safe_serialization=True)",
          folder.c_str());
    }
    return not_found("%s: neither model.safetensors nor model.safetensors.index.json is there",
                     folder.c_str());
  }
  QSF_ASSIGN_OR_RETURN(const File index_file, File::open(index_path, ops));
  QSF_ASSIGN_OR_RETURN(const std::vector<std::byte> text, index_file.read_all(kMaxIndexBytes));
  auto index = parse_index(as_text(text));
  if (!index) return std::move(index).error().with_context(index_path);
  for (const std::string& name : index->files) {
    const std::string path = folder + "/" + name;
    if (ops.path_kind(path) == PathKind::kMissing) {
      return not_found("%s: this file is missing; model.safetensors.index.json names it",
                       path.c_str());
    }
    QSF_RETURN_IF_ERROR(model.add_file(path, ops));
  }
  QSF_RETURN_IF_ERROR(model.sort_names());
  for (const auto& [tensor, file] : index->places) {
    const SafetensorsTensor* found = model.find(tensor);
    if (found == nullptr || model.file_of(*found).path() != folder + "/" + file) {
      return corrupt("%s: tensor \"%s\" is not in %s", index_path.c_str(),
                     tensor.substr(0, 256).c_str(), file.c_str());
    }
  }
  return model;
}

const SafetensorsTensor* SafetensorsModel::find(std::string_view name) const noexcept {
  const auto found = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const SafetensorsTensor& tensor, std::string_view key) { return tensor.name < key; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

Status SafetensorsModel::read(const SafetensorsTensor& tensor, std::uint64_t first,
                              std::span<float> out) const {
  QSF_CHECK(first <= tensor.elements && out.size() <= tensor.elements - first);
  QuantType type;
  switch (tensor.type) {
    case SafetensorsType::kF32: type = QuantType::kF32; break;
    case SafetensorsType::kF16: type = QuantType::kF16; break;
    case SafetensorsType::kBF16: type = QuantType::kBF16; break;
    default:
      return unsupported("%s: tensor \"%s\": weights of dtype %s, expected F32, F16 or BF16",
                         file_of(tensor).path().c_str(), tensor.name.c_str(),
                         std::string(safetensors_type_name(tensor.type)).c_str());
  }
  const std::size_t n_bytes = element_bytes(tensor.type);
  // Narrow elements are read into the upper part of `out` and widened from the front: element i is
  // written at 4i, never past byte 2n + 2i from which it was read.
  const MutableByteSpan bytes = std::as_writable_bytes(out);
  const MutableByteSpan narrow = bytes.subspan(bytes.size() - out.size() * n_bytes);
  QSF_RETURN_IF_ERROR(file_of(tensor).read_exact_at(tensor.offset + first * n_bytes, narrow));
  if (type == QuantType::kF16) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = to_f32(load_le<F16>(narrow, 2 * i));
  } else if (type == QuantType::kBF16) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = to_f32(load_le<BF16>(narrow, 2 * i));
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!std::isfinite(out[i])) {
      return corrupt("%s: tensor \"%s\": element %" PRIu64
                     " is %s; every weight must be a finite number",
                     file_of(tensor).path().c_str(), tensor.name.c_str(), first + i,
                     std::isnan(out[i]) ? "NaN" : "infinite");
    }
  }
  return ok_status();
}

}  // namespace qsf
