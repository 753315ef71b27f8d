// SPDX-License-Identifier: MIT
//
// Slopes for head counts that are powers of two and for others.

#include "model/alibi_slopes.h"

#include <gtest/gtest.h>

#include <cmath>

namespace qsf {
namespace {

std::vector<float> slopes_of(std::uint32_t n_heads) {
  ModelSpec spec;
  spec.positions = PositionEncoding::kAlibi;
  spec.n_heads = n_heads;
  return alibi_slopes(spec);
}

TEST(AlibiSlopesTest, FallGeometricallyForPowersOfTwo) {
  EXPECT_EQ(slopes_of(8), (std::vector<float>{0x1p-1F, 0x1p-2F, 0x1p-3F, 0x1p-4F, 0x1p-5F, 0x1p-6F,
                                              0x1p-7F, 0x1p-8F}));
  EXPECT_EQ(slopes_of(1), std::vector<float>{0x1p-8F});
  const std::vector<float> slopes = slopes_of(16);
  ASSERT_EQ(slopes.size(), 16U);
  for (int i = 0; i < 16; ++i) EXPECT_FLOAT_EQ(slopes[i], std::exp2(-0.5F * (i + 1)));
}

// The rest comes from between: the first, third, fifth ... slope of twice as many heads.
TEST(AlibiSlopesTest, OtherCountsTakeEveryOtherSlopeOfTwiceAsMany) {
  const std::vector<float> six = slopes_of(6);
  const std::vector<float> want = {0x1p-2F, 0x1p-4F, 0x1p-6F, 0x1p-8F, 0x1p-1F, 0x1p-3F};
  EXPECT_EQ(six, want);
  const std::vector<float> many = slopes_of(112);  // BLOOM with 176 billion parameters
  const std::vector<float> twice = slopes_of(128);
  ASSERT_EQ(many.size(), 112U);
  for (int j = 0; j < 48; ++j) EXPECT_FLOAT_EQ(many[64 + j], twice[2 * j]) << j;
}

TEST(AlibiSlopesTest, NoneForOtherPositions) {
  ModelSpec spec;
  spec.n_heads = 8;
  EXPECT_TRUE(alibi_slopes(spec).empty());
}

}  // namespace
}  // namespace qsf
