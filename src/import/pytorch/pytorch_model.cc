// SPDX-License-Identifier: MIT

#include "import/pytorch/pytorch_model.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "import/pytorch/pytorch_globals.h"
#include "import/pytorch/pytorch_unpickler.h"
#include "import/pytorch/pytorch_zip.h"

namespace qsf {

namespace {

using Offsets = std::vector<std::optional<std::uint64_t>>;  // in the file, of each storage

// Places the tensors in the file.
Result<std::vector<StoredTensor>> place_tensors(PytorchStateDict& state_dict,
                                                const Offsets& offsets) {
  std::vector<StoredTensor> tensors;
  tensors.reserve(state_dict.tensors.size());
  for (NamedPickledTensor& named : state_dict.tensors) {
    PickledTensor& from = named.tensor;
    const auto& offset = offsets[from.storage];
    if (!offset) {
      return corrupt("tensor \"%s\": its storage %s is not in the file", named.name.c_str(),
                     state_dict.storages[from.storage].key.c_str());
    }
    StoredTensor tensor;
    tensor.name = std::move(named.name);
    tensor.type = from.type;
    tensor.shape = std::move(from.shape);
    tensor.strides = std::move(from.strides);
    tensor.elements = from.elements;
    tensor.offset = *offset + from.first * stored_type_bytes(from.type);
    tensors.push_back(std::move(tensor));
  }
  sort_by_name(tensors);
  if (const StoredTensor* twice = find_repeated(tensors)) {
    return corrupt("tensor \"%s\" appears twice in the state dict", twice->name.c_str());
  }
  return tensors;
}

// Returns the one folder of all entries of a torch archive, with its slash.
Result<std::string> find_prefix(const std::vector<ZipEntry>& entries) {
  if (entries.empty()) return corrupt("an empty archive");
  const std::string& first = entries.front().name;
  const std::string prefix = first.substr(0, first.find('/') + 1);
  for (const ZipEntry& entry : entries) {
    if (prefix.empty() || !entry.name.starts_with(prefix)) {
      return corrupt("entry \"%s\" is not in the one folder of torch.save", entry.name.c_str());
    }
  }
  if (find_zip_entry(entries, prefix + "constants.pkl") != nullptr) {
    return unsupported("a TorchScript program, expected the state dict of a model");
  }
  return prefix;
}

Status check_byte_order(const File& file, const ZipEntry* entry) {
  if (entry == nullptr) return ok_status();  // torch before 2.1 did not write it
  std::array<std::byte, 6> order{};
  if (entry->bytes <= order.size()) {
    const MutableByteSpan bytes = std::span(order).first(static_cast<std::size_t>(entry->bytes));
    QSF_RETURN_IF_ERROR(file.read_exact_at(entry->offset, bytes));
    if (as_text(bytes) == "little") return ok_status();
    if (as_text(bytes) == "big") {
      return unsupported("the numbers are big-endian; save the model on a little-endian machine");
    }
  }
  return corrupt("entry \"%s\": expected \"little\" or \"big\"", entry->name.c_str());
}

Result<std::vector<StoredTensor>> parse_zip(const File& file) {
  QSF_ASSIGN_OR_RETURN(const std::vector<ZipEntry> entries, read_zip_directory(file));
  QSF_ASSIGN_OR_RETURN(const std::string prefix, find_prefix(entries));
  QSF_RETURN_IF_ERROR(check_byte_order(file, find_zip_entry(entries, prefix + "byteorder")));
  const ZipEntry* pickle = find_zip_entry(entries, prefix + "data.pkl");
  if (pickle == nullptr) return corrupt("no entry \"%sdata.pkl\"", prefix.c_str());
  PickleInput input(file, pickle->offset, pickle->bytes);
  auto read = unpickle_state_dict(input);
  if (!read) return std::move(read).error().with_context(pickle->name);
  if (input.remaining() != 0) {
    return corrupt("%s: bytes after the end of the pickle", pickle->name.c_str());
  }
  PytorchStateDict& state_dict = *read;
  Offsets offsets;
  for (const PickledStorage& storage : state_dict.storages) {
    const std::string name = prefix + "data/" + storage.key;
    const ZipEntry* entry = find_zip_entry(entries, name);
    if (entry != nullptr && entry->bytes != storage.bytes) {
      return corrupt("entry \"%s\": %" PRIu64 " bytes, expected %" PRIu64, name.c_str(),
                     entry->bytes, storage.bytes);
    }
    offsets.push_back(entry == nullptr ? std::nullopt : std::optional(entry->offset));
  }
  return place_tensors(state_dict, offsets);
}

// Finds the storages, which follow the list of their keys: 8 bytes with the
// number of elements and the elements.
Result<Offsets> find_legacy_storages(const File& file, const PytorchStateDict& state_dict,
                                     const std::vector<std::string>& keys, std::uint64_t offset) {
  std::map<std::string_view, std::size_t> index_of_key;
  for (std::size_t i = 0; i < state_dict.storages.size(); ++i) {
    index_of_key[state_dict.storages[i].key] = i;
  }
  Offsets offsets(state_dict.storages.size());
  for (const std::string& key : keys) {
    const auto found = index_of_key.find(key);
    if (found == index_of_key.end() || offsets[found->second]) {
      return corrupt("storage %zu of the list is %s", static_cast<std::size_t>(&key - keys.data()),
                     found == index_of_key.end() ? "none of the state dict" : "in it twice");
    }
    const PickledStorage& storage = state_dict.storages[found->second];
    std::array<std::byte, 8> size{};
    QSF_RETURN_IF_ERROR(file.read_exact_at(offset, size));
    offset += size.size();
    const std::uint64_t elements =
        storage.bytes / stored_type_bytes(storage.type.value_or(StoredType::kU8));
    if (load_le<std::uint64_t>(size, 0) != elements) {
      return corrupt("storage %s: %" PRIu64 " elements, expected %" PRIu64, key.c_str(),
                     load_le<std::uint64_t>(size, 0), elements);
    }
    if (storage.bytes > file.size_bytes() - offset) {
      return corrupt("storage %s: %" PRIu64 " bytes at byte %" PRIu64 " of a file of %" PRIu64
                     "; the file is truncated",
                     key.c_str(), storage.bytes, offset, file.size_bytes());
    }
    offsets[found->second] = offset;
    offset += storage.bytes;
  }
  if (offset != file.size_bytes()) return corrupt("bytes after the last storage");
  return offsets;
}

Result<std::vector<StoredTensor>> parse_legacy(const File& file) {
  std::array<std::byte, 1> first{};
  if (file.size_bytes() != 0) QSF_RETURN_IF_ERROR(file.read_exact_at(0, first));
  if (load_le<std::uint8_t>(first, 0) != static_cast<std::uint8_t>(PickleOpcode::kProto)) {
    return corrupt(
        "neither a zip archive nor a pickle of protocol 2 and later, which torch.save writes; "
        "if it is a pointer of Git LFS, fetch the file itself (git lfs pull)");
  }
  PickleInput input(file, 0, file.size_bytes());
  QSF_RETURN_IF_ERROR(unpickle_legacy_header(input));
  QSF_ASSIGN_OR_RETURN(PytorchStateDict state_dict, unpickle_state_dict(input));
  QSF_ASSIGN_OR_RETURN(const std::vector<std::string> keys, unpickle_storage_keys(input));
  QSF_ASSIGN_OR_RETURN(const Offsets offsets,
                       find_legacy_storages(file, state_dict, keys, input.position()));
  return place_tensors(state_dict, offsets);
}

}  // namespace

Result<std::vector<StoredTensor>> PytorchModel::parse_file(const File& file) const {
  QSF_ASSIGN_OR_RETURN(const bool is_zip, begins_as_zip(file));
  auto tensors = is_zip ? parse_zip(file) : parse_legacy(file);
  if (tensors) return tensors;
  // Errors of failed reads already name the file.
  const std::string& message = tensors.error().message();
  if (message.starts_with(file.path() + ": ")) return tensors;
  return std::move(tensors).error().with_context(file.path());
}

Result<PytorchModel> PytorchModel::open(const std::string& folder, FileOps& ops) {
  PytorchModel model;
  QSF_RETURN_IF_ERROR(model.open_files(folder, kPytorchName, ops));
  return model;
}

namespace {

// 0x1950a86a20f9469cfc6c, as LONG1 holds it: little-endian.
constexpr std::string_view kLegacyMagic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
constexpr std::int64_t kLegacyVersion = 1001;
constexpr std::string_view kWrappers[] = {"state_dict", "model"};

// Returns the dict that holds the tensors: the object itself, or what it holds under the name of a
// wrapper.
Result<const PickleDict*> find_state_dict(const PickleObjects& objects, PickleValue object) {
  if (object.kind != PickleKind::kDict) {
    return unsupported(
        "the file holds %s, expected a dict of tensors; save only the state dict of the model",
        kind_text(object.kind));
  }
  const PickleDict& top = objects.dicts[object.index()];
  const PickleDict* inner = nullptr;
  for (const auto& [key, value] : top.items) {
    const std::string_view name = objects.text(key);
    if (value.kind != PickleKind::kDict ||
        std::find(std::begin(kWrappers), std::end(kWrappers), name) == std::end(kWrappers)) {
      continue;
    }
    if (inner != nullptr) {
      return unsupported(
          "more than one dict under \"state_dict\" or \"model\", expected one; save only the state "
          "dict of the model");
    }
    inner = &objects.dicts[value.index()];
  }
  return inner == nullptr ? &top : inner;
}

// Checks that a name is fit for messages.
Status check_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxTensorNameBytes) {
    return corrupt("a tensor name of %zu bytes, expected 1 to %zu", name.size(),
                   kMaxTensorNameBytes);
  }
  if (std::any_of(name.begin(), name.end(),
                  [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == '\x7f'; })) {
    return corrupt("a tensor name with control characters");
  }
  return ok_status();
}

