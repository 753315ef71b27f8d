// SPDX-License-Identifier: MIT
//
// Repacks GGUF rows into QSF types: every row of random bytes is either refused with a reason or
// decodes to the same numbers.

#include "import/gguf/ggml_repack.h"
#include "import/gguf/ggml_types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "base/f16.h"
#include "base/rng.h"
#include "quant/codec.h"

namespace qsf {
namespace {

using testing::HasSubstr;

constexpr std::uint32_t kColumns = 512;

constexpr std::uint32_t number(GgmlType type) {
  return static_cast<std::uint32_t>(type);
}

// What keeps a type, and where its blocks have f16 fields.
struct KeptCase {
  GgmlType type;
  QuantType kept;
  std::uint32_t block;
  std::vector<std::size_t> halves;
};

void PrintTo(const KeptCase& kept, std::ostream* out) {
  *out << ggml_type_name(number(kept.type));
}

std::vector<KeptCase> kept_cases() {
  std::vector<KeptCase> cases = {{GgmlType::kF32, QuantType::kF32, 4, {}}};
  const auto add = [&cases](GgmlType type, QuantType kept, std::uint32_t block,
                            std::vector<std::size_t> halves) {
    cases.push_back({type, kept, block, std::move(halves)});
  };
  add(GgmlType::kF16, QuantType::kF16, 4, {0});
  add(GgmlType::kBF16, QuantType::kBF16, 4, {});
  add(GgmlType::kQ4_0, QuantType::kQ4, 32, {0});
  add(GgmlType::kQ4_1, QuantType::kQ4, 32, {0, 2});
  add(GgmlType::kQ5_0, QuantType::kQ8, 32, {0});
  add(GgmlType::kQ8_0, QuantType::kQ8, 32, {0});
  add(GgmlType::kQ2K, QuantType::kQ2K, 16, {80, 82});
  add(GgmlType::kQ3K, QuantType::kQ3K, 16, {108});
  add(GgmlType::kQ4K, QuantType::kQ4Super, 32, {0, 2});
  add(GgmlType::kQ5K, QuantType::kQ5K, 32, {0, 2});
  add(GgmlType::kQ6K, QuantType::kQ6K, 16, {208});
  add(GgmlType::kIQ4NL, QuantType::kQ8, 32, {0});
  add(GgmlType::kIQ4XS, QuantType::kQ4Codebook, 32, {0});
  add(GgmlType::kMXFP4, QuantType::kMxfp4, 32, {});
  return cases;
}

std::vector<std::byte> random_row(std::uint32_t type, Rng& rng) {
  std::vector<std::byte> row(*ggml_row_bytes(type, kColumns));
  for (std::byte& byte : row) byte = static_cast<std::byte>(rng.next_u32() >> 24U);
  return row;
}

// Fields that matter: zeros, the smallest and largest subnormals, normals, the largest number whose
// eightfold is an f16, both signs.
F16 edge_half(Rng& rng) {
  constexpr std::uint16_t kEdges[] = {0x0000, 0x0001, 0x0002, 0x03FF, 0x0400, 0x1234,
                                      0x3C00, 0x3555, 0x5BFF, 0x68FF, 0x6FFF};
  const std::uint16_t sign = rng.below(2) != 0 ? 0x8000 : 0;
  return {static_cast<std::uint16_t>(kEdges[rng.below(std::size(kEdges))] | sign)};
}

std::vector<std::byte> edge_row(const KeptCase& kept, Rng& rng) {
  std::vector<std::byte> row = random_row(number(kept.type), rng);
  const GgmlTypeInfo info = *ggml_type_info(number(kept.type));
  for (std::size_t at = 0; at < row.size(); at += info.block_bytes) {
    for (const std::size_t half : kept.halves) {
      store_le(MutableByteSpan(row), at + half, edge_half(rng));
    }
  }
  return row;
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

// Returns whether the row was kept; checks it where it was, and the reason where it was not.
bool expect_kept_exactly(const KeptCase& kept, ByteSpan row) {
  const std::uint32_t type = number(kept.type);
  const BlockFormat format = {kept.kept, kept.block};
  EXPECT_EQ(kept_format(type), format);
  std::vector<float> expected(kColumns);
  decode_ggml_row(type, row, expected);
  std::vector<std::byte> packed(row_major_bytes(format, kColumns));
  const Status status = repack_ggml_row(type, row, kColumns, packed);
  const bool finite =
      std::all_of(expected.begin(), expected.end(), [](float w) { return std::isfinite(w); });
  if (status.code() == StatusCode::kCorrupt) {
    EXPECT_FALSE(finite) << status.message();
    return false;
  }
  if (!status.ok()) {
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(status.message(), HasSubstr("convert to"));
    EXPECT_TRUE(kept.type == GgmlType::kQ4_0 || kept.type == GgmlType::kQ8_0);
    return false;
  }
  EXPECT_TRUE(finite);
  EXPECT_TRUE(check_blocks(format, Layout::kRowMajor, 1, kColumns, packed).ok());
  std::vector<float> out(kColumns);
  decode_row(format, packed, out);
  for (std::size_t i = 0; i < kColumns; ++i) {
    const bool zero_of_q4_0 = kept.type == GgmlType::kQ4_0 && expected[i] == 0.0F;
    const bool same = zero_of_q4_0 ? out[i] == 0.0F : same_bits(out[i], expected[i]);
    EXPECT_TRUE(same) << "column " << i << ": " << out[i] << ", expected " << expected[i];
    if (!same) break;
  }
  return true;
}

class GgmlKeptTest : public testing::TestWithParam<KeptCase> {};

TEST_P(GgmlKeptTest, KeepsRandomRowsExactly) {
  Rng rng(1);
  const KeptCase& kept = GetParam();
  for (int i = 0; i < 400 && !HasFailure(); ++i) {
    std::vector<std::byte> row = edge_row(kept, rng);
    if (kept.type == GgmlType::kQ8_0) {
      std::replace(row.begin(), row.end(), std::byte{0x80}, std::byte{0});
    }
    for (std::size_t at = 0; kept.type == GgmlType::kMXFP4 && at < row.size(); at += 17) {
      row[at] = static_cast<std::byte>(rng.below(253));
    }
    if (is_float_type(kept.kept)) {
      for (std::size_t at = 1; at < row.size(); at += 2) row[at] &= std::byte{0xBB};
    }
    EXPECT_TRUE(expect_kept_exactly(kept, row));
  }
}

TEST_P(GgmlKeptTest, RefusesOrKeepsAnyBytes) {
  Rng rng(2);
  const KeptCase& kept = GetParam();
  for (int i = 0; i < 200; ++i) expect_kept_exactly(kept, random_row(number(kept.type), rng));
}

INSTANTIATE_TEST_SUITE_P(Types, GgmlKeptTest, testing::ValuesIn(kept_cases()),
                         [](const auto& param) {
                           return std::string(ggml_type_name(number(param.param.type)));
                         });

TEST(GgmlRepackTest, SaysWhatCannotBeHeld) {
  std::vector<std::byte> packed(row_major_bytes({QuantType::kQ8, 32}, 64));
  std::vector<std::byte> row(68);
  row[34 + 33] = std::byte{0x80};
  const Status code = repack_ggml_row(number(GgmlType::kQ8_0), row, 64, packed);
  EXPECT_EQ(code.code(), StatusCode::kUnsupported);
  EXPECT_THAT(code.message(), HasSubstr("block 1: the code -128"));

  packed.resize(row_major_bytes({QuantType::kQ4, 32}, 32));
  row.assign(18, std::byte{0});
  store_le(MutableByteSpan(row), 0, to_f16(8188.0F));
  EXPECT_TRUE(repack_ggml_row(number(GgmlType::kQ4_0), row, 32, packed).ok());
  store_le(MutableByteSpan(row), 0, to_f16(8192.0F));
  const Status scale = repack_ggml_row(number(GgmlType::kQ4_0), row, 32, packed);
  EXPECT_EQ(scale.code(), StatusCode::kUnsupported);
  EXPECT_THAT(scale.message(), HasSubstr("the scale 8192"));

  packed.resize(row_major_bytes({QuantType::kMxfp4, 32}, 64));
  row.assign(34, std::byte{0x12});
  EXPECT_TRUE(repack_ggml_row(number(GgmlType::kMXFP4), row, 64, packed).ok());
  EXPECT_EQ(packed, row);
  row[17] = std::byte{255};
  EXPECT_THAT(repack_ggml_row(number(GgmlType::kMXFP4), row, 64, packed).message(),
              HasSubstr("column block 1: the scale is 255, not a number"));
  row[17] = std::byte{253};
  EXPECT_THAT(repack_ggml_row(number(GgmlType::kMXFP4), row, 64, packed).message(),
              HasSubstr("column block 1: the scale makes weights that f32 lacks"));
}

TEST(GgmlRepackTest, HasNothingForOtherTypes) {
  EXPECT_FALSE(kept_format(number(GgmlType::kF64)).has_value());
  EXPECT_FALSE(kept_format(16).has_value());
  EXPECT_FALSE(kept_format(UINT32_MAX).has_value());
}

using testing::HasSubstr;

constexpr std::uint32_t kTernaryColumns = 768;

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
  std::vector<std::byte> row(*ggml_row_bytes(c.number(), kTernaryColumns));
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
  out.assign(row_major_bytes(c.kept, kTernaryColumns), std::byte{0xA5});
  return repack_ggml_row(c.number(), row, kTernaryColumns, out);
}

TEST(GgmlRepackTernaryTest, KeepsRandomRowsExactly) {
  Rng rng(1);
  for (const TernaryCase& c : kCases) {
    SCOPED_TRACE(ggml_type_name(c.number()));
    ASSERT_EQ(kept_format(c.number()), c.kept);
    for (int i = 0; i < 100; ++i) {
      const std::vector<std::byte> row = random_row(c, rng);
      std::vector<float> expected(kTernaryColumns);
      decode_ggml_row(c.number(), row, expected);
      std::vector<std::byte> packed;
      const Status status = repack(c, row, packed);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(check_blocks(c.kept, Layout::kRowMajor, 1, kTernaryColumns, packed).ok());
      std::vector<float> out(kTernaryColumns);
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
