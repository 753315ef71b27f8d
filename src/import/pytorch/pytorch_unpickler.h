// SPDX-License-Identifier: MIT
//
// Restricted unpickler: reads the pickle of a state dict as data and executes nothing.
//
// A pickle is a program for a small stack machine. This one knows the opcodes that torch.save
// writes for a dict of tensors (protocols 2 to 5) and the globals of pytorch_globals.h. Whatever
// else stands in a file is refused by name and byte. Memory, steps and the depth of the stack are
// bounded, and no step does more work than the bytes it takes from the file.
//
// docs/decisions/008-restricted-unpickler.md tells why.

#ifndef QSF_IMPORT_PYTORCH_PYTORCH_UNPICKLER_H_
#define QSF_IMPORT_PYTORCH_PYTORCH_UNPICKLER_H_

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "import/pytorch/pytorch_objects.h"
#include "import/pytorch/pytorch_pickle_input.h"

namespace qsf {

// A tensor takes about 45 steps, so this is some 180,000 tensors in one file.
inline constexpr std::uint64_t kMaxPickleSteps = 1U << 23;
// torch puts at most 1,000 entries of a dict on the stack.
inline constexpr std::size_t kMaxPickleStack = 1U << 16;
inline constexpr std::size_t kMaxPickleTextBytes = 1U << 16;

// Reads one pickle, from its PROTO to its STOP.
// Guarantees  tensors and storages among `objects` have been checked against each other; not
//             against the file
// Fails       kCorrupt on what is no pickle, ends early, or misuses the stack; kUnsupported on
//             opcodes and globals that a state dict does not need and on what passes a limit; kIo.
//             Messages name byte and opcode, but not the file
Result<PickleValue> unpickle(PickleInput& input, PickleObjects& objects);

}  // namespace qsf

#endif  // QSF_IMPORT_PYTORCH_PYTORCH_UNPICKLER_H_
