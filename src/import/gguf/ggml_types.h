// SPDX-License-Identifier: MIT
//
// The tensor types of GGUF files: names, sizes and decoding to f32.
//
// A row of a tensor is a whole number of blocks; two types have a few bytes in front of each row.
// Sizes follow from the type, except for I2_S: its tensors have one scale at their end, and
// import/gguf/i2s_flavor.h detects which of six layouts they use.
//
// Numbers 36 to 39 differ between writers. In files of bitnet.cpp they are I2_S, I8_S, TL1 and TL2
// (bitnet_type_name). llama.cpp has MXFP4 at 39 and no longer writes 36 to 38; its
// general.file_type 38 (MXFP4_MOE) is bitnet.cpp's TL1, whose 39 is TL2 and whose 40 is I2_S. This
// table takes 36 as I2_S and 39 as MXFP4. A file comes from bitnet.cpp when its type 39 tensors
// have tl2_tensor_bytes and not the bytes of MXFP4.
//
// Based on: ggml (ggml.h, ggml-common.h, ggml-quants.c) and ik_llama.cpp's iqk_quantize.cpp;
// testdata/gguf/types holds their results.

#ifndef QSF_IMPORT_GGUF_GGML_TYPES_H_
#define QSF_IMPORT_GGUF_GGML_TYPES_H_

#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"

namespace qsf {

// The types with a decoder, and I2_S. ggml_type_info() also names the other types of GGUF.
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
  std::uint32_t block_bytes;      // 0: unknown sizes
  std::uint32_t row_bytes_extra;  // in front of the blocks of each row
};

// Returns the properties of a tensor type, or nothing for an invalid number. Types known only by
// name have block_bytes 0.
std::optional<GgmlTypeInfo> ggml_type_info(std::uint32_t type) noexcept;

// Returns the name of a type for messages, "unknown" for a number without one.
const char* ggml_type_name(std::uint32_t type) noexcept;

// Returns bitnet.cpp's name of types 37 to 39, where it differs from ggml_type_info(); null for
// other types.
const char* bitnet_type_name(std::uint32_t type) noexcept;

// Returns the bytes of a row, or nothing when n_cols is not a multiple of the type's block, when
// the size of the type is unknown or when the row has 2^61 bytes or more.
std::optional<std::uint64_t> ggml_row_bytes(std::uint32_t type, std::uint64_t n_cols) noexcept;

// Returns whether decode_ggml_row() supports the type.
bool can_decode(std::uint32_t type) noexcept;

// Decodes one row to the same bits as ggml.
// Shapes      out [n_cols], row [ggml_row_bytes(type, n_cols)]
// Requires    can_decode(type)
// Guarantees  any bytes decode without a fault; scales may be infinite or NaN
// Threads     any
void decode_ggml_row(std::uint32_t type, ByteSpan row, std::span<float> out) noexcept;

}  // namespace qsf

#endif  // QSF_IMPORT_GGUF_GGML_TYPES_H_
