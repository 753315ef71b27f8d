// SPDX-License-Identifier: MIT

#include "import/pytorch/pytorch_state_dict.h"

#include <algorithm>
#include <cinttypes>
#include <string_view>
#include <utility>

#include "import/pytorch/pytorch_globals.h"
#include "import/pytorch/pytorch_unpickler.h"

namespace qsf {
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
        "the file holds %s, expected a dict of tensors; save the state dict of the model alone",
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
          "more than one dict under \"state_dict\" or \"model\", expected one; save the one that "
          "is the model");
    }
    inner = &objects.dicts[value.index()];
  }
  return inner == nullptr ? &top : inner;
}

// Checks that a name can stand in a message.
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
      return unsupported("\"%s\" is %s, expected a tensor; save the state dict of the model alone",
                         std::string(name).c_str(), kind_text(value.kind));
    }
    tensors.push_back({std::string(name), objects.tensors[value.index()]});
    used[value.index()] = true;
  }
  const auto n_others = std::count(used.begin(), used.end(), false);
  if (n_others != 0) {
    return unsupported(
        "%td tensors stand outside the state dict, such as those of an optimizer; save the state "
        "dict of the model alone",
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
      return unsupported("its numbers are big-endian; save the model on a little-endian machine");
    }
  }
  return corrupt("the byte order of its numbers is missing");
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
