// SPDX-License-Identifier: MIT

#include "import/pytorch/pytorch_globals.h"

#include <algorithm>
#include <cinttypes>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "base/bytes.h"

namespace qsf {
namespace {

constexpr std::size_t kMaxStorageKeyBytes = 64;

enum class Role {
  kOrderedDict,
  kRebuildTensor,
  kRebuildTensorV2,
  kRebuildTensorV3,
  kRebuildParameter,
  kStorage,
  kUntypedStorage,
  kDtype,
};

struct GlobalInfo {
  std::string_view module;
  std::string_view name;
  Role role;
  StoredType type = StoredType::kU8;  // of kStorage and kDtype
};
constexpr GlobalInfo kGlobals[] = {
    {"collections", "OrderedDict", Role::kOrderedDict},
    {"torch._utils", "_rebuild_tensor", Role::kRebuildTensor},
    {"torch._utils", "_rebuild_tensor_v2", Role::kRebuildTensorV2},
    {"torch._utils", "_rebuild_tensor_v3", Role::kRebuildTensorV3},
    {"torch._utils", "_rebuild_parameter", Role::kRebuildParameter},
    {"torch", "FloatStorage", Role::kStorage, StoredType::kF32},
    {"torch", "HalfStorage", Role::kStorage, StoredType::kF16},
    {"torch", "BFloat16Storage", Role::kStorage, StoredType::kBF16},
    {"torch", "DoubleStorage", Role::kStorage, StoredType::kF64},
    {"torch", "LongStorage", Role::kStorage, StoredType::kI64},
    {"torch", "IntStorage", Role::kStorage, StoredType::kI32},
    {"torch", "ShortStorage", Role::kStorage, StoredType::kI16},
    {"torch", "CharStorage", Role::kStorage, StoredType::kI8},
    {"torch", "ByteStorage", Role::kStorage, StoredType::kU8},
    {"torch", "BoolStorage", Role::kStorage, StoredType::kBool},
    {"torch.storage", "UntypedStorage", Role::kUntypedStorage},
    // Types that have no storage class; _rebuild_tensor_v3 is given them.
    {"torch", "float8_e4m3fn", Role::kDtype, StoredType::kF8E4M3},
    {"torch", "float8_e5m2", Role::kDtype, StoredType::kF8E5M2},
    {"torch", "uint64", Role::kDtype, StoredType::kU64},
    {"torch", "uint32", Role::kDtype, StoredType::kU32},
    {"torch", "uint16", Role::kDtype, StoredType::kU16},
};

const GlobalInfo& info_of(PickleValue global) noexcept {
  return kGlobals[global.index()];
}

// Makes bytes from a file fit for a message.
std::string printable(std::string_view text) {
  std::string out(text.substr(0, 100));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  return out;
}

using Arguments = std::span<const PickleValue>;

Status check_kind(PickleValue value, PickleKind kind, const char* what) {
  if (value.kind == kind) return ok_status();
  return corrupt("%s is %s, expected %s", what, kind_text(value.kind), kind_text(kind));
}

Result<std::vector<std::uint64_t>> sizes(const PickleObjects& objects, PickleValue value,
                                         const char* what) {
  QSF_RETURN_IF_ERROR(check_kind(value, PickleKind::kTuple, what));
  const std::vector<PickleValue>& tuple = objects.tuples[value.index()];
  if (tuple.size() > kMaxTensorDimensions) {
    return unsupported("a tensor of %zu dimensions, expected at most %zu", tuple.size(),
                       kMaxTensorDimensions);
  }
  std::vector<std::uint64_t> numbers;
  for (const PickleValue item : tuple) {
    if (item.kind != PickleKind::kInt || item.payload < 0) {
      return corrupt("%s of a tensor has %s, expected numbers from 0 on", what,
                     item.kind == PickleKind::kInt ? "a negative number" : kind_text(item.kind));
    }
    numbers.push_back(static_cast<std::uint64_t>(item.payload));
  }
  return numbers;
}

bool is_contiguous(const PickledTensor& tensor) noexcept {
  std::uint64_t expected = 1;
  for (std::size_t d = tensor.shape.size(); d-- > 0;) {
    if (tensor.shape[d] != 1 && tensor.strides[d] != expected) return false;
    expected *= tensor.shape[d];
  }
  return true;
}

// Counts the elements and checks that each is inside a storage of `available` elements.
Status check_place(PickledTensor& tensor, std::uint64_t available) {
  std::optional<std::uint64_t> elements = 1;
  std::optional<std::uint64_t> last = tensor.first;
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    if (elements) elements = checked_mul(*elements, tensor.shape[d]);
    if (tensor.shape[d] == 0) continue;
    const auto reach = checked_mul(tensor.shape[d] - 1, tensor.strides[d]);
    last = last && reach ? checked_add(*last, *reach) : std::nullopt;
  }
  // A size of 0 makes the others meaningless, so they may not overflow either.
  if (!elements) return corrupt("a tensor whose shape does not fit 64 bits");
  tensor.elements = *elements;
  if (tensor.elements != 0 && (!last || *last >= available)) {
    return corrupt("a tensor that passes the end of its storage, which has %" PRIu64 " elements",
                   available);
  }
  if (tensor.elements > available) {
    return unsupported("a tensor that repeats elements of its storage (an expanded view): %" PRIu64
                       " elements of %" PRIu64 "; save it after contiguous()",
                       tensor.elements, available);
  }
  if (tensor.elements == 0) tensor.first = 0;
  if (tensor.elements == 0 || is_contiguous(tensor)) tensor.strides.clear();
  return ok_status();
}

// (storage, first element, shape, strides), with which the arguments of all _rebuild_tensor begin.
Result<PickleValue> rebuild_tensor(PickleObjects& objects, Arguments arguments,
                                   std::optional<StoredType> dtype) {
  QSF_RETURN_IF_ERROR(check_kind(arguments[0], PickleKind::kStorage, "the storage of a tensor"));
  QSF_RETURN_IF_ERROR(check_kind(arguments[1], PickleKind::kInt, "the offset of a tensor"));
  const PickledStorage& storage = objects.storages[arguments[0].index()];
  if (arguments[1].payload < 0) return corrupt("a tensor with a negative offset");
  if (storage.type.has_value() == dtype.has_value()) {
    return corrupt("the storage of a tensor is %s, expected a storage",
                   storage.type ? "typed" : "untyped");
  }
  PickledTensor tensor;
  tensor.type = dtype ? *dtype : *storage.type;
  tensor.storage = static_cast<std::uint32_t>(arguments[0].payload);
  tensor.first = static_cast<std::uint64_t>(arguments[1].payload);
  QSF_ASSIGN_OR_RETURN(tensor.shape, sizes(objects, arguments[2], "the shape"));
  QSF_ASSIGN_OR_RETURN(tensor.strides, sizes(objects, arguments[3], "the strides"));
  if (tensor.shape.size() != tensor.strides.size()) {
    return corrupt("a tensor of %zu dimensions with %zu strides", tensor.shape.size(),
                   tensor.strides.size());
  }
  QSF_RETURN_IF_ERROR(check_place(tensor, storage.bytes / stored_type_bytes(tensor.type)));
  objects.tensors.push_back(std::move(tensor));
  return PickleValue{PickleKind::kTensor, static_cast<std::int64_t>(objects.tensors.size() - 1)};
}

// requires_grad and the hooks, which say nothing about the numbers.
Status check_autograd(const PickleObjects& objects, PickleValue requires_grad, PickleValue hooks) {
  QSF_RETURN_IF_ERROR(check_kind(requires_grad, PickleKind::kBool, "requires_grad"));
  QSF_RETURN_IF_ERROR(check_kind(hooks, PickleKind::kDict, "backward_hooks"));
  if (!objects.dicts[hooks.index()].items.empty()) {
    return unsupported("a tensor with backward hooks");
  }
  return ok_status();
}

// Flags such as conj and neg, which change what the stored numbers mean.
Status check_metadata(const PickleObjects& objects, PickleValue metadata) {
  if (metadata.kind == PickleKind::kNone) return ok_status();
  QSF_RETURN_IF_ERROR(check_kind(metadata, PickleKind::kDict, "the metadata of a tensor"));
  if (!objects.dicts[metadata.index()].items.empty()) {
    return unsupported(
        "a tensor with metadata (a negated or conjugated view); save it after contiguous()");
  }
  return ok_status();
}

Status check_count(Arguments arguments, std::size_t least, std::size_t most) {
  if (arguments.size() >= least && arguments.size() <= most) return ok_status();
  return corrupt("%zu arguments, expected %zu%s", arguments.size(), least,
                 most > least ? " or one more" : "");
}

Result<PickleValue> make_ordered_dict(PickleObjects& objects, Arguments arguments) {
  if (!arguments.empty()) return unsupported("a dict made from arguments");
  objects.dicts.push_back({true, {}});
  return PickleValue{PickleKind::kDict, static_cast<std::int64_t>(objects.dicts.size() - 1)};
}

Result<PickleValue> rebuild_tensor_v2(PickleObjects& objects, Arguments arguments) {
  QSF_RETURN_IF_ERROR(check_count(arguments, 6, 7));
  QSF_RETURN_IF_ERROR(check_autograd(objects, arguments[4], arguments[5]));
  if (arguments.size() == 7) QSF_RETURN_IF_ERROR(check_metadata(objects, arguments[6]));
  return rebuild_tensor(objects, arguments, std::nullopt);
}

Result<PickleValue> rebuild_tensor_v3(PickleObjects& objects, Arguments arguments) {
  QSF_RETURN_IF_ERROR(check_count(arguments, 7, 8));
  QSF_RETURN_IF_ERROR(check_autograd(objects, arguments[4], arguments[5]));
  if (arguments.size() == 8) QSF_RETURN_IF_ERROR(check_metadata(objects, arguments[7]));
  const PickleValue dtype = arguments[6];
  if (dtype.kind != PickleKind::kGlobal || info_of(dtype).role != Role::kDtype) {
    return corrupt("the dtype of a tensor is %s", kind_text(dtype.kind));
  }
  return rebuild_tensor(objects, arguments, info_of(dtype).type);
}

Result<PickleValue> rebuild_parameter(PickleObjects& objects, Arguments arguments) {
  QSF_RETURN_IF_ERROR(check_count(arguments, 3, 3));
  QSF_RETURN_IF_ERROR(check_kind(arguments[0], PickleKind::kTensor, "the data of a parameter"));
  QSF_RETURN_IF_ERROR(check_autograd(objects, arguments[1], arguments[2]));
  return arguments[0];
}

Result<PickleValue> call(PickleObjects& objects, const GlobalInfo& callee, Arguments arguments) {
  switch (callee.role) {
    case Role::kOrderedDict: return make_ordered_dict(objects, arguments);
    case Role::kRebuildTensor:
      QSF_RETURN_IF_ERROR(check_count(arguments, 4, 4));
      return rebuild_tensor(objects, arguments, std::nullopt);
    case Role::kRebuildTensorV2: return rebuild_tensor_v2(objects, arguments);
    case Role::kRebuildTensorV3: return rebuild_tensor_v3(objects, arguments);
    case Role::kRebuildParameter: return rebuild_parameter(objects, arguments);
    case Role::kStorage:
    case Role::kUntypedStorage:
    case Role::kDtype: break;
  }
  return unsupported("a state dict does not call this; %s", kPytorchAdvice);
}

}  // namespace