// Takes the tensors of `dict`, which must hold nothing else, and all tensors that there are.
Result<std::vector<NamedPickledTensor>> take_tensors(const PickleObjects& objects,
                                                     const PickleDict& dict) {
  std::vector<NamedPickledTensor> tensors;
  std::vector<bool> used(objects.tensors.size(), false);
  for (const auto& [key, value] : dict.items) {
    if (key.kind != PickleKind::kText) {
      return unsupported("the state dict has %s as a name, expected texts", kind_text(key.kind));
    }
    const std::string_view name = objects.text(key);
    QSF_RETURN_IF_ERROR(check_name(name));
    if (value.kind != PickleKind::kTensor) {
      return unsupported("\"%s\" is %s, expected a tensor; save only the state dict of the model",
                         std::string(name).c_str(), kind_text(value.kind));
    }
    tensors.push_back({std::string(name), objects.tensors[value.index()]});
    used[value.index()] = true;
  }
  const auto n_others = std::count(used.begin(), used.end(), false);
  if (n_others != 0) {
    return unsupported(
        "%td tensors are outside the state dict, such as those of an optimizer; save only the "
        "state dict of the model",
        n_others);
  }
  return tensors;
}

}  // namespace

Result<PytorchStateDict> unpickle_state_dict(PickleInput& input) {
  PickleObjects objects;
  QSF_ASSIGN_OR_RETURN(const PickleValue object, unpickle(input, objects));
  QSF_ASSIGN_OR_RETURN(const PickleDict* dict, find_state_dict(objects, object));
  PytorchStateDict state_dict;
  QSF_ASSIGN_OR_RETURN(state_dict.tensors, take_tensors(objects, *dict));
  state_dict.storages = std::move(objects.storages);
  return state_dict;
}

