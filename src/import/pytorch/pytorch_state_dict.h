// SPDX-License-Identifier: MIT
//
// The tensors of a pickled state dict, and the pickles around it in the legacy container.

#ifndef QSF_IMPORT_PYTORCH_PYTORCH_STATE_DICT_H_
#define QSF_IMPORT_PYTORCH_PYTORCH_STATE_DICT_H_

#include <string>
#include <vector>

#include "base/result.h"
#include "import/pytorch/pytorch_objects.h"
#include "import/pytorch/pytorch_pickle_input.h"

namespace qsf {

struct NamedPickledTensor {
  std::string name;
  PickledTensor tensor;
};

struct PytorchStateDict {
  std::vector<PickledStorage> storages;  // each key once
  std::vector<NamedPickledTensor> tensors;
};

// Reads a pickle whose object is a dict of tensors, or a dict with such a dict under "state_dict"
// or "model" and no tensor elsewhere.
// Guarantees  names are of a size and characters fit for messages, but may repeat
// Fails       as unpickle; kUnsupported when the object is something else
Result<PytorchStateDict> unpickle_state_dict(PickleInput& input);

// Reads the three pickles that a legacy file begins with: magic number, version, byte order.
// Fails  as unpickle; kCorrupt when it is no such file; kUnsupported on another version and on
//        big-endian numbers
Status unpickle_legacy_header(PickleInput& input);

// Reads the list of storage keys that follows the state dict of a legacy file.
// Fails  as unpickle; kCorrupt when it is no list of texts
Result<std::vector<std::string>> unpickle_storage_keys(PickleInput& input);

}  // namespace qsf

#endif  // QSF_IMPORT_PYTORCH_PYTORCH_STATE_DICT_H_
