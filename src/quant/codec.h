// SPDX-License-Identifier: MIT
//
// One interface over all weight types: rows of f32 to layout-0 bytes and back, and a check of bytes
// from a file. Decoding here defines the formats; kernels are tested against it.
//
// A decoded weight is the exact product scale * code (it always fits f32) plus min, rounded once to
// the nearest f32, so every correct reader gets the same bits.

#ifndef QSF_QUANT_CODEC_H_
#define QSF_QUANT_CODEC_H_

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/status.h"
#include "quant/block_format.h"
#include "quant/code_packing.h"
#include "quant/fields.h"
#include "quant/quant_options.h"

namespace qsf {

// The functions of one type, for code that moves codes without decoding them. 8-bit codes are their
// two's complement bytes.
struct BlockCodec {
  PackCodesFn pack;
  UnpackCodesFn unpack;
  // Encodes up to kBlocksPerBatch blocks (quant/search/search_loops.h); null for types that are
  // encoded by rows or super-blocks.
  void (*encode_blocks)(BlockFormat format, std::span<const float> weights,
                        const QuantOptions& options, MutableByteSpan out);
};

// Returns the functions of a coded type. Requires  `type` is not a float type.
const BlockCodec& block_codec(QuantType type) noexcept;

// Turns codes into weights by the formula of the type (quant/weight_types.h).
// Shapes  codes [out.size()]
void decode_codes(QuantType type, BlockScale fields, const std::uint8_t* codes,
                  std::span<float> out) noexcept;

// Returns whether QuantOptions::importance changes the codes of a type with Rounding::kSearch. It
// does not for floats, for types with fixed scales, and for 8bit and mxfp4, whose scales follow
// from the largest weight.
constexpr bool uses_importance(QuantType type) noexcept {
  return scale_form(type) != ScaleForm::kNone && scale_form(type) != ScaleForm::kExponent &&
         type != QuantType::kQ8;
}

// Encodes one row, block after block.
// Shapes      row [n_cols], out [row_major_bytes(format, n_cols)], options.importance [n_cols] or
//             empty
// Requires    is_valid(format); every weight is finite and, except for f32 and bf16, at most 65504
//             in magnitude (a larger one would need a scale that f16 does not have); ternary-row,
//             ternary-base3 and qk256 take any finite weight
// Guarantees  scales and mins depend on true columns only; codes of other columns are 0
// Threads     any
void encode_row(BlockFormat format, std::span<const float> row, const QuantOptions& options,
                MutableByteSpan out);

// Decodes one row.
// Shapes      row [row_major_bytes(format, n_cols)], out [n_cols]
// Guarantees  any bytes decode without a fault; non-finite scales give non-finite weights
// Threads     any
void decode_row(BlockFormat format, ByteSpan row, std::span<float> out) noexcept;

// Converts one row of f32, f16 (IEEE half) or bf16 elements, little-endian, one after the other.
// Narrowing rounds to nearest even.
// Shapes    f32 [n_cols], bytes [n_cols * element bytes] of any alignment
// Requires  type is a float type; for f16, magnitudes of at most 65504
void encode_float_row(QuantType type, std::span<const float> row, MutableByteSpan out) noexcept;
void decode_float_row(QuantType type, ByteSpan row, std::span<float> out) noexcept;

// Returns whether every value is unchanged, bit for bit, by a conversion to f16 and back.
bool f16_holds_exactly(std::span<const float> values) noexcept;

// Checks bytes from a file: their number, that every scale, min and float is finite, and that every
// code is one of the type, padding rows and columns included (kernels multiply padding by zero, and
// zero times infinity is not zero).
// Shapes  bytes [rows_bytes(format, layout, n_rows, n_cols)]
// Fails   kCorrupt, naming the row and the column block
Status check_blocks(BlockFormat format, Layout layout, std::uint64_t n_rows, std::uint64_t n_cols,
                    ByteSpan bytes);

}  // namespace qsf

#endif  // QSF_QUANT_CODEC_H_
