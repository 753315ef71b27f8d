// SPDX-License-Identifier: MIT
//
// RoPE inverse frequencies of every scaling, against their definitions; ALiBi slopes for head
// counts that are powers of two and for others.

#include "model/position_tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace qsf {
namespace {

constexpr std::uint32_t kContext = 4096;

ModelSpec rope_spec(RopeScaling scaling) {
  ModelSpec spec;
  spec.positions = PositionEncoding::kRope;
  spec.head_dim = 128;
  spec.rope.theta = 500000.0F;
  spec.rope.scaling = scaling;
  spec.rope.factor = 8.0F;
  spec.rope.low_freq_factor = 1.0F;
  spec.rope.high_freq_factor = 4.0F;
  spec.rope.original_context = 8192;
  return spec;
}

TEST(RopeFrequenciesTest, PlainAndLinear) {
  const auto plain = rope_inverse_frequencies(rope_spec(RopeScaling::kNone), kContext);
  const auto linear = rope_inverse_frequencies(rope_spec(RopeScaling::kLinear), kContext);
  ASSERT_EQ(plain.size(), 64U);
  EXPECT_EQ(plain[0], 1.0F);
  EXPECT_NEAR(plain[32], std::pow(500000.0, -0.5), 1e-9);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(linear[i], plain[i] / 8.0F);
}

TEST(RopeFrequenciesTest, Llama3KeepsFastAndDividesSlowFrequencies) {
  const auto plain = rope_inverse_frequencies(rope_spec(RopeScaling::kNone), kContext);
  const auto scaled = rope_inverse_frequencies(rope_spec(RopeScaling::kLlama3), kContext);
  int n_kept = 0;
  int n_divided = 0;
  int n_blended = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2 * M_PI / plain[i];
    if (wavelength < 8192.0 / 4) {
      EXPECT_EQ(scaled[i], plain[i]);
      ++n_kept;
    } else if (wavelength > 8192.0) {
      EXPECT_FLOAT_EQ(scaled[i], plain[i] / 8.0F);
      ++n_divided;
    } else {
      EXPECT_LT(scaled[i], plain[i]);
      EXPECT_GT(scaled[i], plain[i] / 8.0F);
      ++n_blended;
    }
  }
  EXPECT_GT(n_kept, 0);
  EXPECT_GT(n_divided, 0);
  EXPECT_GT(n_blended, 0);
}

// The published formula: 1 / (factor_i * theta^(2 i / dims)), with the factors of the context.
TEST(RopeFrequenciesTest, LongropeTakesTheFactorsOfTheContext) {
  ModelSpec spec = rope_spec(RopeScaling::kLongrope);
  spec.rope.theta = 10000.0F;
  spec.rope.dims = 96;
  for (std::uint32_t i = 0; i < 48; ++i) {
    spec.rope.short_factors.push_back(1.0F + 0.02F * static_cast<float>(i));
    spec.rope.long_factors.push_back(1.1F + 1.3F * static_cast<float>(i));
  }
  const struct {
    std::uint32_t context;
    const std::vector<float>& factors;
  } cases[] = {{1, spec.rope.short_factors},
               {8192, spec.rope.short_factors},
               {8193, spec.rope.long_factors},
               {131072, spec.rope.long_factors}};
  for (const auto& c : cases) {
    const std::vector<float> got = rope_inverse_frequencies(spec, c.context);
    ASSERT_EQ(got.size(), 48U);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double power = std::pow(10000.0, 2.0 * static_cast<double>(i) / 96.0);
      const double want = 1.0 / (static_cast<double>(c.factors[i]) * power);
      EXPECT_NEAR(got[i], want, want * 0x1p-23) << i << " in a context of " << c.context;
    }
  }
}

// Pair i turns theta^(-2 i / dims) * 8192 / (2 pi) times over the original context. Qwen 2.5's
// numbers: 32 turns lie at pair 23.6, one turn at pair 40.5.
TEST(RopeFrequenciesTest, YarnKeepsFastAndDividesSlowFrequencies) {
  ModelSpec spec = rope_spec(RopeScaling::kNone);
  spec.rope.theta = 1000000.0F;
  const auto plain = rope_inverse_frequencies(spec, kContext);
  spec.rope.scaling = RopeScaling::kYarn;
  spec.rope.original_context = 32768;
  spec.rope.factor = 4.0F;
  const auto pair_of = [](double turns) {
    return 64 * std::log(32768 / (2 * M_PI * turns)) / std::log(1e6);
  };
  for (const bool truncate : {true, false}) {
    spec.rope.truncate = truncate;
    const double first = truncate ? 23 : pair_of(32);
    const double last = truncate ? 40 : pair_of(1);
    ASSERT_NEAR(first, pair_of(32), 1);
    ASSERT_NEAR(last, pair_of(1), 1);
    const auto scaled = rope_inverse_frequencies(spec, kContext);
    for (std::size_t i = 0; i < plain.size(); ++i) {
      const double share = std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
      const double want = plain[i] * (1 - share + share / 4);
      EXPECT_NEAR(scaled[i], want, want * 0x1p-23) << i << (truncate ? " truncated" : "");
    }
  }
}

// The layers of a second base, unscaled.
TEST(RopeFrequenciesTest, LocalLayersHaveABaseOfTheirOwn) {
  ModelSpec spec = rope_spec(RopeScaling::kLinear);
  spec.n_layers = 3;
  spec.local_rope_theta = 10000.0F;
  EXPECT_TRUE(local_rope_inverse_frequencies(spec).empty());
  spec.layer_rope = {0, 1, 0};
  EXPECT_TRUE(local_rope_inverse_frequencies(spec).empty());
  spec.layer_rope = {0, 2, 1};
  const auto local = local_rope_inverse_frequencies(spec);
  ASSERT_EQ(local.size(), 64U);
  for (std::size_t i = 0; i < local.size(); ++i) {
    const double want = std::pow(10000.0, -static_cast<double>(i) / 64);
    EXPECT_NEAR(local[i], want, want * 0x1p-23);
  }
  spec.positions = PositionEncoding::kAlibi;
  EXPECT_TRUE(local_rope_inverse_frequencies(spec).empty());
}

TEST(RopeFrequenciesTest, PartialRotationAndNone) {
  ModelSpec spec = rope_spec(RopeScaling::kNone);
  spec.rope.dims = 32;
  EXPECT_EQ(rope_inverse_frequencies(spec, kContext).size(), 16U);
  spec.positions = PositionEncoding::kLearned;
  EXPECT_TRUE(rope_inverse_frequencies(spec, kContext).empty());
}

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

TEST(AlibiSlopesTest, AreRoundedWhereBiasesAre) {
  ModelSpec spec;
  spec.positions = PositionEncoding::kAlibi;
  spec.n_heads = 16;
  spec.bf16_biases = true;
  const std::vector<float> slopes = alibi_slopes(spec);
  EXPECT_EQ(slopes[0], 0.70703125F) << "181 / 256, of 0.70711";
  EXPECT_EQ(slopes[1], 0.5F);
}

TEST(AlibiSlopesTest, NoneForOtherPositions) {
  ModelSpec spec;
  spec.n_heads = 8;
  EXPECT_TRUE(alibi_slopes(spec).empty());
}

}  // namespace
}  // namespace qsf
