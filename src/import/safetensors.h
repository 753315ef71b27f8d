// SPDX-License-Identifier: MIT
//
// Safetensors files: the weights of a Hugging Face folder.
//
// A file consists of 8 bytes (length of the header, little-endian), the header (JSON: name ->
// dtype, shape, data_offsets) and the data, which the tensors cover without gaps or overlap.
//
// Based on: the format description of the safetensors project (README, "Format").

#ifndef QSF_IMPORT_SAFETENSORS_H_
#define QSF_IMPORT_SAFETENSORS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "import/checkpoint.h"
#include "io/file.h"

namespace qsf {

inline constexpr const char* kSafetensorsName = "model.safetensors";
inline constexpr std::uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// Parses the header.
// Requires    `data_bytes` is the size of the data behind the header
// Guarantees  offsets are relative to the data; tensors are sorted by name
// Fails       kCorrupt on JSON of another form, sizes that disagree with shapes, ranges that
//             overlap, leave gaps or pass the end, repeated names; kUnsupported on an unknown dtype
Result<std::vector<StoredTensor>> parse_safetensors_header(std::string_view json,
                                                           std::uint64_t data_bytes);

class SafetensorsModel final : public ShardedCheckpoint {
 public:
  // Opens model.safetensors of a folder, or the files that model.safetensors.index.json names.
  // Requires  `ops` outlives the model
  // Fails     kNotFound when the folder has neither, or a file of the index is missing; kCorrupt;
  //           kUnsupported; kIo
  static Result<SafetensorsModel> open(const std::string& folder, FileOps& ops = system_file_ops());
  // The same of files with another name than model.safetensors.
  static Result<SafetensorsModel> open_named(const std::string& folder, const std::string& name,
                                             FileOps& ops = system_file_ops());

 private:
  Result<std::vector<StoredTensor>> parse_file(const File& file) const override;
};

}  // namespace qsf

#endif  // QSF_IMPORT_SAFETENSORS_H_