Status unpickle_legacy_header(PickleInput& input) {
  PickleObjects objects;
  QSF_ASSIGN_OR_RETURN(const PickleValue magic, unpickle(input, objects));
  if (magic.kind != PickleKind::kLong || objects.texts[magic.index()] != kLegacyMagic) {
    return corrupt("a pickle that does not begin with the magic number of torch.save");
  }
  QSF_ASSIGN_OR_RETURN(const PickleValue version, unpickle(input, objects));
  if (version.kind != PickleKind::kInt || version.payload != kLegacyVersion) {
    return unsupported("version %" PRId64 " of torch's legacy format, expected %" PRId64,
                       version.payload, kLegacyVersion);
  }
  QSF_ASSIGN_OR_RETURN(const PickleValue info, unpickle(input, objects));
  if (info.kind == PickleKind::kDict) {
    for (const auto& [key, value] : objects.dicts[info.index()].items) {
      if (objects.text(key) != "little_endian" || value.kind != PickleKind::kBool) continue;
      if (value.payload == 1) return ok_status();
      return unsupported("the numbers are big-endian; save the model on a little-endian machine");
    }
  }
  return corrupt("the byte order of the numbers is missing");
}

Result<std::vector<std::string>> unpickle_storage_keys(PickleInput& input) {
  PickleObjects objects;
  QSF_ASSIGN_OR_RETURN(const PickleValue object, unpickle(input, objects));
  if (object.kind != PickleKind::kList) {
    return corrupt("the keys of the storages are %s, expected a list", kind_text(object.kind));
  }
  std::vector<std::string> keys;
  for (const PickleValue key : objects.lists[object.index()]) {
    if (key.kind != PickleKind::kText) {
      return corrupt("the key of a storage is %s, expected a text", kind_text(key.kind));
    }
    keys.emplace_back(objects.text(key));
  }
  return keys;
}

}  // namespace qsf
