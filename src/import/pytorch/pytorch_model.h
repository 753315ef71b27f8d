// SPDX-License-Identifier: MIT
//
// PyTorch's own files: the tensors of a Hugging Face folder with pytorch_model.bin.
//
// torch.save writes a pickle, which describes the tensors, and their numbers as raw bytes: since
// torch 1.6 as entries of a zip archive, before that one after the other in a file of its own kind.
// Both are read. The pickle is read as data (pytorch_unpickler.h), never executed.

#ifndef QSF_IMPORT_PYTORCH_PYTORCH_MODEL_H_
#define QSF_IMPORT_PYTORCH_PYTORCH_MODEL_H_

#include <string>
#include <vector>

#include "base/result.h"
#include "import/sharded_checkpoint.h"
#include "io/file.h"

namespace qsf {

inline constexpr const char* kPytorchName = "pytorch_model.bin";

class PytorchModel final : public ShardedCheckpoint {
 public:
  // Opens pytorch_model.bin of a folder, or the files that pytorch_model.bin.index.json names.
  // Requires  `ops` outlives the model
  // Fails     kNotFound when the folder has neither, or a file of the index is missing;
  //           kUnsupported when a file holds anything but a dict of tensors that torch.save wrote
  //           on a little-endian machine; kCorrupt; kIo
  static Result<PytorchModel> open(const std::string& folder, FileOps& ops = system_file_ops());

 private:
  Result<std::vector<StoredTensor>> parse_file(const File& file) const override;
};

}  // namespace qsf

#endif  // QSF_IMPORT_PYTORCH_PYTORCH_MODEL_H_
