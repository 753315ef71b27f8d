// SPDX-License-Identifier: MIT
//
// Repacking rows of GGUF types into QSF types that hold the same numbers.

#ifndef QSF_IMPORT_GGUF_GGML_REPACK_H_
#define QSF_IMPORT_GGUF_GGML_REPACK_H_

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/status.h"
#include "quant/block_format.h"

namespace qsf {

// Returns the format that holds weights of this type exactly, or nothing when there is none.
// repack_ggml_row() fails on single rows that the format cannot hold.
std::optional<BlockFormat> kept_format(std::uint32_t type) noexcept;

// Repacks one row into layout 0 of kept_format(type).
// Shapes      row [ggml_row_bytes(type, n_cols)], out [row_major_bytes(kept_format, n_cols)]
// Requires    the type has a kept_format
// Guarantees  the row decodes to the bits of decode_ggml_row(), except that a zero of Q4_0 and of
//             the ternary types may lose its sign
// Fails       kCorrupt     a scale or a weight is not finite
//             kUnsupported the format cannot hold this row; the message names another type
// Threads     any
Status repack_ggml_row(std::uint32_t type, ByteSpan row, std::uint32_t n_cols, MutableByteSpan out);

}  // namespace qsf

#endif  // QSF_IMPORT_GGUF_GGML_REPACK_H_
