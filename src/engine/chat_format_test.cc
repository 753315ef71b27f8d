// SPDX-License-Identifier: MIT
//
// What ends an answer in templates whose tokens the test model of chat_test.cc lacks.

#include "engine/chat_format.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_data.h"

namespace qsf {
namespace {

// Single bytes and control tokens.
class Vocabulary {
 public:
  explicit Vocabulary(const std::vector<std::string>& control) {
    TokenizerData data;
    for (int i = 0; i < 256; ++i) {
      data.tokens.push_back({std::string(1, static_cast<char>(i)), TokenType::kNormal, 0.0F});
    }
    for (const std::string& text : control) {
      AddedToken added;
      added.text = text;
      added.id = static_cast<TokenId>(data.tokens.size());
      added.special = true;
      data.tokens.push_back({text, TokenType::kControl, 0.0F});
      data.added.push_back(added);
    }
    auto section = write_tokenizer_section(data);
    EXPECT_TRUE(section.has_value()) << section.error().message();
    section_ = std::move(*section);
    index_.resize(Tokenizer::index_bytes(section_).value());
    tokenizer_.emplace(Tokenizer::open(section_, index_).value());
  }

  // The texts of the tokens that end an answer.
  std::vector<std::string> ends(const std::string& source) const {
    const auto format = ChatFormat::create(ModelSpec(), *tokenizer_, source, 0);
    EXPECT_TRUE(format.has_value()) << format.error().message();
    std::vector<std::string> texts;
    for (const TokenId id : format->end_tokens()) texts.emplace_back(tokenizer_->token_text(id));
    return texts;
  }

 private:
  std::vector<std::byte> section_;
  std::vector<std::byte> index_;
  std::optional<Tokenizer> tokenizer_;
};

using Texts = std::vector<std::string>;

// An answer of gpt-oss has several messages, each closed by <|end|>.
TEST(ChatFormatTest, MessagesOfHarmonyDoNotEndItsAnswers) {
  std::ifstream file(std::string(QSF_SOURCE_DIR) + "/testdata/chat/gpt-oss.jinja");
  const std::string source{std::istreambuf_iterator<char>(file), {}};
  const Texts harmony = {"<|start|>", "<|channel|>", "<|message|>",
                         "<|end|>",   "<|call|>",    "<|return|>"};
  EXPECT_EQ(Vocabulary(harmony).ends(source), (Texts{"<|call|>", "<|return|>"}));
}

TEST(ChatFormatTest, TheSameTokenEndsOtherAnswers) {
  EXPECT_EQ(Vocabulary({"<|user|>", "<|end|>"}).ends("phi3"), Texts{"<|end|>"});
}

}  // namespace
}  // namespace qsf
