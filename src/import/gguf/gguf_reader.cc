// SPDX-License-Identifier: MIT

#include "import/gguf/gguf_reader.h"

#include <algorithm>
#include <bit>
#include <string>

namespace qsf {

namespace {

constexpr std::uint32_t kMagic = 0x46554747U;  // "GGUF"
constexpr std::uint64_t kMinKeyBytes = 8 + 4 + 1;
constexpr std::uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;
constexpr std::uint64_t kMaxNameBytes = 65535;

// Bytes of one value of a fixed-size type, 0 for strings and arrays.
std::uint64_t fixed_bytes(GgufType type) noexcept {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool: return 1;
    case GgufType::kU16:
    case GgufType::kI16: return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32: return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64: return 8;
    case GgufType::kString:
    case GgufType::kArray: return 0;
  }
  return 0;
}

bool known_type(std::uint32_t type) noexcept {
  return type <= 12;
}

// Says what a file is that does not begin as GGUF files do: most often a page or a pointer that was
// saved in place of the model.
Status wrong_magic(ByteSpan bytes) {
  const std::string_view start = as_text(bytes.first(std::min<std::size_t>(bytes.size(), 24)));
  const char* what = "; is it a model, and was it downloaded whole?";
  if (start.starts_with("version https://git-lfs")) {
    what = ": a Git LFS pointer, which stands for the model; fetch the file itself: git lfs pull";
  } else if (start.starts_with("<")) {
    what = ": a web page; download the model itself";
  } else if (start.starts_with("QSF1")) {
    what = ": a .qsf file, which needs no conversion; give it a name that ends in .qsf";
  } else if (start.starts_with("PK")) {
    what = ": a zip archive or a PyTorch checkpoint; give the folder of the model";
  }
  return corrupt("not a GGUF file: it begins with \"%s\", expected \"GGUF\"%s",
                 shown_gguf_text(start.substr(0, 8)).c_str(), what);
}

Status wrong_version(std::uint32_t version) {
  if (version != 0 && (version & 0xFFFFU) == 0) {
    return unsupported(
        "GGUF: the file is big-endian, expected little-endian; use a little-endian version of the "
        "model");
  }
  return unsupported("GGUF: version %u, expected 2 or 3; %s", version,
                     version < 2 ? "convert the original model again with a newer llama.cpp"
                                 : "the file is damaged, or newer than this program");
}

Result<std::string_view> read_string(ByteReader& reader, std::uint64_t limit, const char* what,
                                     std::uint64_t index) {
  const auto n_bytes = reader.read<std::uint64_t>();
  if (!reader.ok() || n_bytes > reader.remaining() || n_bytes > limit) {
    return corrupt(
        "GGUF: %s %llu: %llu bytes, but %zu are left; the file is truncated or damaged, "
        "download it again",
        what, static_cast<unsigned long long>(index), static_cast<unsigned long long>(n_bytes),
        reader.remaining());
  }
  return reader.read_text(n_bytes);
}

Result<ByteSpan> read_array(ByteSpan bytes, ByteReader& reader, const GgufKey& key) {
  const std::size_t begin = reader.position();
  if (key.element_type != GgufType::kString) {
    const auto n_bytes = checked_mul(key.n_elements, fixed_bytes(key.element_type));
    if (!n_bytes.has_value() || *n_bytes > reader.remaining()) {
      return corrupt("GGUF: key \"%s\": %llu array elements do not fit the %zu bytes left",
                     shown_gguf_text(key.name).c_str(),
                     static_cast<unsigned long long>(key.n_elements), reader.remaining());
    }
    return reader.read_bytes(*n_bytes);
  }
  if (key.n_elements > reader.remaining() / 8) {
    return corrupt("GGUF: key \"%s\": %llu strings do not fit the %zu bytes left",
                   shown_gguf_text(key.name).c_str(),
                   static_cast<unsigned long long>(key.n_elements), reader.remaining());
  }
  for (std::uint64_t i = 0; i < key.n_elements; ++i) {
    Result<std::string_view> text = read_string(reader, reader.remaining(), "array string", i);
    if (!text) return std::move(text).error().with_context(shown_gguf_text(key.name));
  }
  return bytes.subspan(begin, reader.position() - begin);
}

// Sorts positions by name; returns the name that appears twice, or nothing.
template <typename Entry>
std::optional<std::string_view> sort_by_name(const std::vector<Entry>& entries,
                                             std::vector<std::uint32_t>& order) {
  order.resize(entries.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&entries](std::uint32_t a, std::uint32_t b) {
    return entries[a].name < entries[b].name;
  });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (entries[order[i]].name == entries[order[i - 1]].name) return entries[order[i]].name;
  }
  return std::nullopt;
}

