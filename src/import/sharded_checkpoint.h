// SPDX-License-Identifier: MIT
//
// ShardedCheckpoint: tensors of one or several files, which an index in JSON holds together.
//
// Safetensors and PyTorch's files come in the same two ways: NAME alone, or several files and
// NAME.index.json, which says under weight_map which tensor is in which file. What differs is how
// one file is parsed; that is what a derived class adds.

#ifndef QSF_IMPORT_SHARDED_CHECKPOINT_H_
#define QSF_IMPORT_SHARDED_CHECKPOINT_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "import/checkpoint.h"
#include "io/file.h"

namespace qsf {

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
  //        the index and the files disagree or a name stands in two files; as parse_file; kIo
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

}  // namespace qsf

#endif  // QSF_IMPORT_SHARDED_CHECKPOINT_H_
