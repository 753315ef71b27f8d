// SPDX-License-Identifier: MIT

#include "import/checkpoint.h"

#include <algorithm>
#include <iterator>
#include <utility>

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
  return not_found("%s: no weights: neither %s nor %s, nor an index of one (.index.json), is there",
                   folder.c_str(), kSafetensorsName, kPytorchName);
}

}  // namespace qsf
