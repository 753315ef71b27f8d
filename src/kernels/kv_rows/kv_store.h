// SPDX-License-Identifier: MIT
//
// The store of K and V rows in a page's blocks (quant/kv_type.h).

#ifndef QSF_KERNELS_KV_ROWS_KV_STORE_H_
#define QSF_KERNELS_KV_ROWS_KV_STORE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/attend/attend.h"
#include "kernels/convert/convert.h"
#include "kernels/kv_rows/kv_rows.h"
#include "quant/kv_type.h"

namespace qsf::kernels {

struct KvStore {
  const ConvertKernels& convert;
  const KvRowKernels& kv_rows;
};

// How a slot of a quantised type is coded. Requires  type is quantised
constexpr KvRowFormat kv_row_format(KvType type, std::uint32_t head_dim) noexcept {
  return {kv_bits(type), kv_columns(type, head_dim), kv_group(type, head_dim)};
}

// Stores the head_dim values of one key as slot `slot` of a K block, rotated where the type is
// quantised.
// Requires    slot < kKvPageSlots, head_dim <= kMaxHeadDim
// Guarantees  every other slot of the block reads as before
// Threads     any, for different slots too; but in 4 and 2 bits slots share bytes, so only one
//             thread may store keys of a block
void store_key(const KvStore& store, KvType type, const float* from, std::byte* block,
               std::uint32_t slot, std::uint32_t head_dim) noexcept;

// Stores the head_dim values of one V row as slot `slot` of a V block, rotated where the type wants
// it (kv_rotates_values).
// Requires  as above
// Threads   any, for different slots too: no byte of another slot is written
void store_value(const KvStore& store, KvType type, const float* from, std::byte* block,
                 std::uint32_t slot, std::uint32_t head_dim) noexcept;

}  // namespace qsf::kernels

#endif  // QSF_KERNELS_KV_ROWS_KV_STORE_H_
