// SPDX-License-Identifier: MIT
//
// Holds the store of K and V rows to the layout of quant/kv_type.h, of every tier's kernels.

#include "kernels/kv_rows/kv_store.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/f16.h"
#include "kernels/testing/guard_pages.h"
#include "kernels/testing/isa_coverage.h"
#include "kernels/testing/seeded_rng.h"

namespace qsf::kernels {
namespace {

using testing_support::GuardedBytes;
using testing_support::SeededRng;

class KvStoreTest : public testing::TestWithParam<KvRowKernels> {
 protected:
  void SetUp() override {
    if (!testing_support::can_run(GetParam())) {
      GTEST_SKIP() << testing_support::lacking(GetParam().isa);
    }
  }
  // Narrowing is bit-exact over all tiers.
  KvStore store() const { return {convert_kernels().back(), kernels_}; }

 private:
  const KvRowKernels kernels_ = GetParam();
};

constexpr std::uint32_t kHeadDims[] = {1, 8, 10, 63, 64, 80, 96, 100, 128, 150, 1024};
constexpr std::uint32_t kSlots[] = {0, 5, 15, 16, 21, 31, 32, 37, 53, kKvPageSlots - 1};

// A block as the layout says, one slot of which is written by hand.
class ExpectedBlock {
 public:
  ExpectedBlock(KvType type, std::uint32_t head_dim, std::byte fill)
      : type_(type), head_dim_(head_dim), bytes_(kv_block_bytes(type, head_dim), fill) {}

  void write(const KvRowKernels& kernels, const std::vector<float>& row, std::uint32_t slot,
             bool is_key) {
    if (!kv_is_quantised(type_)) {
      for (std::uint32_t d = 0; d < head_dim_; ++d) {
        const std::size_t index =
            is_key ? std::size_t{d} * kKvPageSlots + slot : std::size_t{slot} * head_dim_ + d;
        const F16 half = to_f16(row[d]);
        if (type_ == KvType::kF32) {
          std::memcpy(&bytes_[index * 4], &row[d], 4);
        } else {
          std::memcpy(&bytes_[index * 2], &half, 2);
        }
      }
      return;
    }
    const KvRowFormat format = kv_row_format(type_, head_dim_);
    std::vector<float> padded(row);
    padded.resize(format.head_dim);
    if (is_key || type_ == KvType::k2Bit) kernels.rotate(padded.data(), format.head_dim);
    std::vector<std::byte> coded(kv_quantised_row_bytes(format));
    kernels.quantise(padded.data(), coded.data(), format);
    for (std::uint32_t d = 0; d < format.head_dim; ++d) write_code(format, coded, slot, d, is_key);
    const std::size_t n_groups = format.head_dim / format.group;
    for (std::size_t g = 0; g < n_groups; ++g) {
      const std::size_t index = is_key ? g * kKvPageSlots + slot : slot * n_groups + g;
      std::memcpy(&bytes_[kKvPageSlots * format.head_dim * format.bits / 8 + 2 * index],
                  &coded[kv_row_scales_offset(format) + 2 * g], 2);
    }
  }

  bool same_as(const GuardedBytes& block) const {
    return block.size() == bytes_.size() &&
           std::memcmp(block.data(), bytes_.data(), bytes_.size()) == 0 && block.front_intact();
  }

 private:
  void write_code(const KvRowFormat& format, const std::vector<std::byte>& coded,
                  std::uint32_t slot, std::uint32_t d, bool is_key) {
    const std::size_t row = std::size_t{slot} * format.head_dim;
    if (format.bits == 8) {
      bytes_[is_key ? std::size_t{d} * kKvPageSlots + slot : row + d] = coded[d];
      return;
    }
    const std::size_t unit = format.bits == 4 ? d / 16 * 8 + d % 8 : d / 16 * 4 + d % 4;
    if (!is_key) {
      bytes_[row * format.bits / 8 + unit] = coded[unit];
      return;
    }
    const unsigned fields = static_cast<unsigned>(coded[unit]);
    if (format.bits == 4) {
      const unsigned code = fields >> (d % 16 < 8 ? 0 : 4) & 15U;
      std::byte& pair = bytes_[std::size_t{d} * 32 + slot % 32];
      const unsigned old = static_cast<unsigned>(pair);
      pair = static_cast<std::byte>(slot < 32 ? (old & 0xF0U) | code : (old & 0x0FU) | code << 4);
      return;
    }
    const unsigned code = fields >> (d % 16 / 4 * 2) & 3U;
    std::byte& four = bytes_[std::size_t{d} * 16 + slot % 16];
    const unsigned at = slot / 16 * 2;
    four = static_cast<std::byte>((static_cast<unsigned>(four) & ~(3U << at)) | code << at);
  }

