// SPDX-License-Identifier: MIT
//
// GGUF's tensor types: sizes and names, and their values against those of ggml itself, which
// scripts/golden/make_ggml_golden.py wrote.

#include "import/gguf/ggml_types.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/rng.h"

namespace qsf {
namespace {

constexpr std::uint32_t kColumns = 512;
constexpr std::size_t kRows = 4;

constexpr std::uint32_t kDecoded[] = {0,  1,  2,  3,  6,  7,  8,  10, 11, 12,  13,
                                      14, 15, 20, 23, 28, 30, 34, 35, 39, 134, 135};

std::vector<std::byte> read_golden(const std::string& name) {
  std::ifstream file(std::string(QSF_SOURCE_DIR "/testdata/gguf/types/") + name + ".bin",
                     std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::byte> bytes(text.size());
  if (!bytes.empty()) std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

class GgmlGoldenTest : public testing::TestWithParam<std::uint32_t> {};

TEST_P(GgmlGoldenTest, DecodesToTheBitsOfGgml) {
  const std::uint32_t type = GetParam();
  ASSERT_TRUE(can_decode(type));
  const std::vector<std::byte> golden = read_golden(ggml_type_name(type));
  const std::size_t row_bytes = *ggml_row_bytes(type, kColumns);
  ASSERT_EQ(golden.size(), kRows * (row_bytes + 4 * kColumns));
  std::vector<float> out(kColumns);
  for (std::size_t row = 0; row < kRows; ++row) {
    decode_ggml_row(type, ByteSpan(golden).subspan(row * row_bytes, row_bytes), out);
    const std::size_t values = kRows * row_bytes + row * 4 * kColumns;
    for (std::size_t i = 0; i < kColumns; ++i) {
      const auto expected = load_le<std::uint32_t>(golden, values + 4 * i);
      const std::uint32_t got =
          std::isnan(out[i]) ? 0x7FC00000U : std::bit_cast<std::uint32_t>(out[i]);
      ASSERT_EQ(got, expected) << "row " << row << ", column " << i << ": " << out[i]
                               << ", expected " << std::bit_cast<float>(expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GgmlGoldenTest, testing::ValuesIn(kDecoded), [](const auto& param) {
  return std::string(ggml_type_name(param.param));
});

TEST(GgmlTypesTest, DecodesOtherWidthsAsAPartOfWiderRows) {
  Rng rng(1);
  for (const std::uint32_t type : kDecoded) {
    const GgmlTypeInfo info = *ggml_type_info(type);
    std::vector<std::byte> row(*ggml_row_bytes(type, 768));
    for (std::byte& byte : row) byte = static_cast<std::byte>(rng.next_u32() >> 24U);
    std::vector<float> all(768);
    decode_ggml_row(type, row, all);
    for (std::uint32_t n = 0; n <= 768; n += info.block_elements) {
      std::vector<float> part(n);
      decode_ggml_row(type, ByteSpan(row).first(*ggml_row_bytes(type, n)), part);
      ASSERT_EQ(n == 0 ? 0 : std::memcmp(part.data(), all.data(), 4 * n), 0) << info.name << n;
    }
  }
}

TEST(GgmlTypesTest, DecodesTheTypesItSaysAndNoOthers) {
  for (std::uint32_t type = 0; type < 1000; ++type) {
    const bool expected =
        std::find(std::begin(kDecoded), std::end(kDecoded), type) != std::end(kDecoded);
    EXPECT_EQ(can_decode(type), expected) << type;
  }
  EXPECT_FALSE(can_decode(UINT32_MAX));
}

TEST(GgmlTypesTest, NamesWhatItRefuses) {
  const struct {
    std::uint32_t type;
    const char* name;
  } cases[] = {{9, "Q8_1"},      {16, "IQ2_XXS"}, {17, "IQ2_XS"},  {18, "IQ3_XXS"},
               {19, "IQ1_S"},    {21, "IQ3_S"},   {22, "IQ2_S"},   {24, "I8"},
               {25, "I16"},      {26, "I32"},     {27, "I64"},     {29, "IQ1_M"},
               {31, "Q4_0_4_4"}, {36, "I2_S"},    {40, "NVFP4"},   {41, "Q1_0"},
               {42, "Q2_0"},     {133, "Q6_0"},   {144, "IQ4_KS"}, {335, "IQ2_BN_R4"}};
  for (const auto& c : cases) {
    EXPECT_STREQ(ggml_type_name(c.type), c.name);
    EXPECT_STREQ(ggml_type_info(c.type)->name, c.name);
  }
  for (const std::uint32_t type : {4U, 5U, 37U, 38U, 43U, 336U, UINT32_MAX}) {
    EXPECT_FALSE(ggml_type_info(type).has_value());
    EXPECT_STREQ(ggml_type_name(type), "unknown");
  }
}

TEST(GgmlTypesTest, KnowsTheNumbersOfBitnet) {
  EXPECT_EQ(bitnet_type_name(36), nullptr);
  EXPECT_STREQ(bitnet_type_name(37), "I8_S");
  EXPECT_STREQ(bitnet_type_name(38), "TL1");
  EXPECT_STREQ(bitnet_type_name(39), "TL2");
  EXPECT_EQ(bitnet_type_name(40), nullptr);
}

TEST(GgmlTypesTest, SizesRows) {
  EXPECT_EQ(ggml_row_bytes(12, 512), 288U);
  EXPECT_EQ(ggml_row_bytes(12, 300), std::nullopt);
  EXPECT_EQ(ggml_row_bytes(134, 128), 2U + 26U);
  EXPECT_EQ(ggml_row_bytes(135, 128), 4U + 32U);
  EXPECT_EQ(ggml_row_bytes(36, 128), std::nullopt) << "the size of I2_S depends on the writer";
  EXPECT_EQ(ggml_row_bytes(5, 128), std::nullopt);
  EXPECT_EQ(ggml_row_bytes(0, 0), 0U);
  EXPECT_EQ(ggml_row_bytes(28, UINT64_C(1) << 58), std::nullopt);
  EXPECT_EQ(ggml_row_bytes(28, UINT64_C(1) << 63), std::nullopt);
  EXPECT_EQ(ggml_row_bytes(24, (UINT64_C(1) << 61) - 1), (UINT64_C(1) << 61) - 1);
}

}  // namespace
}  // namespace qsf
