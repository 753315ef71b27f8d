// SPDX-License-Identifier: MIT

#include "format/expert_hits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace qsf {
namespace {

TEST(ExpertHitsTest, SizesGrowToAllExperts) {
  double before = 0.0;
  for (std::uint32_t i = 0; i < kExpertHitSizes; ++i) {
    EXPECT_GT(expert_hit_size(i), before);
    before = expert_hit_size(i);
  }
  EXPECT_EQ(before, 1.0);
}

TEST(ExpertHitsTest, WithoutACurveAnyExpertIsAsLikely) {
  EXPECT_EQ(expected_hits({}, 0.0), 0.0);
  EXPECT_EQ(expected_hits({}, 0.25), 0.25);
  EXPECT_EQ(expected_hits({}, 1.0), 1.0);
}

TEST(ExpertHitsTest, LinesLeadFromSizeToSize) {
  std::vector<float> hits(kExpertHitSizes, 0.75F);
  hits.front() = 0.5F;
  hits.back() = 1.0F;
  EXPECT_EQ(expected_hits(hits, 0.0), 0.0);
  EXPECT_EQ(expected_hits(hits, expert_hit_size(0) / 2), 0.25);
  EXPECT_EQ(expected_hits(hits, expert_hit_size(0)), 0.5);
  EXPECT_EQ(expected_hits(hits, (expert_hit_size(0) + expert_hit_size(1)) / 2), 0.625);
  EXPECT_EQ(expected_hits(hits, 0.25), 0.75);
  EXPECT_EQ(expected_hits(hits, 1.0), 1.0);
}

TEST(ExpertHitsTest, SharesThatCannotBeAreRefused) {
  std::vector<float> hits(kExpertHitSizes, 0.5F);
  EXPECT_TRUE(check_expert_hits(hits).ok());
  EXPECT_TRUE(check_expert_hits({}).ok());
  for (const float wrong : {-0.01F, 1.01F, std::nanf("")}) {
    hits[3] = wrong;
    const Status status = check_expert_hits(hits);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), testing::HasSubstr("expected 0 to 1"));
  }
  hits.resize(3);
  EXPECT_THAT(check_expert_hits(hits).message(), testing::HasSubstr("3 values, expected 16"));
}

}  // namespace
}  // namespace qsf
