// SPDX-License-Identifier: MIT
//
// Shapes of caches whose layers have heads of their own, and the places of these layers in pages.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "base/bytes.h"
#include "kv/kv_cache.h"
#include "kv/kv_page_store.h"

namespace qsf {
namespace {

constexpr KvHeads kLayers[] = {{3, 6}, {1, 16}, {2, 10}};
constexpr KvShape kLayered = {.n_layers = 3,
                              .n_kv_heads = 3,
                              .head_dim = 16,
                              .k_type = KvType::k8Bit,
                              .v_type = KvType::kF16,
                              .by_layer = kLayers};

std::uint64_t bytes_of(const KvHeads& heads) {
  return heads.n_kv_heads * (kv_block_bytes(KvType::k8Bit, heads.head_dim) +
                             kv_block_bytes(KvType::kF16, heads.head_dim));
}

TEST(KvShapeTest, LayersLieBehindEachOtherWithTheirOwnBytes) {
  std::uint64_t at = 0;
  std::uint64_t most = 0;
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    const KvShape one = kLayered.of_layer(layer);
    EXPECT_EQ(one.n_layers, 1U);
    EXPECT_EQ(one.n_kv_heads, kLayers[layer].n_kv_heads);
    EXPECT_EQ(one.head_dim, kLayers[layer].head_dim);
    EXPECT_EQ(one.layer_bytes(), bytes_of(kLayers[layer]));
    EXPECT_EQ(kLayered.layer_offset(layer), at);
    at += one.layer_bytes();
    most = std::max(most, one.layer_bytes());
  }
  EXPECT_EQ(kLayered.page_bytes(), at);
  EXPECT_EQ(kLayered.layer_bytes(), most);
}

TEST(KvShapeTest, AResidentStoreHasEachLayerAtItsOffset) {
  std::vector<std::byte> memory(static_cast<std::size_t>(2 * kLayered.page_bytes()));
  ResidentKvStore store(kLayered, memory);
  EXPECT_EQ(ResidentKvStore::region_bytes(kLayered, 2), memory.size());
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    const KvLayerPages pages = store.acquire_layer(layer);
    EXPECT_EQ(pages.page(0), memory.data() + kLayered.layer_offset(layer));
    EXPECT_EQ(pages.page(1), pages.page(0) + kLayered.page_bytes());
  }
}

TEST(KvShapeTest, ACacheRefusesLayersThatDoNotFit) {
  const auto code = [](KvShape shape) {
    static std::vector<std::byte> memory(1 << 16);
    const KvLimits limits = {.n_pages = 2};
    auto* const first = memory.data() + 64 - std::bit_cast<std::uintptr_t>(memory.data()) % 64;
    const auto cache = KvCache::create(shape, limits, {first, memory.size() - 64});
    return cache.has_value() ? StatusCode::kOk : cache.error().code();
  };
  EXPECT_EQ(code(kLayered), StatusCode::kOk);
  KvShape shape = kLayered;
  shape.n_layers = 2;
  EXPECT_EQ(code(shape), StatusCode::kInvalidArgument);
  shape = kLayered;
  shape.head_dim = 15;
  EXPECT_EQ(code(shape), StatusCode::kInvalidArgument);
  shape = kLayered;
  shape.n_kv_heads = 2;
  EXPECT_EQ(code(shape), StatusCode::kInvalidArgument);
  constexpr KvHeads kEmpty[] = {{3, 6}, {1, 16}, {0, 10}};
  shape = kLayered;
  shape.by_layer = kEmpty;
  EXPECT_EQ(code(shape), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace qsf
