// SPDX-License-Identifier: MIT
//
// Rows of keys or values copied from the pages of a sequence into neighbouring blocks, or one by
// one.
//
// Codes and scales are copied as they are, so a row that is read from the copy gives the bits it
// gave.

#ifndef QSF_KV_GATHER_ROWS_H_
#define QSF_KV_GATHER_ROWS_H_

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
// Requires  slots ascending, and pages of them in sequence_pages; blocks.size() is what the shape
//           says
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

// Copies one slot over another; the other slots of the block stay as they are.
// Requires  slots below kKvPageSlots, of different blocks
// Threads   any, of different blocks
void copy_slot(const KvShape& kv, KvPart part, BlockSlot from, MutableBlockSlot to) noexcept;

}  // namespace qsf

#endif  // QSF_KV_GATHER_ROWS_H_
