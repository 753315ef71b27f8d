// SPDX-License-Identifier: MIT
//
// Random weight blocks, drawn directly in their encoded form: gigabytes in seconds.

#ifndef QSF_CONVERT_RANDOM_RANDOM_BLOCKS_H_
#define QSF_CONVERT_RANDOM_RANDOM_BLOCKS_H_

#include <cstdint>

#include "base/bytes.h"
#include "base/rng.h"
#include "quant/block_format.h"

namespace qsf {

// Fills rows of a matrix with random codes and with scales that differ from block to block. Weights
// have a mean of about 0 and a root mean square of about 0.02, which keeps activations and logits
// in the range of trained models. qk256 has no scale: its weights are -2, -1, 1 and 2. Shapes out
// [rows_bytes(format, layout, n_rows, n_cols)] Requires    is_valid(format), n_rows and n_cols at
// least 1 Guarantees  check_blocks accepts the bytes; the same generator gives the same bytes
// Threads     any
void fill_random_rows(BlockFormat format, Layout layout, std::uint32_t n_rows, std::uint32_t n_cols,
                      Rng& rng, MutableByteSpan out);

}  // namespace qsf

#endif  // QSF_CONVERT_RANDOM_RANDOM_BLOCKS_H_
