// SPDX-License-Identifier: MIT
//
// Holds mxfp4 to its definition: values, bytes, hostile exponents, nearest codes.

#include "quant/mxfp4.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "base/rng.h"
#include "quant/codec.h"
#include "quant/interleave.h"

namespace qsf {
namespace {

using testing::HasSubstr;

constexpr BlockFormat kFormat = block_format(QuantType::kMxfp4, 0);
constexpr std::size_t kBlockBytes = 17;

// FP4's sixteen values, as the specification lists them.
constexpr std::array<float, 16> kValues = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                           -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

TEST(Mxfp4Test, EveryCodeUnderEveryExponentIsExact) {
  static_assert(block_bytes(kFormat) == kBlockBytes);
  for (unsigned exponent = 0; exponent <= 252; ++exponent) {
    std::vector<std::byte> row(kBlockBytes);
    row[0] = static_cast<std::byte>(exponent);
    for (unsigned j = 0; j < 16; ++j) row[1 + j] = static_cast<std::byte>(j | (15 - j) << 4U);
    std::vector<float> weights(32);
    decode_row(kFormat, row, weights);
    for (unsigned j = 0; j < 16; ++j) {
      const int power = static_cast<int>(exponent) - 127;
      EXPECT_EQ(weights[j], std::ldexp(kValues[j], power));
      EXPECT_EQ(weights[16 + j], std::ldexp(kValues[15 - j], power));
      EXPECT_TRUE(std::isfinite(weights[j]));
    }
    EXPECT_TRUE(check_blocks(kFormat, Layout::kRowMajor, 1, 32, row).ok());
  }
}

TEST(Mxfp4Test, HostileExponentsAreNamed) {
  for (const Layout layout : {Layout::kRowMajor, Layout::kInterleaved}) {
    std::vector<std::byte> bytes(rows_bytes(kFormat, layout, 16, 300));
    const std::size_t at = layout == Layout::kRowMajor ? 3 * row_major_bytes(kFormat, 300) + 17 * 5
                                                       : locate_block(kFormat, 5).scales + 4 * 3;
    EXPECT_TRUE(check_blocks(kFormat, layout, 16, 300, bytes).ok());
    bytes[at] = std::byte{255};
    EXPECT_THAT(check_blocks(kFormat, layout, 16, 300, bytes).message(),
                HasSubstr("row 3, column block 5: the scale is 255, not a number"));
    for (const unsigned exponent : {253U, 254U}) {
      bytes[at] = static_cast<std::byte>(exponent);
      EXPECT_THAT(check_blocks(kFormat, layout, 16, 300, bytes).message(),
                  HasSubstr("row 3, column block 5: the scale makes weights that f32 lacks"));
    }
  }
  EXPECT_TRUE(std::isnan(mxfp4_scale(std::byte{255})));
}

// Bytes go through the layout of kernels and back as they were, codes of negative zero too.
TEST(Mxfp4Test, AnyBytesSurviveInterleaving) {
  Rng rng(3);
  for (const std::uint32_t n_cols : {32U, 96U, 128U, 320U, 2880U}) {
    std::vector<std::byte> rows(16 * row_major_bytes(kFormat, n_cols));
    for (std::byte& byte : rows) byte = static_cast<std::byte>(rng.below(256));
    std::vector<std::byte> group(group_bytes(kFormat, n_cols));
    interleave_group(kFormat, 16, n_cols, rows, group);
    std::vector<std::byte> back(rows.size());
    deinterleave_group(kFormat, 16, n_cols, group, back);
    EXPECT_EQ(back, rows) << n_cols;
  }
}

TEST(Mxfp4Test, NearestCodesAreNearest) {
  for (int step = -520; step <= 520; ++step) {
    const float w = static_cast<float>(step) / 32.0F;
    const float got = kMxfp4Levels[nearest_mxfp4_code(w)];
    for (const std::int8_t level : kMxfp4Levels) {
      EXPECT_LE(std::fabs(got - w), std::fabs(static_cast<float>(level) - w)) << w;
    }
  }
  EXPECT_EQ(nearest_mxfp4_code(0.0F), 0);
  EXPECT_EQ(nearest_mxfp4_code(-0.0F), 0);
}

// Weights that are of the type come back bit for bit, whatever their exponents, as long as a block
// has a level of the upper half.
TEST(Mxfp4Test, EncodingDecodedWeightsGivesThemAgain) {
  Rng rng(4);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<float> row(64);
    for (std::size_t i = 0; i < row.size(); ++i) {
      const int power = i < 32 ? -20 : 10;
      row[i] = std::ldexp(kValues[rng.below(16)], power) + 0.0F;
    }
    row[5] = std::ldexp(4.0F, -20);
    row[40] = std::ldexp(-6.0F, 10);
    std::vector<std::byte> bytes(row_major_bytes(kFormat, row.size()));
    encode_row(kFormat, row, kNearestRounding, bytes);
    std::vector<float> back(row.size());
    decode_row(kFormat, bytes, back);
    EXPECT_EQ(back, row);
  }
}

}  // namespace
}  // namespace qsf
