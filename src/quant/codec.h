// SPDX-License-Identifier: MIT
//
// One interface over all weight types: rows of f32 to layout-0 bytes and back, and a check of bytes
// that came from a file. Decoding here defines the formats; kernels are tested against it.
//
// A decoded weight is the exact product scale * code (it always fits f32) plus min, rounded once to
// the nearest f32, so every correct reader gets the same bits.

#ifndef QSF_QUANT_CODEC_H_
#define QSF_QUANT_CODEC_H_

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/status.h"
#include "quant/fields.h"
#include "quant/quant_options.h"
#include "quant/types.h"

namespace qsf {

// The per-type functions behind the interface, for code that moves codes about without decoding.
// 8-bit codes travel as their two's complement bytes.
struct BlockCodec {
  void (*pack)(const std::uint8_t* codes, std::uint32_t block, std::uint32_t n_true,
               std::byte* packed) noexcept;
  void (*unpack)(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept;
  // Null for types that are encoded by rows or super-blocks.
  // Takes up to kBlocksPerBatch blocks (quant/search/code_sums.h).
  void (*encode_blocks)(BlockFormat format, std::span<const float> weights,
                        const QuantOptions& options, MutableByteSpan out);
};

// Returns the functions of a coded type. Requires  `type` is not a float type.
const BlockCodec& block_codec(QuantType type) noexcept;

// Turns codes into weights: scale * code + min and its variants by type.
// Shapes  codes [out.size()]
void decode_codes(QuantType type, BlockScale fields, const std::uint8_t* codes,
                  std::span<float> out) noexcept;

// Returns whether QuantOptions::importance decides codes of a type with Rounding::kSearch: not of
// floats, nor of those whose scale is fixed, nor of 8-bit, whose is the largest weight's.
constexpr bool uses_importance(QuantType type) noexcept {
  return scale_form(type) != ScaleForm::kNone && type != QuantType::kQ8;
}

// Encodes one row, block after block.
// Shapes      row [n_cols], out [row_major_bytes(format, n_cols)], options.importance [n_cols] or
//             empty
// Requires    is_valid(format); every weight is finite and, except for f32 and bf16, at most 65504
//             in magnitude (a larger one would need a scale that f16 does not have); ternary-row
//             and ternary-base3 take any finite weight, qk256 makes its levels of any
// Guarantees  scales and mins depend on true columns alone; codes of other columns are 0
// Threads     any
void encode_row(BlockFormat format, std::span<const float> row, const QuantOptions& options,
                MutableByteSpan out);

// Decodes one row.
// Shapes      row [row_major_bytes(format, n_cols)], out [n_cols]
// Guarantees  any bytes decode without a fault; non-finite scales give non-finite weights
// Threads     any
void decode_row(BlockFormat format, ByteSpan row, std::span<float> out) noexcept;

// Checks bytes that came from a file: their number, and that every scale, min and float is finite
// and every code one that the type has, padding rows and columns included (kernels multiply padding
// by zero, and zero times infinity is not zero).
// Shapes  bytes [rows_bytes(format, layout, n_rows, n_cols)]
// Fails   kCorrupt, naming the row and the column block
Status check_blocks(BlockFormat format, Layout layout, std::uint64_t n_rows, std::uint64_t n_cols,
                    ByteSpan bytes);

}  // namespace qsf

#endif  // QSF_QUANT_CODEC_H_
