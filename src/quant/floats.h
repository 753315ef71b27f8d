// SPDX-License-Identifier: MIT
//
// Rows of plain floats: f32, f16 (IEEE half) and bf16, little-endian, one element after the other.

#ifndef QSF_QUANT_FLOATS_H_
#define QSF_QUANT_FLOATS_H_

#include <span>

#include "base/bytes.h"
#include "quant/types.h"

namespace qsf {

// Converts one row; narrowing rounds to nearest even.
// Shapes    row [n_cols], bytes [n_cols * element bytes]; no alignment is assumed
// Requires  type is a float type; for f16, magnitudes of at most 65504
void encode_float_row(QuantType type, std::span<const float> row, MutableByteSpan out) noexcept;
void decode_float_row(QuantType type, ByteSpan row, std::span<float> out) noexcept;

// Returns whether every value survives being stored as f16: the same number again, bit for bit.
bool f16_holds_exactly(std::span<const float> values) noexcept;

}  // namespace qsf

#endif  // QSF_QUANT_FLOATS_H_
