// SPDX-License-Identifier: MIT
//
// QK256: four fixed levels without any scale; 2 bits per weight.
//
//   w[i] = -2, -1, 1, 2                             for code[i] = 0, 1, 2, 3
//
// One row in layout 0: 64 bytes for every 256 columns, the last 64 whole; byte b of them holds
// code[4b + f] in bits 2f .. 2f+1, f = 0 .. 3. Codes past the last column mean nothing; writers
// leave them 0, which would be -2.
//
// The type keeps weights that came in this form. Nothing is turned into it for want of a scale.

#ifndef QSF_QUANT_QK256_H_
#define QSF_QUANT_QK256_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace qsf {

inline constexpr float kQk256Levels[] = {-2.0F, -1.0F, 1.0F, 2.0F};

// Packs codes, one byte each, into code bytes, neighbours in one byte, and unpacks them.
// Shapes    codes [block], packed [block / 4]
// Requires  codes are below 4
void pack_qk256(const std::uint8_t* codes, std::uint32_t block, std::uint32_t n_true,
                std::byte* packed) noexcept;
void unpack_qk256(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept;

// Encodes one row: the nearest level of each weight, 1 for a zero.
// Shapes    weights [n_cols], out [row_major_bytes]
// Requires  every weight is finite
void encode_qk256_row(std::span<const float> weights, MutableByteSpan out) noexcept;

}  // namespace qsf

#endif  // QSF_QUANT_QK256_H_
