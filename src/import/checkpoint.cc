// SPDX-License-Identifier: MIT

#include "import/checkpoint.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/f16.h"
#include "import/json_document.h"
#include "import/pytorch/pytorch_model.h"
#include "import/safetensors.h"

namespace qsf {

namespace {

struct TypeInfo {
  std::string_view name;
  std::uint32_t bytes;
};
constexpr TypeInfo kTypes[] = {{"F32", 4},     {"F16", 2}, {"BF16", 2}, {"F64", 8}, {"F8_E4M3", 1},
                               {"F8_E5M2", 1}, {"I64", 8}, {"I32", 4},  {"I16", 2}, {"I8", 1},
                               {"U64", 8},     {"U32", 4}, {"U16", 2},  {"U8", 1},  {"BOOL", 1}};
static_assert(std::size(kTypes) == kStoredTypes);

template <typename Model>
Result<std::unique_ptr<Checkpoint>> open_as(const std::string& folder, FileOps& ops) {
  QSF_ASSIGN_OR_RETURN(Model model, Model::open(folder, ops));
  return std::unique_ptr<Checkpoint>(std::make_unique<Model>(std::move(model)));
}

}  // namespace

std::string_view stored_type_name(StoredType type) noexcept {
  return kTypes[static_cast<std::size_t>(type)].name;
}

std::uint32_t stored_type_bytes(StoredType type) noexcept {
  return kTypes[static_cast<std::size_t>(type)].bytes;
}

bool is_weight_type(StoredType type) noexcept {
  return type == StoredType::kF32 || type == StoredType::kF16 || type == StoredType::kBF16;
}

const StoredTensor* Checkpoint::find(std::string_view name) const noexcept {
  const auto all = tensors();
  const auto found = std::lower_bound(
      all.begin(), all.end(), name,
      [](const StoredTensor& tensor, std::string_view key) { return tensor.name < key; });
  return found != all.end() && found->name == name ? &*found : nullptr;
}

Result<std::unique_ptr<Checkpoint>> open_checkpoint(const std::string& folder, FileOps& ops) {
  if (ShardedCheckpoint::is_in(folder, kSafetensorsName, ops)) {
    return open_as<SafetensorsModel>(folder, ops);
  }
  if (ShardedCheckpoint::is_in(folder, kPytorchName, ops)) {
    return open_as<PytorchModel>(folder, ops);
  }
  return not_found("%s: no weights found; expected %s or %s, or one of them with .index.json",
                   folder.c_str(), kSafetensorsName, kPytorchName);
}

namespace {

constexpr std::uint64_t kMaxIndexBytes = 32U << 20;
constexpr std::size_t kMaxFiles = 1000;

bool is_plain_file_name(std::string_view name) noexcept {
  return !name.empty() && name.size() <= 255 && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos && name != "." && name != "..";
}

struct ShardIndex {
  std::vector<std::string> files;                           // sorted
  std::vector<std::pair<std::string, std::string>> places;  // tensor, file
};

Result<ShardIndex> parse_index(std::string_view text) {
  QSF_ASSIGN_OR_RETURN(const JsonDocument json, JsonDocument::parse(text));
  const JsonValue* map = json.root().find("weight_map");
  if (map == nullptr || map->members().empty()) {
    return corrupt("weight_map is missing, empty or not an object");
  }
  ShardIndex index;
  for (const auto& [tensor, value] : map->members()) {
    const auto file = value.text();
    if (!file || !is_plain_file_name(*file)) {
      return corrupt("weight_map: the file of \"%s\" is not a plain file name",
                     std::string(tensor.substr(0, 256)).c_str());
    }
    index.places.emplace_back(tensor, *file);
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

void sort_by_name(std::vector<StoredTensor>& tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
}

const StoredTensor* find_repeated(std::span<const StoredTensor> tensors) noexcept {
  const auto found = std::adjacent_find(
      tensors.begin(), tensors.end(),
      [](const StoredTensor& a, const StoredTensor& b) { return a.name == b.name; });
  return found == tensors.end() ? nullptr : &*found;
}

bool ShardedCheckpoint::is_in(const std::string& folder, const std::string& name, FileOps& ops) {
  const std::string single = folder + "/" + name;
  return ops.path_kind(single) != PathKind::kMissing ||
         ops.path_kind(single + ".index.json") != PathKind::kMissing;
}

Status ShardedCheckpoint::add_file(const std::string& path, FileOps& ops) {
  QSF_ASSIGN_OR_RETURN(File file, File::open(path, ops));
  QSF_ASSIGN_OR_RETURN(std::vector<StoredTensor> parsed, parse_file(file));
  for (StoredTensor& tensor : parsed) {
    tensor.file = static_cast<std::uint32_t>(files_.size());
    tensors_.push_back(std::move(tensor));
  }
  files_.push_back(std::move(file));
  return ok_status();
}

Status ShardedCheckpoint::sort_names() {
  sort_by_name(tensors_);
  if (const StoredTensor* twice = find_repeated(tensors_)) {
    return corrupt("tensor \"%s\" appears in two files", twice->name.c_str());
  }
  return ok_status();
}

Status ShardedCheckpoint::open_files(const std::string& folder, const std::string& name,
                                     FileOps& ops) {
  const std::string single = folder + "/" + name;
  const std::string index_path = single + ".index.json";
  if (ops.path_kind(single) != PathKind::kMissing) {
    QSF_RETURN_IF_ERROR(add_file(single, ops));
    return sort_names();
  }
  if (ops.path_kind(index_path) == PathKind::kMissing) {
    return not_found("%s: expected %s or %s.index.json", folder.c_str(), name.c_str(),
                     name.c_str());
  }
  QSF_ASSIGN_OR_RETURN(const File index_file, File::open(index_path, ops));
  QSF_ASSIGN_OR_RETURN(const std::vector<std::byte> text, index_file.read_all(kMaxIndexBytes));
  auto index = parse_index(as_text(text));
  if (!index) return std::move(index).error().with_context(index_path);
  for (const std::string& shard : index->files) {
    const std::string path = folder + "/" + shard;
    if (ops.path_kind(path) == PathKind::kMissing) {
      return not_found("%s: file not found; %s.index.json names it", path.c_str(), name.c_str());
    }
    QSF_RETURN_IF_ERROR(add_file(path, ops));
  }
  QSF_RETURN_IF_ERROR(sort_names());
  for (const auto& [tensor, shard] : index->places) {
    const StoredTensor* found = find(tensor);
    if (found == nullptr || file_of(*found).path() != folder + "/" + shard) {
      return corrupt("%s: tensor \"%s\" is not in %s", index_path.c_str(),
                     tensor.substr(0, 256).c_str(), shard.c_str());
    }
  }
  return ok_status();
}

Status ShardedCheckpoint::read(const StoredTensor& tensor, std::uint64_t first,
                               std::span<float> out) const {
  QSF_CHECK(first <= tensor.elements && out.size() <= tensor.elements - first);
  const File& file = file_of(tensor);
  if (!is_weight_type(tensor.type) && tensor.type != StoredType::kU8) {
    return unsupported("%s: tensor \"%s\": weights of dtype %s, expected F32, F16, BF16 or U8",
                       file.path().c_str(), tensor.name.c_str(),
                       std::string(stored_type_name(tensor.type)).c_str());
  }
  const std::size_t n_bytes = stored_type_bytes(tensor.type);
  // Narrow elements are read into the upper part of `out` and widened from the front: element i is
  // written at 4i, never past the byte from which it was read.
  const MutableByteSpan bytes = std::as_writable_bytes(out);
  const MutableByteSpan narrow = bytes.subspan(bytes.size() - out.size() * n_bytes);
  QSF_RETURN_IF_ERROR(read_elements(file, tensor, first, narrow));
  if (tensor.type == StoredType::kF16) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = to_f32(load_le<F16>(narrow, 2 * i));
  } else if (tensor.type == StoredType::kBF16) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = to_f32(load_le<BF16>(narrow, 2 * i));
  } else if (tensor.type == StoredType::kU8) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::to_integer<std::uint8_t>(narrow[i]);
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!std::isfinite(out[i])) {
      return corrupt("%s: tensor \"%s\": element %" PRIu64
                     " is %s; every weight must be a finite number",
                     file.path().c_str(), tensor.name.c_str(), first + i,
                     std::isnan(out[i]) ? "NaN" : "infinite");
    }
  }
  return ok_status();
}

