// SPDX-License-Identifier: MIT
//
// The tensor types of GGUF files: names, sizes, and what their bytes mean as f32.
//
// A row of a tensor is a whole number of blocks, behind a few bytes of its own with two types. All
// sizes follow from the type, except those of I2_S, whose tensors have one scale at their end and
// whose flavours import/i2s_*.h tells apart.
//
// Numbers 36 to 39 mean different things in different writers. In files of bitnet.cpp they are
// I2_S, I8_S, TL1 and TL2 (bitnet_type_name). llama.cpp once had repacked IQ4_NL at 36 to 38, which
// no file holds any more, and has MXFP4 at 39; its general.file_type 38 (MXFP4_MOE) is bitnet.cpp's
// TL1, whose 39 is TL2 and whose 40 is I2_S. The table here takes 36 for I2_S and 39 for MXFP4; a
// file is bitnet.cpp's when its type 39 tensors have tl2_tensor_bytes and not those of MXFP4.
//
// Based on: ggml (ggml.h, ggml-common.h, ggml-quants.c) and ik_llama.cpp's iqk_quantize.cpp, which
// testdata/gguf/types holds this to.

#ifndef QSF_IMPORT_GGUF_GGML_TYPES_H_
#define QSF_IMPORT_GGUF_GGML_TYPES_H_

#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/status.h"
#include "quant/types.h"

namespace qsf {

// The types that are decoded, and I2_S. GGUF has more: ggml_type_info() names them.
enum class GgmlType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2K = 10,
  kQ3K = 11,
  kQ4K = 12,
  kQ5K = 13,
  kQ6K = 14,
  kQ8K = 15,
  kIQ4NL = 20,
  kIQ4XS = 23,
  kF64 = 28,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kI2S = 36,
  kMXFP4 = 39,
  kIQ1BN = 134,
  kIQ2BN = 135,
};

// How a tensor type stores its elements.
struct GgmlTypeInfo {
  const char* name;
  std::uint32_t block_elements;   // at least 1
  std::uint32_t block_bytes;      // 0: the sizes of this type are not known here
  std::uint32_t row_bytes_extra;  // in front of the blocks of each row
};

// Returns what is known of a tensor type, or nothing for a number that no file should hold. Types
// that are known by name alone have block_bytes 0.
std::optional<GgmlTypeInfo> ggml_type_info(std::uint32_t type) noexcept;

// Returns the name of a type for messages, "unknown" for a number without one.
const char* ggml_type_name(std::uint32_t type) noexcept;

// Returns what bitnet.cpp calls the type, where that is not what ggml_type_info() calls it: 37 to
// 39, or null.
const char* bitnet_type_name(std::uint32_t type) noexcept;

// Returns the bytes of a row, or nothing when n_cols is no multiple of the type's block, the size
// of the type is not known or the row has 2^61 bytes or more.
std::optional<std::uint64_t> ggml_row_bytes(std::uint32_t type, std::uint64_t n_cols) noexcept;

// Returns whether decode_ggml_row() knows the type.
bool can_decode(std::uint32_t type) noexcept;

// Decodes one row to the values that ggml decodes it to, bit for bit.
// Shapes      out [n_cols], row [ggml_row_bytes(type, n_cols)]
// Requires    can_decode(type)
// Guarantees  any bytes decode without a fault, to infinities or NaN where they hold those
// Threads     any
void decode_ggml_row(std::uint32_t type, ByteSpan row, std::span<float> out) noexcept;

// Returns the format that keeps the weights of this type exactly, or nothing where none does. A
// row of many columns may still hold what it cannot: repack_ggml_row() tells.
std::optional<BlockFormat> kept_format(std::uint32_t type) noexcept;

// Repacks one row into layout 0 of kept_format(type).
// Shapes      row [ggml_row_bytes(type, n_cols)], out [row_major_bytes(kept_format, n_cols)]
// Requires    the type has a kept_format
// Guarantees  the row decodes to the values of decode_ggml_row(), bit for bit; of Q4_0 and the
//             ternary types a zero may lose its sign
// Fails       kCorrupt     a scale or a weight is not finite
//             kUnsupported the format cannot hold this row; the message says what to convert to
// Threads     any
Status repack_ggml_row(std::uint32_t type, ByteSpan row, std::uint32_t n_cols, MutableByteSpan out);

}  // namespace qsf

#endif  // QSF_IMPORT_GGUF_GGML_TYPES_H_
