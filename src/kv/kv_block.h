// SPDX-License-Identifier: MIT
//
// What may be asked of a block of keys or values without knowing what it means: whether it can be
// computed with, and that slots nobody uses hold nothing.

#ifndef QSF_KV_KV_BLOCK_H_
#define QSF_KV_KV_BLOCK_H_

#include <cstdint>

#include "base/bytes.h"
#include "kv/kv_cache.h"

namespace qsf {

// Returns whether every value of a block is finite: its elements, or the scales of its codes, for
// which every code is a number. Slots that no row sees are masked with a factor of 0, which takes
// away finite values alone.
// Shapes   block [shape.block_bytes(part)]
// Threads  any
bool kv_block_is_finite(const KvShape& shape, KvPart part, ByteSpan block) noexcept;

// Sets codes, elements and scales of the slots from `first_slot` on to zero bits.
// Shapes    as above
// Requires  first_slot <= kKvPageSlots
void clear_kv_slots(const KvShape& shape, KvPart part, std::uint32_t first_slot,
                    MutableByteSpan block) noexcept;

}  // namespace qsf

#endif  // QSF_KV_KV_BLOCK_H_