namespace {

constexpr std::size_t kStagingBytes = 64U << 10;
// Elements at a larger distance are read one by one: reading the bytes between them costs more.
constexpr std::uint64_t kMaxGapBytes = 512;

// One dimension of a box: elements `stored` apart in the file go `out` apart in the result.
struct Dimension {
  std::uint64_t extent = 1;
  std::uint64_t stored = 0;
  std::uint64_t out = 0;
};

// A part of the tensor that is a range in every dimension.
struct Box {
  std::array<Dimension, kMaxTensorDimensions> dimensions;
  std::size_t n_dimensions = 0;
  std::uint64_t base = 0;  // stored place of its first element
  std::uint64_t elements = 1;
};

// Returns the largest box that begins at element `at`, goes on in row-major order and has at most
// `left` elements.
Box largest_box(const StoredTensor& tensor, std::uint64_t at, std::uint64_t left) {
  const std::size_t n = tensor.shape.size();
  std::array<std::uint64_t, kMaxTensorDimensions> inner{};  // elements of one index
  std::uint64_t product = 1;
  for (std::size_t d = n; d-- > 0;) {
    inner[d] = product;
    product *= tensor.shape[d];
  }
  Box box;
  std::size_t outer = n;  // the outermost dimension of which the box has whole indices
  std::uint64_t index = 0;
  for (std::size_t d = 0; d < n; ++d) {
    const std::uint64_t here = at / inner[d] % tensor.shape[d];
    box.base += here * tensor.strides[d];
    if (outer == n && at % inner[d] == 0 && inner[d] <= left) {
      outer = d;
      index = here;
    }
  }
  for (std::size_t d = outer; d < n; ++d) {
    const std::uint64_t extent =
        d == outer ? std::min(tensor.shape[d] - index, left / inner[d]) : tensor.shape[d];
    box.dimensions[box.n_dimensions++] = {extent, tensor.strides[d], inner[d]};
    box.elements *= extent;
  }
  return box;
}

// Copies elements of a strided tensor to consecutive memory, through a small buffer.
class StridedReader {
 public:
  StridedReader(const File& file, const StoredTensor& tensor)
      : file_(file),
        offset_(tensor.offset),
        n_bytes_(stored_type_bytes(tensor.type)),
        staging_(kStagingBytes) {}

