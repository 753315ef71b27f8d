// SPDX-License-Identifier: MIT
//
// Inverse frequencies of every scaling, against their definitions.

#include "model/rope_frequencies.h"

#include <gtest/gtest.h>

#include <cmath>

namespace qsf {
namespace {

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
  const auto plain = rope_inverse_frequencies(rope_spec(RopeScaling::kNone));
  const auto linear = rope_inverse_frequencies(rope_spec(RopeScaling::kLinear));
  ASSERT_EQ(plain.size(), 64U);
  EXPECT_EQ(plain[0], 1.0F);
  EXPECT_NEAR(plain[32], std::pow(500000.0, -0.5), 1e-9);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(linear[i], plain[i] / 8.0F);
}

TEST(RopeFrequenciesTest, Llama3KeepsFastAndDividesSlowFrequencies) {
  const auto plain = rope_inverse_frequencies(rope_spec(RopeScaling::kNone));
  const auto scaled = rope_inverse_frequencies(rope_spec(RopeScaling::kLlama3));
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

TEST(RopeFrequenciesTest, PartialRotationAndNone) {
  ModelSpec spec = rope_spec(RopeScaling::kNone);
  spec.rope.dims = 32;
  EXPECT_EQ(rope_inverse_frequencies(spec).size(), 16U);
  spec.positions = PositionEncoding::kLearned;
  EXPECT_TRUE(rope_inverse_frequencies(spec).empty());
}

}  // namespace
}  // namespace qsf
