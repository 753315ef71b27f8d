// SPDX-License-Identifier: MIT

#include "tokenizer/word_pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr TokenId kUnk = 1;
constexpr TokenId kBegin = 2;
constexpr TokenId kEnd = 3;

TokenizerData word_data() {
  TokenizerData data;
  data.kind = TokenizerKind::kWordPiece;
  data.strip_leading_space = true;
  for (const char* text : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "aff",
                           "able", "##a", "a", "unaff", "\xC3\xA9", "##\xC3\xA9", "#", "##b"}) {
    data.tokens.push_back({text});
  }
  for (const TokenId id : {0U, kBegin, kEnd}) data.tokens[id].type = TokenType::kControl;
  data.tokens[kUnk].type = TokenType::kUnknown;
  data.unk = kUnk;
  data.bos = kBegin;
  data.eos = kEnd;
  TextStep split;
  split.text = "\\s";
  split.behavior = SplitBehavior::kRemoved;
  data.steps.push_back(split);
  return data;
}

class WordPiecesTest : public testing::Test {
 protected:
  void open(const TokenizerData& data) {
    auto bytes = write_tokenizer_section(data);
    ASSERT_TRUE(bytes) << bytes.error().message();
    section_ = std::move(*bytes);
    memory_.resize(*Tokenizer::index_bytes(section_));
    auto tokenizer = Tokenizer::open(section_, memory_);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message();
    tokenizer_.emplace(std::move(*tokenizer));
  }
  void SetUp() override { open(word_data()); }

  std::vector<TokenId> ids(std::string_view text) const {
    std::vector<TokenId> out;
    EXPECT_TRUE(tokenizer_->encode(text, {}, out).ok());
    return out;
  }
  std::string text(const std::vector<TokenId>& ids, DecodeOptions options = {}) const {
    std::string out;
    tokenizer_->decode(ids, options, out);
    return out;
  }

  std::vector<std::byte> section_;
  std::vector<std::byte> memory_;
  std::optional<Tokenizer> tokenizer_;
};

TEST_F(WordPiecesTest, TakesTheLongestTokenFromTheFront) {
  EXPECT_THAT(ids("unaffable"), ElementsAre(11, 6));
  EXPECT_THAT(ids("unable affable"), ElementsAre(4, 6, 7, 6));
  EXPECT_THAT(ids("un"), ElementsAre(4));
  EXPECT_THAT(ids(""), ElementsAre());
  EXPECT_THAT(ids("\xC3\xA9\xC3\xA9"), ElementsAre(12, 13));
}

TEST_F(WordPiecesTest, AWordWithAnUnknownPartIsOneUnknownToken) {
  EXPECT_THAT(ids("unaffx"), ElementsAre(kUnk));
  EXPECT_THAT(ids("x y"), ElementsAre(kUnk, kUnk));
  EXPECT_THAT(ids("un\xFF"), ElementsAre(4, kUnk));  // bytes that are not UTF-8 are a word
  EXPECT_THAT(ids("\xC3"), ElementsAre(kUnk));
}

TEST_F(WordPiecesTest, OnlyContinuingTokensContinueAWord) {
  EXPECT_THAT(ids("able"), ElementsAre(8));
  EXPECT_THAT(ids("aun"), ElementsAre(kUnk));
  EXPECT_THAT(ids("##able"), ElementsAre(6));  // as the vocabulary has the text
  EXPECT_THAT(ids("[SEP]"), ElementsAre(kUnk));
}

TEST_F(WordPiecesTest, WordsOfMoreThanAHundredCharactersAreUnknown) {
  std::vector<TokenId> wanted(100, 13);
  wanted[0] = 12;
  std::string word;
  for (int i = 0; i < 100; ++i) word += "\xC3\xA9";
  EXPECT_EQ(ids(word), wanted);
  EXPECT_THAT(ids(word + "a"), ElementsAre(kUnk));
  EXPECT_THAT(ids("un " + word + word + " un"), ElementsAre(4, kUnk, 4));
}

TEST_F(WordPiecesTest, DecodingJoinsPieces) {
  EXPECT_EQ(text({11, 6, 4, 6}), "unaffable unable");
  EXPECT_EQ(text({kBegin, 4, 6, kEnd}), "unable");
  EXPECT_EQ(text({4, 6}, {.at_text_start = false}), " unable");
  EXPECT_EQ(text({6, 4}), "able un");
  StreamDecoder decoder(*tokenizer_, {});
  std::string streamed;
  for (const TokenId id : {kBegin, 11U, 6U, 4U, kEnd}) streamed += decoder.push(id);
  EXPECT_EQ(streamed, "unaffable un");
  std::string one;
  tokenizer_->append_bytes(11, true, one);
  EXPECT_EQ(one.size(), 6U);
  EXPECT_LE(one.size(), tokenizer_->longest_token_bytes());
}

TEST_F(WordPiecesTest, TheLongestTokenHasRoomForItsSpace) {
  TokenizerData data = word_data();
  const std::string longest(40, 'q');
  data.tokens.push_back({longest});
  open(data);
  std::string out;
  tokenizer_->append_bytes(static_cast<TokenId>(data.tokens.size() - 1), true, out);
  EXPECT_EQ(out, " " + longest);
  EXPECT_EQ(tokenizer_->longest_token_bytes(), out.size());
}

TEST_F(WordPiecesTest, SectionsThatCannotBeAreRefused) {
  TokenizerData data = word_data();
  data.unk = kNoToken;
  EXPECT_THAT(write_tokenizer_section(data).error().message(), HasSubstr("unknown words"));
  data = word_data();
  data.merges.push_back({4, 4, 4});
  EXPECT_THAT(write_tokenizer_section(data).error().message(), HasSubstr("1 merges"));
}

}  // namespace
}  // namespace qsf
