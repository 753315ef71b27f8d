// SPDX-License-Identifier: MIT
//
// Reads the keys of a GGUF file into a ModelSpec, and names its tensors.
//
// Architectures name a tensor by its kind, nearly all of them alike. The tables of hf_tensors.h
// list the tensors of each family in the order of a .qsf file. Unsupported features are rejected by
// name.

#ifndef QSF_IMPORT_GGUF_GGUF_ARCH_H_
#define QSF_IMPORT_GGUF_GGUF_ARCH_H_

#include <cstdint>
#include <string>

#include "base/result.h"
#include "format/model_spec.h"
#include "format/qsf_layout.h"
#include "import/gguf/gguf_families.h"
#include "import/gguf/gguf_file.h"
#include "import/hf/hf_tensors.h"

namespace qsf {

// Returns which tensors a model of an architecture has, in the order of a .qsf file.
const TensorTable& gguf_tensor_table(const GgufArchitecture& architecture);

// Returns the spec without tied_head, special tokens and the fields that a conversion sets.
// Fails  kCorrupt on keys that are missing or out of range; kUnsupported, naming it, on an
//        unsupported feature
Result<ModelSpec> gguf_model_spec(const GgufFile& file, const GgufArchitecture& architecture);

// Returns the name of a tensor: "token_embd.weight", "blk.3.attn_q.bias". Empty for a kind that
// GGUF has no name for.
std::string gguf_tensor_name(const GgufArchitecture& architecture, TensorKind kind,
                             std::uint32_t layer);

}  // namespace qsf

#endif  // QSF_IMPORT_GGUF_GGUF_ARCH_H_