template <typename Entry>
const Entry* find_by_name(const std::vector<Entry>& entries,
                          const std::vector<std::uint32_t>& order, std::string_view name) noexcept {
  const auto at = std::lower_bound(
      order.begin(), order.end(), name,
      [&entries](std::uint32_t i, std::string_view wanted) { return entries[i].name < wanted; });
  return at == order.end() || entries[*at].name != name ? nullptr : &entries[*at];
}

Status wrong_type(const GgufKey& key, const char* expected) {
  return corrupt("GGUF: key \"%s\": type %u%s, expected %s", shown_gguf_text(key.name).c_str(),
                 static_cast<unsigned>(key.element_type),
                 key.type == GgufType::kArray ? " in an array" : "", expected);
}

// Reads element `index` of an integer key as a signed number; empty when it is no integer or a
// 64-bit number past the signed range.
std::optional<std::int64_t> integer_at(const GgufKey& key, std::uint64_t index) noexcept {
  const auto at = static_cast<std::size_t>(index * fixed_bytes(key.element_type));
  switch (key.element_type) {
    case GgufType::kU8: return load_le<std::uint8_t>(key.payload, at);
    case GgufType::kI8: return load_le<std::int8_t>(key.payload, at);
    case GgufType::kU16: return load_le<std::uint16_t>(key.payload, at);
    case GgufType::kI16: return load_le<std::int16_t>(key.payload, at);
    case GgufType::kU32: return load_le<std::uint32_t>(key.payload, at);
    case GgufType::kI32: return load_le<std::int32_t>(key.payload, at);
    case GgufType::kU64: {
      const auto value = load_le<std::uint64_t>(key.payload, at);
      if (value >> 63 != 0) return std::nullopt;
      return static_cast<std::int64_t>(value);
    }
    case GgufType::kI64: return load_le<std::int64_t>(key.payload, at);
    default: return std::nullopt;
  }
}

}  // namespace

std::string shown_gguf_text(std::string_view text) {
  std::string shown(text.substr(0, 80));
  for (char& c : shown) {
    if (c < ' ' || c > '~') c = '?';
  }
  return shown;
}

Result<GgufReader> GgufReader::parse(ByteSpan bytes, std::uint64_t file_bytes) {
  ByteReader reader(bytes);
  const auto magic = reader.read<std::uint32_t>();
  const auto version = reader.read<std::uint32_t>();
  const auto n_tensors = reader.read<std::uint64_t>();
  const auto n_keys = reader.read<std::uint64_t>();
  if (bytes.size() >= 4 && magic != kMagic) return wrong_magic(bytes);
  if (!reader.ok()) {
    return corrupt(
        "GGUF: %zu bytes, expected at least the 24 of its header; the download is not complete",
        bytes.size());
  }
  if (version != 2 && version != 3) return wrong_version(version);
  GgufReader gguf;
  gguf.version_ = version;
  QSF_RETURN_IF_ERROR(gguf.read_keys(bytes, reader, n_keys));
  if (const GgufKey* key = gguf.find_key("general.alignment"); key != nullptr) {
    const auto value = key->type == GgufType::kU32 ? load_le<std::uint32_t>(key->payload, 0) : 0U;
    if (!std::has_single_bit(value)) {
      return corrupt("GGUF: general.alignment is %u, expected a power of two as u32", value);
    }
    gguf.alignment_ = value;
  }
  QSF_RETURN_IF_ERROR(gguf.read_tensors(reader, n_tensors));
  gguf.data_offset_ = align_up(reader.position(), gguf.alignment_);
  QSF_RETURN_IF_ERROR(gguf.place_tensors(file_bytes));
  return gguf;
}

