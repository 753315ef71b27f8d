// SPDX-License-Identifier: MIT
//
// Safetensors files: the tensors of a Hugging Face folder, found and read by ranges.
//
// A file is 8 bytes (length of the header, little-endian), the header (JSON: name -> dtype, shape,
// data_offsets) and the data, which the tensors cover without gaps or overlap. A large model comes
// in several such files and an index that says which tensor is in which. Everything is checked when
// a file is opened; weights are checked when they are read.
//
// Based on: the format description of the safetensors project (README, "Format").

#ifndef QSF_IMPORT_SAFETENSORS_H_
#define QSF_IMPORT_SAFETENSORS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "io/file.h"

namespace qsf {

inline constexpr std::uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

enum class SafetensorsType : std::uint8_t {
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

// Returns "F32", "BF16" ... as in the header.
std::string_view safetensors_type_name(SafetensorsType type) noexcept;

struct SafetensorsTensor {
  std::string name;
  SafetensorsType type = SafetensorsType::kF32;
  std::vector<std::uint64_t> shape;  // at most 8 dimensions; empty: one number
  std::uint64_t elements = 0;
  std::uint64_t offset = 0;  // in its file
  std::uint32_t file = 0;    // index into files()
};

// Reads the header's JSON.
// Requires  `data_bytes` is what follows the header in the file
// Guarantees  offsets are relative to the data; tensors are sorted by name
// Fails     kCorrupt: not JSON of that form, sizes that do not follow from shapes, ranges that
//           overlap, leave gaps or pass the end, a name twice; kUnsupported: an unknown dtype
Result<std::vector<SafetensorsTensor>> parse_safetensors_header(std::string_view json,
                                                                std::uint64_t data_bytes);

class SafetensorsModel {
 public:
  // Opens model.safetensors of a folder, or the files that model.safetensors.index.json names.
  // Requires  `ops` outlives the model
  // Fails     kNotFound when the folder has neither, or a file of the index is missing;
  //           kUnsupported when it has only pytorch_model.bin; kCorrupt; kIo
  static Result<SafetensorsModel> open(const std::string& folder, FileOps& ops = system_file_ops());

  // Sorted by name, all files together.
  std::span<const SafetensorsTensor> tensors() const noexcept { return tensors_; }
  // Returns null when there is none.
  const SafetensorsTensor* find(std::string_view name) const noexcept;
  std::span<const File> files() const noexcept { return files_; }
  const File& file_of(const SafetensorsTensor& tensor) const noexcept {
    return files_[tensor.file];
  }

  // Reads elements [first, first + out.size()) in row-major order as f32.
  // Requires  the range lies inside the tensor
  // Fails     kUnsupported for types other than F32, F16 and BF16; kCorrupt when an element is NaN
  //           or infinite, naming tensor and index; kIo
  // Threads   any number at once
  Status read(const SafetensorsTensor& tensor, std::uint64_t first, std::span<float> out) const;

 private:
  Status add_file(const std::string& path, FileOps& ops);
  Status sort_names();

  std::vector<File> files_;
  std::vector<SafetensorsTensor> tensors_;
};

}  // namespace qsf

#endif  // QSF_IMPORT_SAFETENSORS_H_
