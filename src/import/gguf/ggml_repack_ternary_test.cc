// SPDX-License-Identifier: MIT
//
// GGUF's ternary rows in types of ours: the same weights, or a reason.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/f16.h"
#include "base/rng.h"
#include "import/gguf/ggml_types.h"
#include "quant/codec.h"

namespace qsf {
namespace {

using testing::HasSubstr;

constexpr std::uint32_t kColumns = 768;

struct TernaryCase {
  GgmlType type;
  BlockFormat kept;
  bool has_code_3;       // any byte may hold one
  std::size_t scale_at;  // of the first block, or of the row
  std::size_t step;      // to the next scale; 0: there is one
  std::size_t scale_bytes;

  std::uint32_t number() const { return static_cast<std::uint32_t>(type); }
};

constexpr TernaryCase kCases[] = {
    {GgmlType::kTQ1_0, {QuantType::kTernary, 256}, false, 52, 54, 2},
    {GgmlType::kTQ2_0, {QuantType::kTernary, 256}, true, 64, 66, 2},
    {GgmlType::kIQ1BN, block_format(QuantType::kTernaryRow, 0), false, 0, 0, 2},
    {GgmlType::kIQ2BN, block_format(QuantType::kTernaryRow, 0), true, 0, 0, 4},
};

// Random codes under random scales of either sign.
std::vector<std::byte> random_row(const TernaryCase& c, Rng& rng) {
  std::vector<std::byte> row(*ggml_row_bytes(c.number(), kColumns));
  for (std::byte& byte : row) {
    unsigned codes = rng.below(256);
    if (c.has_code_3) codes &= ~((codes & codes >> 1U & 0x55U) << 1U);
    byte = static_cast<std::byte>(codes);
  }
  const MutableByteSpan bytes(row);
  for (std::size_t at = c.scale_at; at < row.size(); at += c.step) {
    const float scale =
        std::ldexp(2.0F * rng.next_f32() - 1.0F, static_cast<int>(rng.below(20)) - 14);
    if (c.scale_bytes == 4) store_le(bytes, at, scale);
    if (c.scale_bytes == 2) store_le(bytes, at, to_f16(rng.below(20) == 0 ? 0.0F : scale));
    if (c.step == 0) break;
  }
  return row;
}

Status repack(const TernaryCase& c, ByteSpan row, std::vector<std::byte>& out) {
  out.assign(row_major_bytes(c.kept, kColumns), std::byte{0xA5});
  return repack_ggml_row(c.number(), row, kColumns, out);
}

TEST(GgmlRepackTernaryTest, KeepsRandomRowsExactly) {
  Rng rng(1);
  for (const TernaryCase& c : kCases) {
    SCOPED_TRACE(ggml_type_name(c.number()));
    ASSERT_EQ(kept_format(c.number()), c.kept);
    for (int i = 0; i < 100; ++i) {
      const std::vector<std::byte> row = random_row(c, rng);
      std::vector<float> expected(kColumns);
      decode_ggml_row(c.number(), row, expected);
      std::vector<std::byte> packed;
      const Status status = repack(c, row, packed);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(check_blocks(c.kept, Layout::kRowMajor, 1, kColumns, packed).ok());
      std::vector<float> out(kColumns);
      decode_row(c.kept, packed, out);
      ASSERT_EQ(out, expected);
    }
  }
}

// The rows of IQ2_BN are ours, byte for byte.
TEST(GgmlRepackTernaryTest, RowsOfIq2BnAreTernaryRows) {
  Rng rng(2);
  const std::vector<std::byte> row = random_row(kCases[3], rng);
  std::vector<std::byte> packed;
  ASSERT_TRUE(repack(kCases[3], row, packed).ok());
  EXPECT_EQ(packed, row);
}

TEST(GgmlRepackTernaryTest, CodeThreeCannotBeHeld) {
  Rng rng(3);
  for (const TernaryCase& c : kCases) {
    if (!c.has_code_3) continue;
    std::vector<std::byte> row = random_row(c, rng);
    const std::size_t last = row.size() - (c.step == 0 ? 1 : 3);
    row[last] = std::byte{0xC0};
    for (std::size_t at = c.scale_at; at < row.size(); at += c.step) {
      if (c.scale_bytes == 2) store_le(MutableByteSpan(row), at, to_f16(0.5F));
      if (c.step == 0) break;
    }
    std::vector<std::byte> packed;
    const Status status = repack(c, row, packed);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(status.message(), HasSubstr(c.step == 0 ? "block 11: the code 3" : "block 2: the"));
  }
}

TEST(GgmlRepackTernaryTest, ScalesMustBeFinite) {
  Rng rng(4);
  for (const TernaryCase& c : kCases) {
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      std::vector<std::byte> row = random_row(c, rng);
      const MutableByteSpan bytes(row);
      if (c.scale_bytes == 4) store_le(bytes, c.scale_at + c.step, bad);
      if (c.scale_bytes == 2) store_le(bytes, c.scale_at + c.step, to_f16(bad));
      std::vector<std::byte> packed;
      EXPECT_EQ(repack(c, row, packed).code(), StatusCode::kCorrupt) << ggml_type_name(c.number());
    }
  }
}

}  // namespace
}  // namespace qsf
