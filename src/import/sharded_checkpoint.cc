// SPDX-License-Identifier: MIT

#include "import/sharded_checkpoint.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/f16.h"
#include "import/json_text.h"
#include "import/strided_read.h"

namespace qsf {
namespace {

constexpr std::uint64_t kMaxIndexBytes = 32U << 20;
constexpr std::size_t kMaxFiles = 1000;

bool is_plain_file_name(const std::string& name) noexcept {
  return !name.empty() && name.size() <= 255 && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos && name != "." && name != "..";
}

struct ShardIndex {
  std::vector<std::string> files;                           // sorted
  std::vector<std::pair<std::string, std::string>> places;  // tensor, file
};

Result<ShardIndex> parse_index(std::string_view text) {
  QSF_ASSIGN_OR_RETURN(const nlohmann::json json, parse_json_object(text));
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
    return corrupt("tensor \"%s\" stands in two files", twice->name.c_str());
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
    return not_found("%s: neither %s nor %s.index.json is there", folder.c_str(), name.c_str(),
                     name.c_str());
  }
  QSF_ASSIGN_OR_RETURN(const File index_file, File::open(index_path, ops));
  QSF_ASSIGN_OR_RETURN(const std::vector<std::byte> text, index_file.read_all(kMaxIndexBytes));
  auto index = parse_index(as_text(text));
  if (!index) return std::move(index).error().with_context(index_path);
  for (const std::string& shard : index->files) {
    const std::string path = folder + "/" + shard;
    if (ops.path_kind(path) == PathKind::kMissing) {
      return not_found("%s: this file is missing; %s.index.json names it", path.c_str(),
                       name.c_str());
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

}  // namespace qsf