Status GgufReader::read_keys(ByteSpan bytes, ByteReader& reader, std::uint64_t n_keys) {
  if (n_keys > reader.remaining() / kMinKeyBytes) {
    return corrupt("GGUF: %llu keys do not fit the %zu bytes left",
                   static_cast<unsigned long long>(n_keys), reader.remaining());
  }
  for (std::uint64_t i = 0; i < n_keys; ++i) {
    GgufKey key{};
    QSF_ASSIGN_OR_RETURN(key.name, read_string(reader, kMaxNameBytes, "key", i));
    const auto type = reader.read<std::uint32_t>();
    key.type = static_cast<GgufType>(type);
    std::uint32_t element_type = type;
    key.n_elements = 1;
    if (key.type == GgufType::kArray) {
      element_type = reader.read<std::uint32_t>();
      key.n_elements = reader.read<std::uint64_t>();
    }
    key.element_type = static_cast<GgufType>(element_type);
    if (!reader.ok() || !known_type(type) || !known_type(element_type) ||
        key.element_type == GgufType::kArray) {
      return corrupt("GGUF: key \"%s\": type %u of %u, expected types 0 to 12, arrays not nested",
                     shown_gguf_text(key.name).c_str(), type, element_type);
    }
    if (key.type == GgufType::kArray) {
      QSF_ASSIGN_OR_RETURN(key.payload, read_array(bytes, reader, key));
    } else if (key.type == GgufType::kString) {
      QSF_ASSIGN_OR_RETURN(const std::string_view text,
                           read_string(reader, reader.remaining(), "value of key", i));
      key.payload = as_bytes(text);
    } else {
      key.payload = reader.read_bytes(fixed_bytes(key.type));
    }
    if (!reader.ok()) {
      return corrupt("GGUF: key \"%s\": the file ends inside its value",
                     shown_gguf_text(key.name).c_str());
    }
    keys_.push_back(key);
  }
  if (const auto twice = sort_by_name(keys_, keys_by_name_); twice.has_value()) {
    return corrupt("GGUF: key \"%s\" appears twice", shown_gguf_text(*twice).c_str());
  }
  return ok_status();
}

