// SPDX-License-Identifier: MIT
//
// Q2S: 2-bit symmetric weights; 2.25 bits per weight at 64 columns a block.
//
//   w[i] = scale * (code[i] - 1.5)     the four levels are -1.5, -0.5, 0.5 and 1.5 times the scale
//
// One block in layout 0, little-endian, no padding, N columns (32, 64, 128 or 256):
//
//   offset    size  field   meaning
//   0            2  scale   f16, finite, >= 0; 0 means that the whole block is zero
//   2          N/4  codes   byte j holds code[j + f * N/4] in bits 2f .. 2f+1, f = 0 .. 3
//
// The scale is searched (quant/search/row_search.h) whatever the rounding, since the one that
// reaches the largest weight is far from good; nearest rounding only leaves aside what columns are
// worth. Weights beyond 1.5 * scale are clipped where that makes the sum of squared errors smaller,
// and a block made of the four levels is exact.

#ifndef QSF_QUANT_Q2S_H_
#define QSF_QUANT_Q2S_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "quant/quant_options.h"
#include "quant/types.h"

namespace qsf {

// Packs codes, one byte each, into the code bytes of a block, and unpacks them.
// Shapes    codes [block]; those from n_true on stand for columns that do not exist and are zero
void pack_q2s(const std::uint8_t* codes, std::uint32_t block, std::uint32_t n_true,
              std::byte* packed) noexcept;
void unpack_q2s(const std::byte* packed, std::uint32_t block, std::uint8_t* codes) noexcept;

// Encodes up to kBlocksPerBatch blocks (quant/search/code_sums.h).
// Shapes    weights [1 .. kBlocksPerBatch * block], the columns that exist; options those of them;
// out:
//           as many blocks as have columns
// Requires  every weight is finite and at most 65504 in magnitude
void encode_q2s_blocks(BlockFormat format, std::span<const float> weights,
                       const QuantOptions& options, MutableByteSpan out);

}  // namespace qsf

#endif  // QSF_QUANT_Q2S_H_
