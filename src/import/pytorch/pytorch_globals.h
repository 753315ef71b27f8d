// SPDX-License-Identifier: MIT
//
// The globals that a pickled state dict may use, and their results: tensors, as data.
//
// In Python a pickle may call any function of any module, so loading one can run arbitrary code.
// Here globals are looked up in a small table; any other is rejected by name.
//
// Based on: torch/_utils.py (_rebuild_*), torch/serialization.py (persistent_id).

#ifndef QSF_IMPORT_PYTORCH_PYTORCH_GLOBALS_H_
#define QSF_IMPORT_PYTORCH_PYTORCH_GLOBALS_H_

#include <span>
#include <string_view>

#include "base/result.h"
#include "import/pytorch/pytorch_unpickler.h"

namespace qsf {

// Advice at the end of a message that rejects a file.
inline constexpr const char* kPytorchAdvice =
    "nothing in the file was executed; load it in a sandbox and save the model as safetensors "
    "(save_pretrained with safe_serialization=True)";

// Looks up a global.
// Fails  kUnsupported, naming it, when it is not in the table
Result<PickleValue> find_global(std::string_view module, std::string_view name);

// Returns the result of calling `callee` with `arguments`: an empty OrderedDict or a tensor, whose
// range in its storage has been checked.
// Fails  kCorrupt on invalid arguments and on ranges outside the storage; kUnsupported on a callee
//        that state dicts do not use, and on tensors that safetensors could not hold
Result<PickleValue> call_global(PickleObjects& objects, PickleValue callee,
                                std::span<const PickleValue> arguments);

// Returns the storage of a persistent id: ("storage", type, key, location, elements) and, in the
// legacy container, None.
// Fails  kCorrupt when it is not such a tuple or contradicts another id; kUnsupported on a view of
//        a storage
Result<PickleValue> load_storage(PickleObjects& objects, PickleValue id);

}  // namespace qsf

#endif  // QSF_IMPORT_PYTORCH_PYTORCH_GLOBALS_H_
