// SPDX-License-Identifier: MIT
//
// Q8: 8-bit weights; 8.25 bits per weight at 64 columns a block.
//
//   w[i] = scale * code[i]                          code[i] in [-127, 127]; -128 is never used
//
// One block in layout 0, little-endian, no padding, N columns (32, 64, 128 or 256):
//
//   offset    size  field   meaning
//   0            2  scale   f16, finite; 0 means that the whole block is zero
//   2            N  codes   byte i is code[i], two's complement
//
// Accuracy   The scale is rounded so that 127 * scale reaches the largest magnitude: every weight
// is
//            within scale / 2 of its decoded value.

#ifndef QSF_QUANT_Q8_H_
#define QSF_QUANT_Q8_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "quant/quant_options.h"
#include "quant/types.h"

namespace qsf {

// Packs codes, one byte each, into the code bytes of a block, and unpacks them.
// Shapes    codes [block]; those from n_true on stand for columns that do not exist and are zero
void pack_q8(const std::uint8_t* codes, std::uint32_t block, std::uint32_t n_true,
             std::byte* packed) noexcept;
void unpack_q8(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept;

// Encodes blocks; there is nothing to search, for clipping costs more than finer steps bring.
// Shapes    weights [1 ..], the columns that exist; options those of them; out: as many blocks as
//           have columns
// Requires  every weight is finite and at most 65504 in magnitude
void encode_q8_blocks(BlockFormat format, std::span<const float> weights,
                      const QuantOptions& options, MutableByteSpan out);

}  // namespace qsf

#endif  // QSF_QUANT_Q8_H_
