// SPDX-License-Identifier: MIT
//
// Checkpoint: the tensors of a model folder, found by name in one or several files.
//
// Safetensors and PyTorch files come in the same two forms: one file NAME, or several files and
// NAME.index.json, which maps tensors to files under "weight_map". ShardedCheckpoint implements
// both forms; a derived class adds the parser of one file.
//
// Headers and ranges are checked when a checkpoint is opened. Weights are checked when they are
// read, range by range, so a model larger than memory can be converted.

#ifndef QSF_IMPORT_CHECKPOINT_H_
#define QSF_IMPORT_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/status.h"
#include "io/file.h"

namespace qsf {

enum class StoredType : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kF64,
  kF8E4M3,
  kF8E5M2,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
};
inline constexpr std::size_t kStoredTypes = 15;

// Returns "F32", "BF16" ... as safetensors spells them. Threads: any.
std::string_view stored_type_name(StoredType type) noexcept;
std::uint32_t stored_type_bytes(StoredType type) noexcept;
// Returns whether weights may have this type: F32, F16 and BF16.
bool is_weight_type(StoredType type) noexcept;

inline constexpr std::size_t kMaxTensorDimensions = 8;
inline constexpr std::size_t kMaxTensorNameBytes = 1024;

struct StoredTensor {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<std::uint64_t> shape;  // at most kMaxTensorDimensions; empty: one number
  // Distance in elements between two neighbours of a dimension; empty: row-major without gaps.
  std::vector<std::uint64_t> strides;
  std::uint64_t elements = 0;  // the product of `shape`
  std::uint64_t offset = 0;    // of the first element, in its file
  std::uint32_t file = 0;      // index into files()
};

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  // The tensors of all files, sorted by name; names are unique.
  virtual std::span<const StoredTensor> tensors() const noexcept = 0;
  virtual std::span<const File> files() const noexcept = 0;

  // Reads elements [first, first + out.size()) in row-major order as f32; U8 as whole numbers.
  // Requires  `tensor` is one of tensors(); the range lies inside it
  // Fails     kUnsupported for types other than F32, F16, BF16 and U8; kCorrupt when an element
  //           is NaN or infinite, naming tensor and index; kIo
  // Threads   any number at once
  virtual Status read(const StoredTensor& tensor, std::uint64_t first,
                      std::span<float> out) const = 0;

  // Returns null when there is none.
  const StoredTensor* find(std::string_view name) const noexcept;
  const File& file_of(const StoredTensor& tensor) const noexcept { return files()[tensor.file]; }

 protected:
  Checkpoint() = default;
  Checkpoint(Checkpoint&&) = default;
  Checkpoint& operator=(Checkpoint&&) = default;
};

// Opens the weights of a folder: safetensors when present, otherwise pytorch_model.bin.
// Requires  `ops` outlives the checkpoint
// Fails     kNotFound when the folder has neither; as SafetensorsModel::open, PytorchModel::open
Result<std::unique_ptr<Checkpoint>> open_checkpoint(const std::string& folder,
                                                    FileOps& ops = system_file_ops());

class ShardedCheckpoint : public Checkpoint {
 public:
  std::span<const StoredTensor> tensors() const noexcept final { return tensors_; }
  std::span<const File> files() const noexcept final { return files_; }
  Status read(const StoredTensor& tensor, std::uint64_t first, std::span<float> out) const final;

  // Returns whether the folder has a file NAME or NAME.index.json.
  static bool is_in(const std::string& folder, const std::string& name, FileOps& ops);

 protected:
  // Opens NAME of a folder, or the files that NAME.index.json names.
  // Fails  kNotFound when the folder has neither, or a file of the index is missing; kCorrupt when
  //        the index and the files disagree or two files have the same tensor; as parse_file; kIo
  Status open_files(const std::string& folder, const std::string& name, FileOps& ops);

  // Finds the tensors of one file, whose `file` may be left at 0.
  // Guarantees  every element lies inside the file
  // Fails       with a message that names the file
  virtual Result<std::vector<StoredTensor>> parse_file(const File& file) const = 0;

 private:
  Status add_file(const std::string& path, FileOps& ops);
  Status sort_names();

  std::vector<File> files_;
  std::vector<StoredTensor> tensors_;
};

// Sorts tensors by name.
void sort_by_name(std::vector<StoredTensor>& tensors);
// Returns the first name that occurs twice among sorted tensors, or null.
const StoredTensor* find_repeated(std::span<const StoredTensor> tensors) noexcept;

// Reads elements from `first` on, in row-major order, in their stored type. Follows strides.
// Requires    `to` holds whole elements; the range lies inside the tensor, the tensor in the file
// Guarantees  beyond `to` at most 64 KiB of memory are used
// Fails       as File::read_exact_at
// Threads     any number at once
Status read_elements(const File& file, const StoredTensor& tensor, std::uint64_t first,
                     MutableByteSpan to);

}  // namespace qsf

#endif  // QSF_IMPORT_CHECKPOINT_H_
