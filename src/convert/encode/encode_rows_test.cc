// SPDX-License-Identifier: MIT

#include "convert/encode/encode_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ColumnImportanceTest, FindsWhatWasSetForThatMatrixAndWidth) {
  ColumnImportance importance;
  EXPECT_TRUE(importance.empty());
  ASSERT_TRUE(importance.set({TensorKind::kAttnQ, 3}, {1.0F, 2.0F}).ok());
  ASSERT_TRUE(importance.set({TensorKind::kHead, 0}, {5.0F}).ok());
  EXPECT_FALSE(importance.empty());
  EXPECT_THAT(importance.find({TensorKind::kAttnQ, 3}, 2), ElementsAre(1.0F, 2.0F));
  EXPECT_THAT(importance.find({TensorKind::kHead, 0}, 1), ElementsAre(5.0F));
  EXPECT_THAT(importance.find({TensorKind::kAttnQ, 2}, 2), IsEmpty());
  EXPECT_THAT(importance.find({TensorKind::kAttnK, 3}, 2), IsEmpty());
  EXPECT_THAT(importance.find({TensorKind::kAttnQ, 3}, 3), IsEmpty());
  EXPECT_THAT(importance.find({TensorKind::kAttnQ, 3, 1}, 2), IsEmpty());
}

TEST(ColumnImportanceTest, EveryExpertHasItsOwn) {
  ColumnImportance importance;
  ASSERT_TRUE(importance.set({TensorKind::kExpertUp, 2, 0}, {1.0F, 2.0F}).ok());
  ASSERT_TRUE(importance.set({TensorKind::kExpertUp, 2, 1}, {3.0F, 4.0F}).ok());
  const SourceTensor second = {
      .kind = TensorKind::kExpertUp, .rows = 8, .cols = 2, .name = {}, .type = {}, .expert = 1};
  const SourcePlace place = {{SectionKind::kLayer, 2}, 0, &second};
  EXPECT_THAT(quant_options(Rounding::kSearch, &importance, place).importance,
              ElementsAre(3.0F, 4.0F));
}

TEST(ColumnImportanceTest, HeadsOfLatentAttentionHaveTheirOwn) {
  ColumnImportance importance;
  const std::vector<float> of_heads = {1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F};
  ASSERT_TRUE(importance.set({TensorKind::kLatentKeys, 2}, of_heads).ok());
  ASSERT_TRUE(importance.set({TensorKind::kAttnQ, 2}, of_heads).ok());
  EXPECT_THAT(importance.find({TensorKind::kLatentKeys, 2}, 2), ElementsAreArray(of_heads));
  EXPECT_THAT(importance.find({TensorKind::kLatentKeys, 2}, 4), IsEmpty());
  EXPECT_THAT(importance.find({TensorKind::kAttnQ, 2}, 2), IsEmpty());
}

TEST(ColumnImportanceTest, RefusesWhatIsNoWeight) {
  ColumnImportance importance;
  for (const float bad :
       {-1.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const Status status = importance.set({TensorKind::kFfnDown, 7}, {0.0F, bad});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("ffn_down, layer 7"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("column 1"));
  }
  EXPECT_TRUE(importance.empty());
}

}  // namespace
}  // namespace qsf
