// SPDX-License-Identifier: MIT
//
// Blocks of keys or values of a page: copying slots between them, clearing slots, and checking that
// the numbers are finite. Codes and scales are copied as they are, so a copied row gives the same
// bits.

#ifndef QSF_KV_KV_BLOCK_H_
#define QSF_KV_KV_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "kv/kv_cache.h"
#include "kv/kv_page_store.h"

namespace qsf {

// Copies `slots` of one head: slots[i] becomes slot i % kKvPageSlots of block i / kKvPageSlots. The
// remaining slots of the last block become zeros.
// Shapes    sequence_pages as of KvCache::pages(); blocks [kv_pages_for(slots)] of
//           kv.block_bytes(part) bytes, behind each other
// Requires  slots ascending, and pages of them in sequence_pages; blocks.size() as above
// Threads   any
void gather_rows(const KvShape& kv, KvPart part, std::uint32_t kv_head, const KvLayerPages& pages,
                 std::span<const std::uint32_t> sequence_pages, std::span<const std::int32_t> slots,
                 MutableByteSpan blocks) noexcept;

// A slot of a K or V block.
struct BlockSlot {
  const std::byte* block = nullptr;
  std::uint32_t slot = 0;
};
struct MutableBlockSlot {
  std::byte* block = nullptr;
  std::uint32_t slot = 0;
};

// Copies one slot over another, of any block; the other slots of the block stay as they are.
// Requires  slots below kKvPageSlots
// Threads   any, of different blocks
void copy_slot(const KvShape& kv, KvPart part, BlockSlot from, MutableBlockSlot to) noexcept;

// Moves rows of every head within the pages of a layer, in this order.
// Threads  any, of different pages
void move_rows(const KvShape& kv, const KvLayerPages& pages,
               std::span<const RowMove> moves) noexcept;

// Returns whether every value of a block is finite: its elements, or the scales of its codes. Slots
// outside a row's visible ranges are masked with a factor of 0, which removes finite values alone.
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
