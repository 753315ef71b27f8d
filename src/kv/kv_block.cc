// SPDX-License-Identifier: MIT

#include "kv/kv_block.h"

#include <cstring>

#include "base/check.h"

namespace qsf {
namespace {

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

bool kv_block_is_finite(const KvShape& shape, KvPart part, ByteSpan block) noexcept {
  const KvType type = part == KvPart::kKeys ? shape.k_type : shape.v_type;
  if (type == KvType::kF32) return all_finite(block, kF32Exponent);
  const std::uint64_t first =
      kv_is_quantised(type) ? kv_scales_offset(type, shape.head_dim) : std::uint64_t{0};
  return all_finite(block.subspan(static_cast<std::size_t>(first)), kF16Exponent);
}

void clear_kv_slots(const KvShape& shape, KvPart part, std::uint32_t first_slot,
                    MutableByteSpan block) noexcept {
  QSF_DCHECK(first_slot <= kKvPageSlots && block.size() == shape.block_bytes(part));
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
