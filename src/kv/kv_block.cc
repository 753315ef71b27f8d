// SPDX-License-Identifier: MIT
//
// Values lie by slot: a row is copied at once. Keys lie by dimension: a row is one element of each
// dimension, so the slots that share a page are copied dimension by dimension, whose 64 elements
// are a line or two.

#include "kv/kv_block.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "quant/kv_type.h"

namespace qsf {
namespace {

// The slots of a block that come from one page: number first_slot + i of the block is slot
// slots[i] % kKvPageSlots of the page.
struct SharedPage {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::uint32_t first_slot = 0;
  std::span<const std::int32_t> slots;
};

constexpr std::uint32_t slot_in_page(std::int32_t slot) noexcept {
  return static_cast<std::uint32_t>(slot) % kKvPageSlots;
}

// Both blocks begin with [n][kKvPageSlots] elements.
template <typename Element>
void copy_elements(const SharedPage& page, std::uint32_t n) noexcept {
  const auto n_slots = static_cast<std::uint32_t>(page.slots.size());
  const bool neighbours =
      n_slots > 1 &&
      slot_in_page(page.slots.back()) - slot_in_page(page.slots.front()) == n_slots - 1;
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::size_t row = std::size_t{i} * kKvPageSlots * sizeof(Element);
    const std::byte* from = page.from + row;
    std::byte* to = page.to + row + page.first_slot * sizeof(Element);
    if (neighbours) {
      std::memcpy(to, from + slot_in_page(page.slots.front()) * sizeof(Element),
                  n_slots * sizeof(Element));
      continue;
    }
    for (std::uint32_t s = 0; s < n_slots; ++s) {
      std::memcpy(to + s * sizeof(Element), from + slot_in_page(page.slots[s]) * sizeof(Element),
                  sizeof(Element));
    }
  }
}

// The same for codes of less than a byte: of the bytes of a dimension, byte j holds slot j in its
// lowest bits, then slot j + their number, and so on.
void copy_codes(const SharedPage& page, std::uint32_t n, std::uint32_t bits) noexcept {
  const std::uint32_t n_bytes = kKvPageSlots * bits / 8;
  const auto mask = static_cast<unsigned>((1U << bits) - 1);
  for (std::uint32_t s = 0; s < page.slots.size(); ++s) {
    const std::uint32_t from_slot = slot_in_page(page.slots[s]);
    const std::uint32_t to_slot = page.first_slot + s;
    const std::uint32_t from_shift = from_slot / n_bytes * bits;
    const std::uint32_t to_shift = to_slot / n_bytes * bits;
    const std::byte* from = page.from + from_slot % n_bytes;
    std::byte* to = page.to + to_slot % n_bytes;
    for (std::uint32_t i = 0; i < n; ++i) {
      const unsigned code = std::to_integer<unsigned>(from[i * n_bytes]) >> from_shift & mask;
      const unsigned others = std::to_integer<unsigned>(to[i * n_bytes]) & ~(mask << to_shift);
      to[i * n_bytes] = static_cast<std::byte>(others | code << to_shift);
    }
  }
}

void copy_keys(SharedPage page, KvType type, std::uint32_t head_dim) noexcept {
  const std::uint32_t n_columns = kv_columns(type, head_dim);
  const std::uint32_t bits = kv_bits(type);
  if (bits == 32) {
    copy_elements<std::uint32_t>(page, n_columns);
  } else if (bits == 16) {
    copy_elements<std::uint16_t>(page, n_columns);
  } else if (bits == 8) {
    copy_elements<std::uint8_t>(page, n_columns);
  } else {
    copy_codes(page, n_columns, bits);
  }
  page.from += kv_scales_offset(type, head_dim);
  page.to += kv_scales_offset(type, head_dim);
  copy_elements<std::uint16_t>(page, kv_groups(type, head_dim));
}

void copy_values(const SharedPage& page, KvType type, std::uint32_t head_dim) noexcept {
  const std::size_t row_bytes = std::size_t{kv_columns(type, head_dim)} * kv_bits(type) / 8;
  const std::size_t scale_bytes = std::size_t{2} * kv_groups(type, head_dim);
  const auto scales = static_cast<std::size_t>(kv_scales_offset(type, head_dim));
  for (std::uint32_t s = 0; s < page.slots.size(); ++s) {
    const std::uint32_t from_slot = slot_in_page(page.slots[s]);
    const std::uint32_t to_slot = page.first_slot + s;
    std::memcpy(page.to + to_slot * row_bytes, page.from + from_slot * row_bytes, row_bytes);
    std::memcpy(page.to + scales + to_slot * scale_bytes,
                page.from + scales + from_slot * scale_bytes, scale_bytes);
  }
}

void copy_shared(const SharedPage& page, const KvShape& kv, KvPart part) noexcept {
  if (part == KvPart::kKeys) {
    copy_keys(page, kv.k_type, kv.head_dim);
  } else {
    copy_values(page, kv.v_type, kv.head_dim);
  }
}

constexpr std::uint32_t kF32Exponent = 0x7F800000U;
constexpr std::uint16_t kF16Exponent = 0x7C00U;

// Returns whether no value has all bits of `exponent`, which infinities and NaN have.
template <typename Bits>
bool all_finite(ByteSpan bytes, Bits exponent) noexcept {
  unsigned n_special = 0;
  for (std::size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    n_special |= (load_le<Bits>(bytes, at) & exponent) == exponent ? 1U : 0U;
  }
  return n_special == 0;
}

// Clears slots of a row of kKvPageSlots elements of `bits` bits. Several elements of a byte belong
// to slots as far apart as the row has bytes (quant/kv_type.h).
void clear_slots_of_row(std::uint32_t bits, std::uint32_t first_slot, MutableByteSpan row) {
  if (bits >= 8) {
    const std::size_t from = std::size_t{first_slot} * bits / 8;
    std::memset(row.data() + from, 0, row.size() - from);
    return;
  }
  const auto n_bytes = static_cast<std::uint32_t>(row.size());
  const unsigned mask = (1U << bits) - 1;
  for (std::uint32_t slot = first_slot; slot < kKvPageSlots; ++slot) {
    std::byte& packed = row[slot % n_bytes];
    packed &= static_cast<std::byte>(~(mask << (slot / n_bytes * bits)));
  }
}

}  // namespace

