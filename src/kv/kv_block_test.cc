// SPDX-License-Identifier: MIT
//
// Tests of blocks of every type: slots that are cleared and all others kept, and values that are no
// numbers found wherever they are.

#include "kv/kv_block.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

namespace qsf {
namespace {

KvShape shape_of(KvType type, std::uint32_t head_dim) {
  return {.n_layers = 1, .n_kv_heads = 1, .head_dim = head_dim, .k_type = type, .v_type = type};
}

// Bit `bit` of element or code (column, slot) of a block, as quant/kv_type.h has it.
struct Place {
  std::size_t byte;
  unsigned bit;
};
Place place_of(KvType type, std::uint32_t head_dim, KvPart part, std::uint32_t column,
               std::uint32_t slot) {
  const std::uint32_t bits = kv_bits(type);
  const std::uint32_t columns = kv_columns(type, head_dim);
  if (bits >= 8) {
    const std::uint32_t at =
        part == KvPart::kKeys ? column * kKvPageSlots + slot : slot * columns + column;
    return {std::size_t{at} * bits / 8, 0};
  }
  // Keys: bytes of a column count slots; values: bytes of a unit of 16 columns count columns.
  if (part == KvPart::kKeys) {
    const std::uint32_t n_bytes = kKvPageSlots * bits / 8;
    return {std::size_t{column} * n_bytes + slot % n_bytes, slot / n_bytes * bits};
  }
  const std::uint32_t n_bytes = 16 * bits / 8;
  const std::uint32_t unit = slot * (columns / 16) + column / 16;
  return {std::size_t{unit} * n_bytes + column % 16 % n_bytes, column % 16 / n_bytes * bits};
}

TEST(KvBlockTest, ClearsTheSlotsFromOneOnAndNoOther) {
  for (const KvType type : kAllKvTypes) {
    for (const std::uint32_t head_dim : {16U, 24U, 64U}) {
      for (const KvPart part : {KvPart::kKeys, KvPart::kValues}) {
        const KvShape shape = shape_of(type, head_dim);
        for (const std::uint32_t first : {0U, 1U, 31U, 33U, 63U, 64U}) {
          SCOPED_TRACE(std::string(kv_type_name(type)) + " of " + std::to_string(head_dim) +
                       " from slot " + std::to_string(first));
          std::vector<std::byte> block(shape.block_bytes(part), std::byte{0xFF});
          clear_kv_slots(shape, part, first, block);
          for (std::uint32_t slot = 0; slot < kKvPageSlots; ++slot) {
            for (std::uint32_t column = 0; column < kv_columns(type, head_dim); ++column) {
              const Place at = place_of(type, head_dim, part, column, slot);
              const unsigned set = std::to_integer<unsigned>(block[at.byte]) >> at.bit & 1U;
              ASSERT_EQ(set, slot < first ? 1U : 0U) << column << " " << slot;
            }
          }
          // Scales, two bytes each: as many of a slot as there are groups.
          std::size_t n_set = 0;
          for (std::size_t i = kv_scales_offset(type, head_dim); i < block.size(); ++i) {
            n_set += block[i] != std::byte{0} ? 1U : 0U;
          }
          EXPECT_EQ(n_set, std::size_t{2} * first * kv_groups(type, head_dim));
        }
      }
    }
  }
}

TEST(KvBlockTest, FindsValuesThatAreNoNumbers) {
  for (const KvType type : kAllKvTypes) {
    const KvShape shape = shape_of(type, 24);
    std::vector<std::byte> block(shape.block_bytes(KvPart::kKeys), std::byte{0x3F});
    const std::size_t first = kv_is_quantised(type) ? kv_scales_offset(type, 24) : 0;
    EXPECT_TRUE(kv_block_is_finite(shape, KvPart::kKeys, block));
    const std::size_t n_bytes = type == KvType::kF32 ? 4 : 2;
    for (const std::size_t at : {first, block.size() - n_bytes}) {
      std::vector<std::byte> bad = block;
      bad[at + n_bytes - 1] = std::byte{0xFF};
      bad[at + n_bytes - 2] = std::byte{0x80};
      // 0xFF80....: no number as f32; as f16 0xFF80 is none either.
      EXPECT_FALSE(kv_block_is_finite(shape, KvPart::kKeys, bad)) << kv_type_name(type);
    }
    // Codes may be anything.
    if (kv_is_quantised(type)) {
      std::fill(block.begin(), block.begin() + static_cast<std::ptrdiff_t>(first), std::byte{0xFF});
      EXPECT_TRUE(kv_block_is_finite(shape, KvPart::kKeys, block)) << kv_type_name(type);
    }
  }
}

}  // namespace
}  // namespace qsf
