// SPDX-License-Identifier: MIT
//
// Tests of DRY's breakers on the bundled model's vocabulary.

#include "engine/dry_breakers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace qsf {
namespace {

TEST(DryBreakersTest, AreTheTokensThatContainOneOfTheTexts) {
  const std::unique_ptr<Engine> engine =
      Engine::open(std::string(QSF_SOURCE_DIR) + "/models/tales-5M-4bit.qsf",
                   {.n_threads = 1, .max_context = 64})
          .value();
  const Tokenizer& tokenizer = *engine->tokenizer();
  const std::vector<std::string> texts = {"ing", "\n"};
  const std::vector<TokenId> breakers = find_dry_breakers(tokenizer, texts).value();
  EXPECT_TRUE(std::is_sorted(breakers.begin(), breakers.end()));
  std::size_t n_expected = 0;
  for (TokenId token = 0; token < tokenizer.n_tokens(); ++token) {
    std::string bytes;
    tokenizer.append_bytes(token, false, bytes);
    const bool breaks =
        bytes.find("ing") != std::string::npos || bytes.find('\n') != std::string::npos;
    n_expected += breaks ? 1 : 0;
    EXPECT_EQ(std::binary_search(breakers.begin(), breakers.end(), token), breaks) << bytes;
  }
  EXPECT_GT(n_expected, 2U) << "tokens beside the two themselves";

  EXPECT_TRUE(find_dry_breakers(tokenizer, {}).value().empty());
  const std::vector<std::string> unknown = {"a", "no token is as long as this"};
  const auto refused = find_dry_breakers(tokenizer, unknown);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.error().message().find("as long as this"), std::string::npos);
  const std::vector<std::string> empty = {""};
  EXPECT_FALSE(find_dry_breakers(tokenizer, empty).has_value());
}

}  // namespace
}  // namespace qsf
