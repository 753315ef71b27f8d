// SPDX-License-Identifier: MIT
//
// The globals that a pickled state dict may name, and what calling them makes: tensors, as data.
//
// In Python a pickle may name any function of any module and have it called with any arguments,
// which is why loading one can run anything. Here a name is looked up in a table of a few entries;
// whatever is not in it is refused by its name before anything is done with it.
//
// Based on: torch/_utils.py (_rebuild_*), torch/serialization.py (persistent_id).

#ifndef QSF_IMPORT_PYTORCH_PYTORCH_GLOBALS_H_
#define QSF_IMPORT_PYTORCH_PYTORCH_GLOBALS_H_

#include <span>
#include <string_view>

#include "base/result.h"
#include "import/pytorch/pytorch_unpickler.h"

namespace qsf {

// What to do with a file that is refused; the end of a message.
inline constexpr const char* kPytorchAdvice =
    "nothing in the file was executed; load it in a sandbox and save the model as safetensors "
    "(save_pretrained with safe_serialization=True)";

// Looks a global up.
// Fails  kUnsupported, naming it, when a state dict does not need it
Result<PickleValue> find_global(std::string_view module, std::string_view name);

// Makes what calling `callee` with `arguments` makes: an empty OrderedDict or a tensor, whose place
// in its storage has been checked.
// Fails  kCorrupt on arguments that the function does not take or that lie about the storage;
//        kUnsupported on a callee that is not called by a state dict, and on tensors that
//        safetensors could not hold
Result<PickleValue> call_global(PickleObjects& objects, PickleValue callee,
                                std::span<const PickleValue> arguments);

// Makes the storage that a persistent id describes: ("storage", type, key, location, elements) and,
// in the legacy container, None.
// Fails  kCorrupt when it is no such tuple, or describes a storage otherwise than another id did;
//        kUnsupported on a view of a storage
Result<PickleValue> load_storage(PickleObjects& objects, PickleValue id);

}  // namespace qsf

#endif  // QSF_IMPORT_PYTORCH_PYTORCH_GLOBALS_H_
