// SPDX-License-Identifier: MIT
//
// PyTorch checkpoints: the weights of a Hugging Face folder with pytorch_model.bin.
//
// torch.save writes a pickle that describes the tensors, and their raw bytes: since torch 1.6 as
// entries of a zip archive, before that as one legacy file. Both are supported. The pickle is read
// as data (pytorch_unpickler.h) and never executed.

#ifndef QSF_IMPORT_PYTORCH_PYTORCH_MODEL_H_
#define QSF_IMPORT_PYTORCH_PYTORCH_MODEL_H_

#include <string>
#include <vector>

#include "base/result.h"
#include "import/checkpoint.h"
#include "import/pytorch/pytorch_unpickler.h"
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

struct NamedPickledTensor {
  std::string name;
  PickledTensor tensor;
};

struct PytorchStateDict {
  std::vector<PickledStorage> storages;  // each key once
  std::vector<NamedPickledTensor> tensors;
};

// Reads a pickle of a dict of tensors, or of a dict with such a dict under "state_dict" or "model"
// and no tensor elsewhere.
// Guarantees  names have a size and characters fit for messages; they may repeat
// Fails       as unpickle; kUnsupported on any other object
Result<PytorchStateDict> unpickle_state_dict(PickleInput& input);

// Reads the three pickles that a legacy file begins with: magic number, version, byte order.
// Fails  as unpickle; kCorrupt on other files; kUnsupported on another version and on big-endian
//        numbers
Status unpickle_legacy_header(PickleInput& input);

// Reads the list of storage keys that follows the state dict of a legacy file.
// Fails  as unpickle; kCorrupt when it is not a list of texts
Result<std::vector<std::string>> unpickle_storage_keys(PickleInput& input);

}  // namespace qsf

#endif  // QSF_IMPORT_PYTORCH_PYTORCH_MODEL_H_
