// SPDX-License-Identifier: MIT
//
// RoPE of GGUF files: base, rotating columns, and the ways to scale. Linear has a factor as a key,
// YaRN several. LLaMA 3 has a divisor of each frequency in a tensor, rope_freqs.weight; its context
// is not asked about, so both lists of longrope hold the same divisors. Phi 3 has two tensors of
// them.

#ifndef QSF_IMPORT_GGUF_GGUF_ROPE_H_
#define QSF_IMPORT_GGUF_GGUF_ROPE_H_

#include <string_view>

#include "base/status.h"
#include "format/model_spec.h"
#include "import/gguf/gguf_fields.h"
#include "import/gguf/gguf_file.h"

namespace qsf {

// Reads the RoPE of the layers that a file's scaling applies to.
// Requires  spec.head_dim and max_positions are set
Status read_gguf_rope(const GgufFile& file, GgufFields& fields, ModelSpec& spec);

// Returns whether read_gguf_rope() reads the tensor.
bool is_gguf_rope_tensor(std::string_view name) noexcept;

}  // namespace qsf

#endif  // QSF_IMPORT_GGUF_GGUF_ROPE_H_