const char* kind_text(PickleKind kind) noexcept {
  switch (kind) {
    case PickleKind::kNone: return "None";
    case PickleKind::kBool: return "True or False";
    case PickleKind::kInt: return "an integer";
    case PickleKind::kFloat: return "a float";
    case PickleKind::kLong: return "an integer beyond 64 bits";
    case PickleKind::kText: return "a text";
    case PickleKind::kTuple: return "a tuple";
    case PickleKind::kList: return "a list";
    case PickleKind::kDict: return "a dict";
    case PickleKind::kGlobal: return "a global";
    case PickleKind::kStorage: return "a storage";
    case PickleKind::kTensor: return "a tensor";
  }
  return "";
}

Result<PickleValue> find_global(std::string_view module, std::string_view name) {
  for (std::size_t i = 0; i < std::size(kGlobals); ++i) {
    if (kGlobals[i].module == module && kGlobals[i].name == name) {
      return PickleValue{PickleKind::kGlobal, static_cast<std::int64_t>(i)};
    }
  }
  return unsupported("it uses the global %s.%s, which a state dict does not need; %s",
                     printable(module).c_str(), printable(name).c_str(), kPytorchAdvice);
}

Result<PickleValue> call_global(PickleObjects& objects, PickleValue callee, Arguments arguments) {
  if (callee.kind != PickleKind::kGlobal) {
    return unsupported("it calls %s; %s", kind_text(callee.kind), kPytorchAdvice);
  }
  const GlobalInfo& info = info_of(callee);
  auto made = call(objects, info, arguments);
  if (made) return made;
  return std::move(made).error().with_context(std::string(info.module) + "." +
                                              std::string(info.name));
}

