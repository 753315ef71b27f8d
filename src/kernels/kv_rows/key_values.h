// SPDX-License-Identifier: MIT
//
// Keys of a page as values of the same slots, for models whose keys are their values (latent
// attention). Keys lie by dimension and values by slot (quant/kv_type.h), so that each of the two
// products of attention finds what it adds up in neighbouring elements; here a block is turned from
// the one into the other once for a tile of queries.

#ifndef QSF_KERNELS_KV_ROWS_KEY_VALUES_H_
#define QSF_KERNELS_KV_ROWS_KEY_VALUES_H_

#include <cstddef>
#include <cstdint>

#include "kernels/attend/attend.h"
#include "kernels/convert/convert.h"
#include "quant/kv_type.h"

namespace qsf::kernels {

// Writes a V block of type f32 with the values of slots [first, last) of a K block, exactly, and
// zeros before and behind them.
// Shapes      keys: a K block; values [kKvPageSlots][head_dim]
// Requires    first <= last <= kKvPageSlots; head_dim a multiple of 16 and at most kMaxHeadDim
// Guarantees  keys of quantised types stay rotated
// Threads     any
void widen_keys(const ConvertKernels& convert, KvType type, const std::byte* keys,
                AttendRange slots, std::uint32_t head_dim, float* values) noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_KV_ROWS_KEY_VALUES_H_
