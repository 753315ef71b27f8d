// SPDX-License-Identifier: MIT
//
// Tests of rows gathered from pages: every element and scale of every type is read back where its
// layout says, by code that knows the layout of one element and nothing of copying.

#include "kv/kv_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kv/testing/sparse_prefill_owner.h"

namespace qsf {
namespace {

constexpr std::uint32_t kHeads = 3;
constexpr std::uint32_t kPages = 7;
constexpr std::uint32_t kScattered[] = {5, 2, 6, 0, 3};  // pages of the sequence

// Bits of an element of a block, as quant/kv_type.h lays it out.
std::uint32_t element(const std::byte* block, KvPart part, KvType type, std::uint32_t head_dim,
                      std::uint32_t slot, std::uint32_t column) {
  const std::uint32_t bits = kv_bits(type);
  const std::uint32_t n_columns = kv_columns(type, head_dim);
  const bool is_key = part == KvPart::kKeys;
  if (bits >= 8) {
    const std::size_t at = is_key ? std::size_t{column} * 64 + slot : slot * n_columns + column;
    std::uint32_t value = 0;
    std::memcpy(&value, block + at * (bits / 8), bits / 8);
    return value;
  }
  // The fields of a byte are codes of a key's slots, or of a value's columns, that lie this far
  // apart.
  const std::uint32_t apart = (is_key ? 64 : 16) * bits / 8;
  const std::uint32_t index = is_key ? slot : column % 16;
  const std::size_t unit = is_key ? std::size_t{column} * apart
                                  : std::size_t{slot} * n_columns * bits / 8 + column / 16 * apart;
  const auto byte = std::to_integer<std::uint32_t>(block[unit + index % apart]);
  return byte >> (index / apart * bits) & ((1U << bits) - 1);
}

std::uint32_t scale(const std::byte* block, KvPart part, KvType type, std::uint32_t head_dim,
                    std::uint32_t slot, std::uint32_t group) {
  const std::uint32_t n_groups = kv_groups(type, head_dim);
  const std::size_t at =
      part == KvPart::kKeys ? std::size_t{group} * 64 + slot : std::size_t{slot} * n_groups + group;
  std::uint16_t value = 0;
  std::memcpy(&value, block + kv_scales_offset(type, head_dim) + 2 * at, 2);
  return value;
}

class GatherTest : public testing::TestWithParam<KvType> {
 protected:
  // Gathers and checks every slot of the copy.
  static void check(std::uint32_t head_dim, const std::vector<std::int32_t>& slots) {
    const KvShape kv{1, kHeads, head_dim, GetParam(), GetParam()};
    std::vector<std::byte> memory(static_cast<std::size_t>(kv.page_bytes() * kPages));
    Rng rng(head_dim);
    for (std::byte& byte : memory) byte = static_cast<std::byte>(rng.next_u32());
    ResidentKvStore store(kv, memory);
    const KvLayerPages pages = store.acquire_layer(0);
    const auto n_slots = static_cast<std::uint32_t>(slots.size());
    for (const KvPart part : {KvPart::kKeys, KvPart::kValues}) {
      for (std::uint32_t kv_head = 0; kv_head < kHeads; ++kv_head) {
        const auto block_bytes = static_cast<std::size_t>(kv.block_bytes(part));
        std::vector<std::byte> blocks(kv_pages_for(n_slots) * block_bytes, std::byte{0xEE});
        gather_rows(kv, part, kv_head, pages, kScattered, slots, blocks);
        for (std::uint32_t i = 0; i < kv_pages_for(n_slots) * 64; ++i) {
          const std::byte* to = blocks.data() + i / 64 * block_bytes;
          const std::byte* from = nullptr;
          std::uint32_t slot = 0;
          if (i < n_slots) {
            slot = static_cast<std::uint32_t>(slots[i]) % 64;
            from = pages.page(kScattered[slots[i] / 64]) + kv.block_offset(kv_head, part);
          }
          for (std::uint32_t c = 0; c < kv_columns(GetParam(), head_dim); ++c) {
            ASSERT_EQ(element(to, part, GetParam(), head_dim, i % 64, c),
                      from ? element(from, part, GetParam(), head_dim, slot, c) : 0)
                << "slot " << i << " column " << c;
          }
          for (std::uint32_t g = 0; g < kv_groups(GetParam(), head_dim); ++g) {
            ASSERT_EQ(scale(to, part, GetParam(), head_dim, i % 64, g),
                      from ? scale(from, part, GetParam(), head_dim, slot, g) : 0)
                << "slot " << i << " group " << g;
          }
        }
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(, GatherTest, testing::ValuesIn(kAllKvTypes), [](const auto& type) {
  return "kv" + std::string(kv_type_name(type.param));
});

TEST_P(GatherTest, CopiesEveryElementOfScatteredSlots) {
  for (const std::uint32_t head_dim : {20U, 64U, 80U}) {
    check(head_dim, {0, 1, 5, 63, 64, 66, 127, 130, 200, 255, 256, 300, 319});
  }
}

TEST_P(GatherTest, CopiesRunsThatCrossPagesAndBlocks) {
  std::vector<std::int32_t> slots = {3, 9, 11};
  for (std::int32_t slot = 50; slot < 300; ++slot) slots.push_back(slot);
  check(64, slots);
}

TEST_P(GatherTest, FillsWholeBlocksAndGathersNothing) {
  std::vector<std::int32_t> slots;
  for (std::int32_t slot = 1; slot < 257; slot += 2) slots.push_back(slot);
  check(48, slots);  // 128 slots: no slot remains
  check(48, {});
}

// Over slots in use, in another order: each is replaced whole, and its neighbours stay.
TEST_P(GatherTest, CopiesOneSlotOverAnother) {
  for (const std::uint32_t head_dim : {20U, 80U}) {
    const KvShape kv{1, 1, head_dim, GetParam(), GetParam()};
    Rng rng(head_dim);
    for (const KvPart part : {KvPart::kKeys, KvPart::kValues}) {
      std::vector<std::byte> from(static_cast<std::size_t>(kv.block_bytes(part)));
      for (std::byte& byte : from) byte = static_cast<std::byte>(rng.next_u32());
      std::vector<std::byte> to(from.size(), std::byte{0x5A});
      const std::vector<std::byte> before = to;
      const auto source_of = [](std::uint32_t slot) { return (slot * 11 + 3) % 64; };
      for (std::uint32_t slot = 0; slot < 64; slot += 2) {
        copy_slot(kv, part, {from.data(), source_of(slot)}, {to.data(), slot});
      }
      for (std::uint32_t slot = 0; slot < 64; ++slot) {
        const std::byte* want = slot % 2 == 0 ? from.data() : before.data();
        const std::uint32_t want_slot = slot % 2 == 0 ? source_of(slot) : slot;
        for (std::uint32_t c = 0; c < kv_columns(GetParam(), head_dim); ++c) {
          ASSERT_EQ(element(to.data(), part, GetParam(), head_dim, slot, c),
                    element(want, part, GetParam(), head_dim, want_slot, c))
              << "slot " << slot << " column " << c;
        }
        for (std::uint32_t g = 0; g < kv_groups(GetParam(), head_dim); ++g) {
          ASSERT_EQ(scale(to.data(), part, GetParam(), head_dim, slot, g),
                    scale(want, part, GetParam(), head_dim, want_slot, g))
              << "slot " << slot << " group " << g;
        }
      }
    }
  }
}

TEST(GatherMembersTest, HeadsOfAStateGatherTheirOwnMembers) {
  const KvShape kv{1, kHeads, 16, KvType::kF32, KvType::kF32};
  std::vector<std::byte> memory(static_cast<std::size_t>(kv.page_bytes() * kPages));
  ResidentKvStore store(kv, memory);
  const KvLayerPages pages = store.acquire_layer(0);
  for (std::uint32_t position = 0; position < 256; ++position) {
    for (std::uint32_t h = 0; h < kHeads; ++h) {
      for (const KvPart part : {KvPart::kKeys, KvPart::kValues}) {
        const float value = static_cast<float>(1000 * h + position);
        std::byte* block = pages.page(kScattered[position / 64]) + kv.block_offset(h, part);
        for (std::uint32_t c = 0; c < 16; ++c) {
          const std::uint32_t at =
              part == KvPart::kKeys ? c * 64 + position % 64 : position % 64 * 16 + c;
          std::memcpy(block + at * 4, &value, 4);
        }
      }
    }
  }
  SparsePrefillOwner state({.n_layers = 1,
                            .n_kv_heads = kHeads,
                            .kv_size = 256,
                            .options = {.local = 50, .heavy = 30, .chunk = 200}});
  Rng rng(1);
  const auto sums = uniform_floats(rng, kHeads * 200, 0.0F, 1.0F);
  ASSERT_TRUE(state->init_chunk_scores(0, 0, 200, sums).ok());
  ASSERT_TRUE(state->build_memory_set(0, 200).ok());
  std::vector<std::byte> keys(static_cast<std::size_t>(2 * kv.block_bytes(KvPart::kKeys)));
  std::vector<std::byte> values(static_cast<std::size_t>(2 * kv.block_bytes(KvPart::kValues)));
  for (std::uint32_t h = 0; h < kHeads; ++h) {
    state->gather_k_memory(0, h, kv, pages, kScattered, keys);
    state->gather_v_memory(0, h, kv, pages, kScattered, values);
    const auto members = state->members(0, h);
    ASSERT_EQ(members.size(), 80U);
    for (std::uint32_t m = 0; m < 80; ++m) {
      const float want = static_cast<float>(1000 * h) + static_cast<float>(members[m]);
      float key = 0.0F;
      float value = 0.0F;
      std::memcpy(&key, keys.data() + m / 64 * 4096 + (7 * 64 + m % 64) * 4, 4);
      std::memcpy(&value, values.data() + m / 64 * 4096 + (m % 64 * 16 + 7) * 4, 4);
      EXPECT_EQ(key, want);
      EXPECT_EQ(value, want);
    }
  }
}

}  // namespace
}  // namespace qsf