Result<PickleValue> load_storage(PickleObjects& objects, PickleValue id) {
  QSF_RETURN_IF_ERROR(check_kind(id, PickleKind::kTuple, "a persistent id"));
  const std::vector<PickleValue>& parts = objects.tuples[id.index()];
  if (parts.size() != 5 && parts.size() != 6) {
    return corrupt("a persistent id of %zu parts, expected 5 or 6", parts.size());
  }
  if (objects.text(parts[0]) != "storage") {
    return unsupported("a persistent id that is not a storage; %s", kPytorchAdvice);
  }
  const PickleValue type = parts[1];
  if (type.kind != PickleKind::kGlobal ||
      (info_of(type).role != Role::kStorage && info_of(type).role != Role::kUntypedStorage)) {
    return corrupt("the type of a storage is %s, expected a storage class", kind_text(type.kind));
  }
  QSF_RETURN_IF_ERROR(check_kind(parts[2], PickleKind::kText, "the key of a storage"));
  QSF_RETURN_IF_ERROR(check_kind(parts[3], PickleKind::kText, "the location of a storage"));
  QSF_RETURN_IF_ERROR(check_kind(parts[4], PickleKind::kInt, "the size of a storage"));
  if (parts.size() == 6 && parts[5].kind != PickleKind::kNone) {
    return unsupported("a view of a storage, as torch before 0.4 wrote; %s", kPytorchAdvice);
  }
  PickledStorage storage;
  storage.key = objects.text(parts[2]);
  const auto is_key = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  if (storage.key.empty() || storage.key.size() > kMaxStorageKeyBytes ||
      !std::all_of(storage.key.begin(), storage.key.end(), is_key)) {
    return corrupt("the key of a storage is \"%s\", expected a number",
                   printable(storage.key).c_str());
  }
  const StoredType stored = info_of(type).type;
  if (info_of(type).role == Role::kStorage) storage.type = stored;
  const auto bytes =
      parts[4].payload < 0
          ? std::nullopt
          : checked_mul(static_cast<std::uint64_t>(parts[4].payload), stored_type_bytes(stored));
  if (!bytes)
    return corrupt("storage %s: a size of %" PRId64, storage.key.c_str(), parts[4].payload);
  storage.bytes = *bytes;
  const auto [known, added] = objects.storage_of_key.try_emplace(
      storage.key, static_cast<std::uint32_t>(objects.storages.size()));
  const PickleValue value{PickleKind::kStorage, known->second};
  if (added) {
    objects.storages.push_back(std::move(storage));
    return value;
  }
  const PickledStorage& before = objects.storages[known->second];
  if (before.type != storage.type || before.bytes != storage.bytes) {
    return corrupt("storage %s has two different descriptions", storage.key.c_str());
  }
  return value;
}

}  // namespace qsf