  KvType type_;
  std::uint32_t head_dim_;
  std::vector<std::byte> bytes_;
};

// One slot after the other, over bytes of both kinds: each is where the layout says, and no other
// slot changes.
TEST_P(KvStoreTest, StoresRowsByTheLayoutAndLeavesOtherSlots) {
  SeededRng rng;
  for (const KvType type : kAllKvTypes) {
    for (const std::uint32_t head_dim : kHeadDims) {
      for (const bool is_key : {true, false}) {
        for (const std::byte fill : {std::byte{0x5A}, std::byte{0xA5}}) {
          const GuardedBytes block(kv_block_bytes(type, head_dim));
          std::memset(block.data(), static_cast<int>(fill), block.size());
          ExpectedBlock want(type, head_dim, fill);
          for (const std::uint32_t slot : kSlots) {
            std::vector<float> row(head_dim);
            for (float& v : row) v = rng.get().next_normal();
            is_key ? store_key(store(), type, row.data(), block.data(), slot, head_dim)
                   : store_value(store(), type, row.data(), block.data(), slot, head_dim);
            want.write(GetParam(), row, slot, is_key);
            EXPECT_TRUE(want.same_as(block))
                << kv_type_name(type) << ' ' << head_dim << ' ' << slot << ' ' << is_key;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, KvStoreTest, testing::ValuesIn(kv_row_kernels()),
                         testing_support::KernelName{});

// Numbers of the layout, written out: columns are padded to 16, groups never span two blocks of the
// rotation in 4 and 2 bits, and blocks are multiples of 64 bytes.
TEST(KvTypeTest, SizesAreThoseOfTheLayout) {
  EXPECT_EQ(kv_block_bytes(KvType::kF32, 10), 64U * 40);
  EXPECT_EQ(kv_block_bytes(KvType::kF16, 10), 64U * 20);
  EXPECT_EQ(kv_block_bytes(KvType::k8Bit, 128), 64U * (128 + 2));
  EXPECT_EQ(kv_block_bytes(KvType::k4Bit, 128), 64U * (64 + 4 * 2));
  EXPECT_EQ(kv_block_bytes(KvType::k8Bit, 10), 64U * (16 + 2));
  EXPECT_EQ(kv_block_bytes(KvType::k4Bit, 80), 64U * (40 + 5 * 2));
  EXPECT_EQ(kv_block_bytes(KvType::k4Bit, 96), 64U * (48 + 3 * 2));
  EXPECT_EQ(kv_block_bytes(KvType::k2Bit, 128), 64U * (32 + 4 * 2));
  EXPECT_EQ(kv_block_bytes(KvType::k2Bit, 80), 64U * (20 + 5 * 2));
  EXPECT_EQ(kv_block_bytes(KvType::k2Bit, 10), 64U * (4 + 1 * 2));
  for (std::uint32_t head_dim = 1; head_dim <= kMaxHeadDim; ++head_dim) {
    for (const KvType type : kAllKvTypes) EXPECT_EQ(kv_block_bytes(type, head_dim) % 64, 0U);
    for (const KvType type : {KvType::k4Bit, KvType::k2Bit}) {
      const KvRowFormat format = kv_row_format(type, head_dim);
      EXPECT_GE(format.head_dim, head_dim);
      EXPECT_EQ(format.head_dim % 16, 0U);
      EXPECT_LE(format.group, hadamard_block(format.head_dim));
      EXPECT_EQ(format.head_dim % format.group, 0U);
    }
  }
}

}  // namespace
}  // namespace qsf::kernels
