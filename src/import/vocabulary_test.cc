// SPDX-License-Identifier: MIT
//
// Tokens that a model has no row for: left out by name where that is possible, else refused.

#include "import/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Three tokens, a merge of the first two, a gap, and two added tokens.
TokenizerData small_tokenizer() {
  TokenizerData data;
  data.tokens = {{"a"},
                 {"b"},
                 {"ab"},
                 {"", TokenType::kUnused},
                 {"<s>", TokenType::kControl},
                 {"<pad>", TokenType::kControl}};
  data.merges = {{0, 1, 2}};
  data.added.resize(2);
  data.added[0].text = "<s>";
  data.added[0].id = 4;
  data.added[1].text = "<pad>";
  data.added[1].id = 5;
  data.bos = data.eos = 4;
  data.pad = 5;
  data.stop_ids = {4, 5};
  data.add_bos = true;
  return data;
}

TEST(VocabularyLimitTest, LeavesAFittingTokenizerAlone) {
  TokenizerData data = small_tokenizer();
  const auto dropped = limit_vocabulary(data, 6);
  ASSERT_TRUE(dropped);
  EXPECT_THAT(*dropped, IsEmpty());
  EXPECT_EQ(write_tokenizer_section(data).value(),
            write_tokenizer_section(small_tokenizer()).value());
}

TEST(VocabularyLimitTest, DropsAddedTokensAndEverythingThatNamesThem) {
  TokenizerData data = small_tokenizer();
  auto dropped = limit_vocabulary(data, 5);
  ASSERT_TRUE(dropped);
  EXPECT_THAT(*dropped, ElementsAre("\"<pad>\" (5)"));
  EXPECT_EQ(data.tokens.size(), 5U);
  EXPECT_EQ(data.added.size(), 1U);
  EXPECT_EQ(data.pad, kNoToken);
  EXPECT_EQ(data.bos, 4U);
  EXPECT_TRUE(data.add_bos);
  EXPECT_THAT(data.stop_ids, ElementsAre(4U));
  EXPECT_TRUE(write_tokenizer_section(data));

  dropped = limit_vocabulary(data, 3);
  ASSERT_TRUE(dropped);
  EXPECT_EQ(data.tokens.size(), 3U);
  EXPECT_EQ(data.bos, kNoToken);
  EXPECT_EQ(data.eos, kNoToken);
  EXPECT_FALSE(data.add_bos);
  EXPECT_THAT(data.stop_ids, IsEmpty());
  EXPECT_TRUE(write_tokenizer_section(data));
}

TEST(VocabularyLimitTest, RefusesTokensOfTheVocabularyAndOfMerges) {
  TokenizerData data = small_tokenizer();
  const auto too_few = limit_vocabulary(data, 2);
  ASSERT_FALSE(too_few);
  EXPECT_THAT(too_few.error().message(), HasSubstr("has token 2"));
  EXPECT_EQ(data.tokens.size(), 6U);
  data.merges.push_back({0, 1, 5});
  const auto merge = limit_vocabulary(data, 5);
  ASSERT_FALSE(merge);
  EXPECT_THAT(merge.error().message(), HasSubstr("merge 1 has token 5"));
}

}  // namespace
}  // namespace qsf