Status GgufReader::read_tensors(ByteReader& reader, std::uint64_t n_tensors) {
  if (n_tensors > reader.remaining() / kMinTensorBytes) {
    return corrupt("GGUF: %llu tensors do not fit the %zu bytes left",
                   static_cast<unsigned long long>(n_tensors), reader.remaining());
  }
  const auto architecture = get_string("general.architecture");
  const bool is_bitnet = architecture.has_value() && architecture->has_value() &&
                         (*architecture)->starts_with("bitnet");
  for (std::uint64_t i = 0; i < n_tensors; ++i) {
    GgufTensor tensor{};
    QSF_ASSIGN_OR_RETURN(tensor.name, read_string(reader, kMaxNameBytes, "tensor", i));
    const std::string name = shown_gguf_text(tensor.name);
    tensor.n_dims = reader.read<std::uint32_t>();
    if (!reader.ok() || tensor.n_dims > 4) {
      return corrupt("GGUF: tensor \"%s\": %u dimensions, expected at most 4", name.c_str(),
                     tensor.n_dims);
    }
    tensor.n_elements = 1;
    for (std::uint32_t d = 0; d < 4; ++d) {
      tensor.dims[d] = d < tensor.n_dims ? reader.read<std::uint64_t>() : 1;
      const auto product = checked_mul(tensor.n_elements, tensor.dims[d]);
      // Half the range is left free so that bytes of the widest type (8 an element) still fit.
      if (tensor.dims[d] == 0 || !product.has_value() || *product >> 59 != 0) {
        return corrupt("GGUF: tensor \"%s\": dimension %u is %llu: zero or too large", name.c_str(),
                       d, static_cast<unsigned long long>(tensor.dims[d]));
      }
      tensor.n_elements = *product;
    }
    tensor.type = reader.read<std::uint32_t>();
    tensor.file_offset = reader.read<std::uint64_t>();  // made absolute by place_tensors()
    if (!reader.ok()) return corrupt("GGUF: tensor \"%s\": the file ends inside it", name.c_str());
    const char* of_bitnet = is_bitnet ? bitnet_type_name(tensor.type) : nullptr;
    tensor.type_name = of_bitnet != nullptr ? of_bitnet : ggml_type_name(tensor.type);
    const auto info = ggml_type_info(tensor.type);
    if (info.has_value() && of_bitnet == nullptr) {
      if (tensor.dims[0] % info->block_elements != 0) {
        return corrupt("GGUF: tensor \"%s\": %llu columns, expected a multiple of %u for %s",
                       name.c_str(), static_cast<unsigned long long>(tensor.dims[0]),
                       info->block_elements, info->name);
      }
      tensor.n_bytes = tensor.n_elements / info->block_elements * info->block_bytes +
                       tensor.n_elements / tensor.dims[0] * info->row_bytes_extra;
    }
    tensors_.push_back(tensor);
  }
  if (const auto twice = sort_by_name(tensors_, tensors_by_name_); twice.has_value()) {
    return corrupt("GGUF: tensor \"%s\" appears twice", shown_gguf_text(*twice).c_str());
  }
  return ok_status();
}

Status GgufReader::place_tensors(std::uint64_t file_bytes) {
  std::vector<std::uint32_t> order(tensors_.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    order[i] = i;
    GgufTensor& tensor = tensors_[i];
    const auto begin = checked_add(data_offset_, tensor.file_offset);
    if (tensor.file_offset % alignment_ != 0) {
      return corrupt(
          "GGUF: tensor \"%s\": at data offset %llu, expected a multiple of %llu; the file is "
          "damaged",
          shown_gguf_text(tensor.name).c_str(), static_cast<unsigned long long>(tensor.file_offset),
          static_cast<unsigned long long>(alignment_));
    }
    if (!begin.has_value() || *begin >= file_bytes) {
      return corrupt(
          "GGUF: tensor \"%s\" begins behind the end of the file of %llu bytes; the file is "
          "truncated or damaged, download it again",
          shown_gguf_text(tensor.name).c_str(), static_cast<unsigned long long>(file_bytes));
    }
    tensor.file_offset = *begin;
  }
  std::sort(order.begin(), order.end(), [this](std::uint32_t a, std::uint32_t b) {
    return tensors_[a].file_offset < tensors_[b].file_offset;
  });
  for (std::size_t i = 0; i < order.size(); ++i) {
    GgufTensor& tensor = tensors_[order[i]];
    const std::uint64_t end =
        i + 1 < order.size() ? tensors_[order[i + 1]].file_offset : file_bytes;
    tensor.available_bytes = end - tensor.file_offset;
    if (tensor.n_bytes > tensor.available_bytes || tensor.available_bytes == 0) {
      return corrupt(
          "GGUF: tensor \"%s\": %llu bytes, but %llu up to the next tensor or the file's end; the "
          "file is truncated or damaged, download it again",
          shown_gguf_text(tensor.name).c_str(), static_cast<unsigned long long>(tensor.n_bytes),
          static_cast<unsigned long long>(tensor.available_bytes));
    }
  }
  return ok_status();
}

const GgufKey* GgufReader::find_key(std::string_view name) const noexcept {
  return find_by_name(keys_, keys_by_name_, name);
}

const GgufTensor* GgufReader::find_tensor(std::string_view name) const noexcept {
  return find_by_name(tensors_, tensors_by_name_, name);
}

