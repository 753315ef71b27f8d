// SPDX-License-Identifier: MIT
//
// How large a .qsf file becomes, from its tensors alone: known before the first byte is written.

#ifndef QSF_FORMAT_FILE_SIZE_H_
#define QSF_FORMAT_FILE_SIZE_H_

#include <cstdint>
#include <span>

#include "base/result.h"
#include "format/model_spec.h"
#include "format/qsf_layout.h"

namespace qsf {

// Returns the bytes of a tensor section without compression, in whole units of kSectionAlign.
// Fails  as plan_tiles()
Result<std::uint64_t> section_file_bytes(std::span<const TensorInfo> tensors,
                                         std::uint64_t max_tile_bytes);

// Returns the bytes of header, tokenizer, layer index and metadata together, of a file that has no
// sections of its own besides.
std::uint64_t other_file_bytes(const ModelSpec& spec, std::uint64_t tokenizer_bytes);

}  // namespace qsf

#endif  // QSF_FORMAT_FILE_SIZE_H_
