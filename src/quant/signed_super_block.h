// SPDX-License-Identifier: MIT
//
// Super-blocks whose sub-blocks have a signed scale and no min: q6_k, 6.5625 bits per weight, and
// q3_k, 3.5625.
//
//   w[i] = (d * scale) * (code[i] - zero)       zero = 32 of q6_k and 4 of q3_k
//
// Nothing is rounded: 11 bits of d, 7 of the scale and 5 of the code fit f32. One super-block in
// layout 0, little-endian, no padding, 16 sub-blocks of 16 columns:
//
//   offset  size  field   meaning
//   0          2  d       f16, finite; writers store one >= 0
//   2         16  scales  byte k: the scale of sub-block k, two's complement
//   18            codes   of each sub-block, packed by quant/q6.h or quant/q3.h
//
// The last super-block of a row has the codes of ceil(rest / 16) sub-blocks alone; the scales of
// the others are 0 and mean nothing.
//
// Accuracy   Rounded to the nearest code, d reaches the largest magnitude of the super-block and
//            every scale is rounded up, so every weight is within d * scale / 2 of its decoded
//            value; quant/search/super_search.h finds fields of a smaller sum of squares, scales
//            below 0 among them.

#ifndef QSF_QUANT_SIGNED_SUPER_BLOCK_H_
#define QSF_QUANT_SIGNED_SUPER_BLOCK_H_

#include <span>

#include "base/bytes.h"
#include "quant/quant_options.h"
#include "quant/types.h"

namespace qsf {

// Encodes the columns of one super-block that exist, which may be fewer than 256.
// Shapes    weights [1 .. 256]; options those of them; out: the fields and the codes of
//           ceil(size / 16) sub-blocks
// Requires  a type of ScaleForm::kSuperSigned; every weight finite and at most 65504 in magnitude
void encode_signed_super_block(BlockFormat format, std::span<const float> weights,
                               const QuantOptions& options, MutableByteSpan out);

}  // namespace qsf

#endif  // QSF_QUANT_SIGNED_SUPER_BLOCK_H_