  // Reads a box to `to`: runs along the dimension with the smallest stride, one run for each
  // index of the others.
  Status read(Box box, MutableByteSpan to) {
    Dimension* run = nullptr;
    for (std::size_t d = 0; d < box.n_dimensions; ++d) {
      Dimension& dimension = box.dimensions[d];
      if (dimension.extent == 1 || dimension.stored == 0) continue;
      if (run == nullptr || dimension.stored < run->stored) run = &dimension;
    }
    Dimension along;
    if (run != nullptr) {
      along = *run;
      run->extent = 1;
    }
    std::array<std::uint64_t, kMaxTensorDimensions> index{};
    std::uint64_t stored = box.base;
    std::uint64_t out = 0;
    while (true) {
      QSF_RETURN_IF_ERROR(read_run(along, stored, out, to));
      std::size_t d = box.n_dimensions;
      while (d > 0) {
        const Dimension& dimension = box.dimensions[d - 1];
        stored += dimension.stored;
        out += dimension.out;
        if (++index[d - 1] < dimension.extent) break;
        stored -= dimension.stored * dimension.extent;
        out -= dimension.out * dimension.extent;
        index[d - 1] = 0;
        --d;
      }
      if (d == 0) return ok_status();
    }
  }

 private:
  Status read_run(const Dimension& run, std::uint64_t stored, std::uint64_t out,
                  MutableByteSpan to) {
    const std::uint64_t most =
        run.stored * n_bytes_ > kMaxGapBytes
            ? 1
            : (kStagingBytes / n_bytes_ - 1) / std::max<std::uint64_t>(run.stored, 1) + 1;
    for (std::uint64_t done = 0; done < run.extent;) {
      const std::uint64_t n = std::min(most, run.extent - done);
      const MutableByteSpan bytes =
          MutableByteSpan(staging_).first(((n - 1) * run.stored + 1) * n_bytes_);
      QSF_RETURN_IF_ERROR(
          file_.read_exact_at(offset_ + (stored + done * run.stored) * n_bytes_, bytes));
      for (std::uint64_t i = 0; i < n; ++i) {
        std::memcpy(to.data() + (out + (done + i) * run.out) * n_bytes_,
                    bytes.data() + i * run.stored * n_bytes_, n_bytes_);
      }
      done += n;
    }
    return ok_status();
  }

  const File& file_;
  std::uint64_t offset_;
  std::uint32_t n_bytes_;
  std::vector<std::byte> staging_;
};

}  // namespace

Status read_elements(const File& file, const StoredTensor& tensor, std::uint64_t first,
                     MutableByteSpan to) {
  const std::uint32_t n_bytes = stored_type_bytes(tensor.type);
  if (tensor.strides.empty()) return file.read_exact_at(tensor.offset + first * n_bytes, to);
  StridedReader reader(file, tensor);
  for (std::uint64_t left = to.size() / n_bytes; left != 0;) {
    const Box box = largest_box(tensor, first, left);
    const std::uint64_t box_bytes = box.elements * n_bytes;
    QSF_RETURN_IF_ERROR(reader.read(box, to.first(box_bytes)));
    to = to.subspan(box_bytes);
    first += box.elements;
    left -= box.elements;
  }
  return ok_status();
}

}  // namespace qsf
