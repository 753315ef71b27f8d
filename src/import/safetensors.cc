// SPDX-License-Identifier: MIT

#include "import/safetensors.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "import/json_document.h"

namespace qsf {
namespace {

std::optional<StoredType> find_type(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kStoredTypes; ++i) {
    const auto type = static_cast<StoredType>(i);
    if (stored_type_name(type) == name) return type;
  }
  return std::nullopt;
}

struct Entry {
  StoredTensor tensor;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Reads the header event by event: 100 MB of hostile JSON must not become a tree of gigabytes.
class HeaderParser final : public JsonEvents {
 public:
  std::vector<Entry> entries;
  Status status;

  bool scalar(const JsonValue& value) override {
    switch (value.type()) {
      case JsonType::kUnsigned: return number(*value.unsigned_integer());
      case JsonType::kString: return string(*value.text());
      case JsonType::kNull: return unexpected("null");
      case JsonType::kBool: return unexpected("true or false");
      case JsonType::kSigned: return unexpected("a negative number");
      default: return unexpected("a fraction");
    }
  }

  bool start_object() override {
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

  bool start_array() override {
    if (place_ != Place::kField || field_ == "dtype") return unexpected("an array");
    place_ = field_ == "shape" ? Place::kShape : Place::kOffsets;
    n_offsets_ = 0;
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && n_offsets_ != 2) {
      return tensor_error("data_offsets: expected two numbers");
    }
    return finish_field(place_ == Place::kShape ? kHasShape : kHasOffsets);
  }

  bool key(std::string_view name) override {
    if (place_ == Place::kMetadata) return true;
    if (place_ == Place::kTop) {
      if (name.size() > kMaxTensorNameBytes) {
        status = corrupt("a tensor name of %zu bytes, expected at most 1024", name.size());
        return false;
      }
      name_ = name;
      return true;
    }
    if (name != "dtype" && name != "shape" && name != "data_offsets") {
      return tensor_error("unknown key, expected dtype, shape and data_offsets");
    }
    field_ = name;
    place_ = Place::kField;
    return true;
  }

 private:
  enum class Place { kStart, kTop, kTensor, kField, kShape, kOffsets, kMetadata, kEnd };
  static constexpr unsigned kHasType = 1, kHasShape = 2, kHasOffsets = 4;

  bool number(std::uint64_t value) {
    if (place_ == Place::kShape) {
      if (entries.back().tensor.shape.size() == kMaxTensorDimensions) {
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

  bool string(std::string_view value) {
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kField || field_ != "dtype") return unexpected("a string");
    const auto type = find_type(value);
    if (!type) {
      status =
          unsupported("tensor \"%s\": dtype \"%s\" is not supported",
                      entries.back().tensor.name.c_str(), std::string(value.substr(0, 32)).c_str());
      return false;
    }
    entries.back().tensor.type = *type;
    return finish_field(kHasType);
  }

  bool unexpected(const char* what) {
    if (entries.empty()) {
      status = corrupt("the header has %s, expected a tensor", what);
    } else {
      status = corrupt("the header has an unexpected value, %s, in or after tensor \"%s\"", what,
                       entries.back().tensor.name.c_str());
    }
    return false;
  }
  bool tensor_error(const char* what) {
    status = corrupt("tensor \"%s\": %s", entries.back().tensor.name.c_str(), what);
    return false;
  }
  bool finish_field(unsigned bit) {
    if ((fields_ & bit) != 0) return tensor_error("dtype, shape or data_offsets appears twice");
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
      elements ? checked_mul(*elements, stored_type_bytes(entry.tensor.type)) : std::nullopt;
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
                     " bytes; the file is truncated or its header is wrong",
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

}  // namespace

Result<std::vector<StoredTensor>> parse_safetensors_header(std::string_view json,
                                                           std::uint64_t data_bytes) {
  HeaderParser parser;
  if (const auto error_at = read_json_events(json, parser)) {
    return corrupt("the header is not valid JSON: syntax error at byte %zu", *error_at);
  }
  QSF_RETURN_IF_ERROR(parser.status);
  for (Entry& entry : parser.entries) QSF_RETURN_IF_ERROR(check_size(entry));
  QSF_RETURN_IF_ERROR(check_cover(parser.entries, data_bytes));
  std::vector<StoredTensor> tensors;
  tensors.reserve(parser.entries.size());
  for (Entry& entry : parser.entries) tensors.push_back(std::move(entry.tensor));
  sort_by_name(tensors);
  if (const StoredTensor* twice = find_repeated(tensors)) {
    return corrupt("tensor \"%s\" is described twice", twice->name.c_str());
  }
  return tensors;
}

Result<std::vector<StoredTensor>> SafetensorsModel::parse_file(const File& file) const {
  const char* path = file.path().c_str();
  std::array<std::byte, 9> start{};
  if (file.size_bytes() < start.size()) {
    return corrupt("%s: %" PRIu64 " bytes, too short for a safetensors file", path,
                   file.size_bytes());
  }
  QSF_RETURN_IF_ERROR(file.read_exact_at(0, start));
  const auto header_bytes = load_le<std::uint64_t>(start, 0);
  if (header_bytes > kMaxSafetensorsHeaderBytes || start[8] != std::byte{'{'}) {
    return corrupt("%s: not a safetensors file: it does not begin with the length of a JSON header",
                   path);
  }
  if (header_bytes > file.size_bytes() - 8) {
    return corrupt("%s: a header of %" PRIu64 " bytes in a file of %" PRIu64
                   "; the file is truncated",
                   path, header_bytes, file.size_bytes());
  }
  std::vector<std::byte> header(header_bytes);
  QSF_RETURN_IF_ERROR(file.read_exact_at(8, header));
  const std::uint64_t data_offset = 8 + header_bytes;
  auto tensors = parse_safetensors_header(as_text(header), file.size_bytes() - data_offset);
  if (!tensors) return std::move(tensors).error().with_context(file.path());
  for (StoredTensor& tensor : *tensors) tensor.offset += data_offset;
  return tensors;
}

Result<SafetensorsModel> SafetensorsModel::open(const std::string& folder, FileOps& ops) {
  return open_named(folder, kSafetensorsName, ops);
}

Result<SafetensorsModel> SafetensorsModel::open_named(const std::string& folder,
                                                      const std::string& name, FileOps& ops) {
  SafetensorsModel model;
  QSF_RETURN_IF_ERROR(model.open_files(folder, name, ops));
  return model;
}

}  // namespace qsf