void copy_slot(const KvShape& kv, KvPart part, BlockSlot from, MutableBlockSlot to) noexcept {
  if (!kv.holds(part)) return;
  const auto slot = static_cast<std::int32_t>(from.slot);
  copy_shared({from.block, to.block, to.slot, {&slot, 1}}, kv, part);
}

void move_rows(const KvShape& kv, const KvLayerPages& pages,
               std::span<const RowMove> moves) noexcept {
  for (const RowMove& move : moves) {
    const std::byte* const from = pages.page(move.from_page);
    std::byte* const to = pages.page(move.to_page);
    for (std::uint32_t kv_head = 0; kv_head < kv.n_kv_heads; ++kv_head) {
      for (const KvPart part : {KvPart::kKeys, KvPart::kValues}) {
        const std::uint64_t offset = kv.block_offset(kv_head, part);
        copy_slot(kv, part, {from + offset, move.from_slot}, {to + offset, move.to_slot});
      }
    }
  }
}

void gather_rows(const KvShape& kv, KvPart part, std::uint32_t kv_head, const KvLayerPages& pages,
                 std::span<const std::uint32_t> sequence_pages, std::span<const std::int32_t> slots,
                 MutableByteSpan blocks) noexcept {
  const auto block_bytes = static_cast<std::size_t>(kv.block_bytes(part));
  const std::size_t n_blocks = kv_pages_for(static_cast<std::uint32_t>(slots.size()));
  QSF_CHECK(blocks.size() == n_blocks * block_bytes);
  if (!kv.holds(part)) return;
  for (std::size_t i = 0; i < slots.size();) {
    const std::size_t block = i / kKvPageSlots;
    std::byte* to = blocks.data() + block * block_bytes;
    const bool fills_block = slots.size() - block * kKvPageSlots >= kKvPageSlots;
    if (i % kKvPageSlots == 0 && !fills_block) std::memset(to, 0, block_bytes);
    const std::uint32_t page = static_cast<std::uint32_t>(slots[i]) / kKvPageSlots;
    QSF_DCHECK(page < sequence_pages.size());
    const std::size_t block_end = std::min(slots.size(), (block + 1) * kKvPageSlots);
    std::size_t end = i + 1;
    while (end < block_end && static_cast<std::uint32_t>(slots[end]) / kKvPageSlots == page) ++end;
    const SharedPage shared{pages.page(sequence_pages[page]) + kv.block_offset(kv_head, part), to,
                            static_cast<std::uint32_t>(i % kKvPageSlots),
                            slots.subspan(i, end - i)};
    copy_shared(shared, kv, part);
    i = end;
  }
}

bool kv_block_is_finite(const KvShape& shape, KvPart part, ByteSpan block) noexcept {
  if (!shape.holds(part)) return true;
  const KvType type = part == KvPart::kKeys ? shape.k_type : shape.v_type;
  if (type == KvType::kF32) return all_finite(block, kF32Exponent);
  const std::uint64_t first =
      kv_is_quantised(type) ? kv_scales_offset(type, shape.head_dim) : std::uint64_t{0};
  return all_finite(block.subspan(static_cast<std::size_t>(first)), kF16Exponent);
}

void clear_kv_slots(const KvShape& shape, KvPart part, std::uint32_t first_slot,
                    MutableByteSpan block) noexcept {
  QSF_DCHECK(first_slot <= kKvPageSlots && block.size() == shape.block_bytes(part));
  if (!shape.holds(part)) return;
  const KvType type = part == KvPart::kKeys ? shape.k_type : shape.v_type;
  const std::uint32_t columns = kv_columns(type, shape.head_dim);
  const std::uint32_t groups = kv_groups(type, shape.head_dim);
  const auto scales_at = static_cast<std::size_t>(kv_scales_offset(type, shape.head_dim));
  const MutableByteSpan codes = block.first(scales_at);
  const MutableByteSpan scales = block.subspan(scales_at);
  if (part == KvPart::kValues) {  // by slot
    for (const MutableByteSpan part_bytes : {codes, scales}) {
      const std::size_t from = part_bytes.size() / kKvPageSlots * first_slot;
      std::memset(part_bytes.data() + from, 0, part_bytes.size() - from);
    }
    return;
  }
  const std::size_t row_bytes = codes.size() / columns;
  for (std::uint32_t column = 0; column < columns; ++column) {
    clear_slots_of_row(kv_bits(type), first_slot, codes.subspan(column * row_bytes, row_bytes));
  }
  constexpr std::size_t kScaleRowBytes = std::size_t{2} * kKvPageSlots;
  for (std::uint32_t group = 0; group < groups; ++group) {
    clear_slots_of_row(16, first_slot, scales.subspan(group * kScaleRowBytes, kScaleRowBytes));
  }
}

}  // namespace qsf
