// SPDX-License-Identifier: MIT
//
// What the objects of a pickled state dict become: plain data, held in tables.
//
// A value names its object by an index, so however often a pickle repeats an object it exists once,
// nothing is ever copied or walked recursively, and cycles do no harm.

#ifndef QSF_IMPORT_PYTORCH_PYTORCH_OBJECTS_H_
#define QSF_IMPORT_PYTORCH_PYTORCH_OBJECTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "import/checkpoint.h"

namespace qsf {

enum class PickleKind : std::uint8_t {
  kNone,
  kBool,
  kInt,
  kFloat,  // of no use here, so without its value
  kLong,   // an integer beyond 64 bits: the index of its bytes in texts
  kText,   // all from here on: an index
  kTuple,
  kList,
  kDict,
  kGlobal,
  kStorage,
  kTensor,
};

// Returns "a tuple", "None" ... for messages. Threads: any.
const char* kind_text(PickleKind kind) noexcept;

struct PickleValue {
  PickleKind kind = PickleKind::kNone;
  std::int64_t payload = 0;  // the number itself, or the index of the object among its kind

  std::size_t index() const noexcept { return static_cast<std::size_t>(payload); }
};

struct PickleDict {
  bool ordered = false;  // made by collections.OrderedDict
  std::vector<std::pair<PickleValue, PickleValue>> items;
};

// A storage: the bytes that one or more tensors view.
struct PickledStorage {
  std::string key;
  std::optional<StoredType> type;  // none: torch.storage.UntypedStorage
  std::uint64_t bytes = 0;
};

struct PickledTensor {
  StoredType type = StoredType::kF32;
  std::uint32_t storage = 0;  // index into storages
  std::uint64_t first = 0;    // element of the storage that is the tensor's first
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> strides;  // as in StoredTensor
  std::uint64_t elements = 0;
};

struct PickleObjects {
  std::vector<std::string> texts;
  std::vector<std::vector<PickleValue>> tuples;
  std::vector<std::vector<PickleValue>> lists;
  std::vector<PickleDict> dicts;
  std::vector<PickledStorage> storages;
  std::vector<PickledTensor> tensors;
  std::map<std::string, std::uint32_t, std::less<>> storage_of_key;

  // Returns the text of a value, empty when it is none.
  std::string_view text(PickleValue value) const noexcept {
    return value.kind == PickleKind::kText ? std::string_view(texts[value.index()])
                                           : std::string_view();
  }
};

}  // namespace qsf

#endif  // QSF_IMPORT_PYTORCH_PYTORCH_OBJECTS_H_
