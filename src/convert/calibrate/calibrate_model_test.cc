// SPDX-License-Identifier: MIT
//
// Texts become whole windows that begin as texts do, and what is no text is refused.

#include "convert/calibrate/calibrate_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "format/qsf_reader.h"

namespace qsf {
namespace {

using testing::HasSubstr;

class CalibrationTextTest : public testing::Test {
 protected:
  void SetUp() override {
    auto section =
        QsfReader::open(QSF_SOURCE_DIR "/models/tales-5M-4bit.qsf").value().read_tokenizer();
    ASSERT_TRUE(section) << section.error().message();
    section_ = std::move(*section);
    index_.resize(Tokenizer::index_bytes(section_).value());
    tokenizer_.emplace(Tokenizer::open(section_, index_).value());
    for (int i = 0; i < 60; ++i) text_ += "the king had " + std::to_string(i) + " sons. ";
    ASSERT_TRUE(tokenizer_->encode(text_, {.add_bos = {}, .add_eos = false}, tokens_).ok());
  }
  std::vector<TokenId> windows(std::uint32_t context, std::uint64_t max_tokens) const {
    auto got = calibration_tokens(*tokenizer_, text_, context, max_tokens);
    EXPECT_TRUE(got) << got.error().message();
    return got ? *got : std::vector<TokenId>();
  }
  void expect_refused(std::string_view text, const std::string& message) const {
    const auto got = calibration_tokens(*tokenizer_, text, 32, 1000);
    ASSERT_FALSE(got) << message;
    EXPECT_EQ(got.error().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(got.error().message()), HasSubstr(message));
  }

  std::vector<std::byte> section_;
  std::vector<std::byte> index_;
  std::optional<Tokenizer> tokenizer_;
  std::string text_;
  std::vector<TokenId> tokens_;  // of the whole text
};

TEST_F(CalibrationTextTest, WindowsAreWholeAndBeginAsTextsDo) {
  ASSERT_TRUE(tokenizer_->adds_bos());
  ASSERT_GT(tokens_.size(), 250U);
  ASSERT_NE(tokens_.size() % 32, 0U);
  const std::vector<TokenId> all = windows(32, 1'000'000);
  ASSERT_EQ(all.size(), tokens_.size() / 32 * 32);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i], i % 32 == 0 ? tokenizer_->bos() : tokens_[i]) << i;
  }
  EXPECT_EQ(windows(32, 100).size(), 96U);
  EXPECT_EQ(windows(32, 5).size(), 32U);  // one window, however few tokens are asked for
}

TEST_F(CalibrationTextTest, ATextWithoutAWholeWindowIsTakenAsItIs) {
  EXPECT_EQ(windows(static_cast<std::uint32_t>(tokens_.size()) + 1, 1'000'000), tokens_);
  EXPECT_EQ(windows(static_cast<std::uint32_t>(tokens_.size()), 1'000'000), tokens_);
}

TEST_F(CalibrationTextTest, WhatIsNoTextIsRefused) {
  expect_refused("", "empty");
  expect_refused(std::string_view("Once\0upon", 9), "byte 4 is zero");
}

}  // namespace
}  // namespace qsf
