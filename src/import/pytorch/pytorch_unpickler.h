// SPDX-License-Identifier: MIT
//
// Restricted unpickler: reads the pickle of a state dict as data and executes nothing.
//
// A pickle is a program for a small stack machine. This machine supports the opcodes that
// torch.save writes for a dict of tensors (protocols 2 to 5) and the globals of pytorch_globals.h.
// Anything else is rejected by name and byte. Memory, steps and the depth of the stack are bounded,
// and no step does more work than the bytes it reads (docs/decisions/008-restricted-unpickler.md).
//
// The file has, in this order: the objects that a pickle creates, the opcodes, the input buffer and
// the unpickler.

#ifndef QSF_IMPORT_PYTORCH_PYTORCH_UNPICKLER_H_
#define QSF_IMPORT_PYTORCH_PYTORCH_UNPICKLER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/status.h"
#include "import/checkpoint.h"
#include "io/file.h"

namespace qsf {

// The objects of a pickled state dict are plain data in tables. A value refers to its object by
// index, so a repeated object exists once, nothing is copied or walked recursively, and cycles are
// harmless.
enum class PickleKind : std::uint8_t {
  kNone,
  kBool,
  kInt,
  kFloat,  // not needed, so without its value
  kLong,   // an integer beyond 64 bits: the index of its bytes in texts
  kText,   // an index, like all kinds below
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

  // Returns the text of a value, empty for other kinds.
  std::string_view text(PickleValue value) const noexcept {
    return value.kind == PickleKind::kText ? std::string_view(texts[value.index()])
                                           : std::string_view();
  }
};

// The opcodes that the unpickler executes. Every other byte is rejected.
// Based on: the table in Python's pickletools module, protocols 0 to 5.
enum class PickleOpcode : std::uint8_t {
  kMark = '(',
  kStop = '.',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyTuple = ')',
  kEmptyList = ']',
  kEmptyDict = '}',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

// Returns "REDUCE (0x52)", or "byte 0xff, which is no opcode of pickle". Threads: any.
std::string opcode_text(std::uint8_t code);

// Ten times what the largest published checkpoints need: about 300 bytes a tensor.
inline constexpr std::uint64_t kMaxPickleBytes = 64U << 20;

// The bytes of a pickle, read from a file through a small buffer: the legacy container does not
// state the length of a pickle. Reads past the end return zeros and make ok() false for good.
class PickleInput {
 public:
  // Reads [begin, begin + n_bytes) of the file, at most kMaxPickleBytes.
  // Requires  the file outlives it; the range lies inside the file
  PickleInput(const File& file, std::uint64_t begin, std::uint64_t n_bytes) noexcept;

  bool ok() const noexcept { return status_.ok(); }
  const Status& status() const noexcept { return status_; }
  // Returns the bytes read since `begin`.
  std::uint64_t position() const noexcept { return position_; }
  std::uint64_t remaining() const noexcept { return n_bytes_ - position_; }

  template <typename T>
  T read() {
    static_assert(std::is_trivially_copyable_v<T>);
    std::byte bytes[sizeof(T)] = {};
    return take(bytes) ? load_le<T>(bytes, 0) : T{};
  }
  // Returns `n_bytes` bytes, none when fewer are left.
  // Requires  the caller has bounded n_bytes
  std::string read_text(std::size_t n_bytes);
  // Returns the text up to the next newline, which is consumed; at most `max_bytes` long.
  std::string read_line(std::size_t max_bytes);

 private:
  bool take(MutableByteSpan to);
  bool fill();

  const File& file_;
  std::uint64_t begin_;
  std::uint64_t n_bytes_;
  std::uint64_t position_ = 0;
  bool cut_;  // the pickle may go on beyond n_bytes_
  Status status_;
  std::vector<std::byte> buffer_;
  std::size_t used_ = 0;  // bytes of the buffer already taken
};

// A tensor takes about 45 steps, so this is some 180,000 tensors in one file.
inline constexpr std::uint64_t kMaxPickleSteps = 1U << 23;
// torch puts at most 1,000 entries of a dict on the stack.
inline constexpr std::size_t kMaxPickleStack = 1U << 16;
inline constexpr std::size_t kMaxPickleTextBytes = 1U << 16;

// Reads one pickle, from its PROTO to its STOP.
// Guarantees  tensors and storages in `objects` are consistent with each other; they are not
//             checked against the file
// Fails       kCorrupt on bytes that are not a pickle, end early or misuse the stack; kUnsupported
//             on opcodes and globals that a state dict does not need and on exceeded limits; kIo.
//             Messages name byte and opcode, but not the file
Result<PickleValue> unpickle(PickleInput& input, PickleObjects& objects);

}  // namespace qsf

#endif  // QSF_IMPORT_PYTORCH_PYTORCH_UNPICKLER_H_
