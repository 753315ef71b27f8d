// SPDX-License-Identifier: MIT
//
// Safetensors files: the tensors of a Hugging Face folder, found and read by ranges.
//
// A file is 8 bytes (length of the header, little-endian), the header (JSON: name -> dtype, shape,
// data_offsets) and the data, which the tensors cover without gaps or overlap.
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

// Reads the header's JSON.
// Requires  `data_bytes` is what follows the header in the file
// Guarantees  offsets are relative to the data; tensors are sorted by name
// Fails     kCorrupt: not JSON of that form, sizes that do not follow from shapes, ranges that
//           overlap, leave gaps or pass the end, a name twice; kUnsupported: an unknown dtype
Result<std::vector<StoredTensor>> parse_safetensors_header(std::string_view json,
                                                           std::uint64_t data_bytes);

class SafetensorsModel final : public ShardedCheckpoint {
 public:
  // Opens model.safetensors of a folder, or the files that model.safetensors.index.json names.
  // Requires  `ops` outlives the model
  // Fails     kNotFound when the folder has neither, or a file of the index is missing; kCorrupt;
  //           kUnsupported; kIo
  static Result<SafetensorsModel> open(const std::string& folder, FileOps& ops = system_file_ops());

 private:
  Result<std::vector<StoredTensor>> parse_file(const File& file) const override;
};

}  // namespace qsf

#endif  // QSF_IMPORT_SAFETENSORS_H_