Result<std::optional<std::uint64_t>> GgufReader::get_unsigned(std::string_view name) const {
  const GgufKey* key = find_key(name);
  if (key == nullptr) return std::optional<std::uint64_t>();
  if (key->type == GgufType::kU64) {
    return std::optional<std::uint64_t>(load_le<std::uint64_t>(key->payload, 0));
  }
  const auto value = key->type == GgufType::kArray ? std::nullopt : integer_at(*key, 0);
  if (!value.has_value() || *value < 0) return wrong_type(*key, "a non-negative integer");
  return std::optional<std::uint64_t>(static_cast<std::uint64_t>(*value));
}

Result<std::optional<double>> GgufReader::get_float(std::string_view name) const {
  const GgufKey* key = find_key(name);
  if (key == nullptr) return std::optional<double>();
  if (key->type == GgufType::kF32) {
    return std::optional<double>(double{load_le<float>(key->payload, 0)});
  }
  if (key->type == GgufType::kF64) {
    return std::optional<double>(load_le<double>(key->payload, 0));
  }
  return wrong_type(*key, "a floating-point number");
}

Result<std::optional<bool>> GgufReader::get_bool(std::string_view name) const {
  const GgufKey* key = find_key(name);
  if (key == nullptr) return std::optional<bool>();
  if (key->type != GgufType::kBool) return wrong_type(*key, "a boolean");
  return std::optional<bool>(load_le<std::uint8_t>(key->payload, 0) != 0);
}

Result<std::optional<std::string_view>> GgufReader::get_string(std::string_view name) const {
  const GgufKey* key = find_key(name);
  if (key == nullptr) return std::optional<std::string_view>();
  if (key->type != GgufType::kString) return wrong_type(*key, "a string");
  return std::optional<std::string_view>(as_text(key->payload));
}

Result<std::optional<std::vector<std::string_view>>> GgufReader::get_strings(
    std::string_view name) const {
  const GgufKey* key = find_key(name);
  if (key == nullptr) return std::optional<std::vector<std::string_view>>();
  if (key->type != GgufType::kArray || key->element_type != GgufType::kString) {
    return wrong_type(*key, "an array of strings");
  }
  std::vector<std::string_view> texts;
  texts.reserve(static_cast<std::size_t>(key->n_elements));
  ByteReader reader(key->payload);
  for (std::uint64_t i = 0; i < key->n_elements; ++i) {
    texts.push_back(reader.read_text(reader.read<std::uint64_t>()));
  }
  return std::optional(std::move(texts));
}

Result<std::optional<std::vector<float>>> GgufReader::get_floats(std::string_view name) const {
  const GgufKey* key = find_key(name);
  if (key == nullptr) return std::optional<std::vector<float>>();
  if (key->type != GgufType::kArray || key->element_type != GgufType::kF32) {
    return wrong_type(*key, "an array of f32");
  }
  std::vector<float> values(static_cast<std::size_t>(key->n_elements));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = load_le<float>(key->payload, 4 * i);
  return std::optional(std::move(values));
}

Result<std::optional<std::vector<std::int64_t>>> GgufReader::get_integers(
    std::string_view name) const {
  const GgufKey* key = find_key(name);
  if (key == nullptr) return std::optional<std::vector<std::int64_t>>();
  std::vector<std::int64_t> values;
  if (key->type != GgufType::kArray || key->element_type == GgufType::kString) {
    return wrong_type(*key, "an array of integers");
  }
  values.reserve(static_cast<std::size_t>(key->n_elements));
  for (std::uint64_t i = 0; i < key->n_elements; ++i) {
    const auto value =
        key->element_type == GgufType::kBool
            ? std::optional<std::int64_t>(load_le<std::uint8_t>(key->payload, i) != 0)
            : integer_at(*key, i);
    if (!value.has_value()) return wrong_type(*key, "an array of integers");
    values.push_back(*value);
  }
  return std::optional(std::move(values));
}

}  // namespace qsf
