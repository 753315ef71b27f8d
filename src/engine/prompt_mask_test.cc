// SPDX-License-Identifier: MIT
//
// Engines whose prompts attend within chunks, or to both sides, on small random models: logits
// against the definition, of prompts and of what is generated behind them; the promise that calls,
// passes, threads and other members do not show in them; and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_impl.h"
#include "engine/testing/naive_model_test.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing_support::AppendLogits;
using testing_support::largest_difference;
using testing_support::Logits;
using testing_support::naive_llama;
using testing_support::NaiveModelTest;

constexpr std::uint32_t kMaskedContext = 200;
constexpr std::size_t kMaskedTokens = 150;
constexpr std::size_t kMaskedPrompt = 130;
constexpr std::uint32_t kMaskedChunk = 50;

class PromptMaskTest : public NaiveModelTest {
 protected:
  void SetUp() override { make_model(naive_llama(2, kMaskedContext), kMaskedTokens); }

  static EngineOptions chunked(std::uint32_t chunk = kMaskedChunk) {
    EngineOptions options = exact_options(kMaskedContext);
    options.attention = AttentionKind::kChunked;
    options.prompt_mask.chunk = chunk;
    return options;
  }
  static EngineOptions symmetric(std::uint32_t window) {
    EngineOptions options = exact_options(kMaskedContext);
    options.attention = AttentionKind::kSymmetric;
    options.prompt_mask.window = window;
    return options;
  }
  // Prompt rows in calls that end at `ends`, then generated ones.
  Logits run(const EngineOptions& options, const std::vector<std::size_t>& ends) const {
    const auto engine = open(options);
    const auto session = engine->create_session().value();
    Logits logits;
    std::size_t done = 0;
    for (const std::size_t end : ends) {
      prefill(*session, done, end, logits);
      done = end;
    }
    for (; done < kMaskedTokens; ++done) step(*session, done, logits);
    return logits;
  }
  std::vector<std::vector<double>> naive(const testing_support::NaiveModel::Sees& sees) {
    model_->set_sees_later(true);
    return model_->logits({tokens_.begin(), tokens_.begin() + kMaskedTokens}, kMaskedContext, {},
                          sees);
  }
  Status open_status(const EngineOptions& options) const {
    auto engine = Engine::open(path_, options);
    return engine.has_value() ? ok_status() : engine.error();
  }
};

// Generated rows attend to every position.
bool sees_before(std::size_t i, std::size_t j) {
  return i >= kMaskedPrompt && j < i;
}

TEST_F(PromptMaskTest, ChunkedPromptsAttendWithinTheirChunk) {
  const auto want = naive([](std::uint32_t, std::uint32_t, std::size_t i, std::size_t j) {
    return sees_before(i, j) ||
           (i < kMaskedPrompt && j < i && i / kMaskedChunk == j / kMaskedChunk);
  });
  const Logits got = run(chunked(), {kMaskedPrompt});
  EXPECT_LE(largest_difference(got, want), 1e-4);
  for (const std::uint32_t rows_per_pass : {1U, 7U, 50U, 64U}) {
    EngineOptions options = chunked();
    options.rows_per_pass = rows_per_pass;
    options.n_threads = 3;
    EXPECT_EQ(run(options, {kMaskedPrompt}), got) << rows_per_pass;
    EXPECT_EQ(run(options, {1, 49, 51, 120, kMaskedPrompt}), got) << rows_per_pass;
  }
  EXPECT_EQ(run(chunked(kMaskedPrompt), {kMaskedPrompt}),
            run(exact_options(kMaskedContext), {kMaskedPrompt}));
}

TEST_F(PromptMaskTest, SymmetricPromptsAttendToBothSides) {
  for (const std::size_t side : {0U, 1U, 20U, 129U, 500U}) {
    const auto want = naive([side](std::uint32_t, std::uint32_t, std::size_t i, std::size_t j) {
      const std::size_t distance = i < j ? j - i : i - j;
      return sees_before(i, j) ||
             (i < kMaskedPrompt && j < kMaskedPrompt && (side == 0 || distance <= side));
    });
    EngineOptions options = symmetric(static_cast<std::uint32_t>(side));
    const Logits got = run(options, {kMaskedPrompt});
    EXPECT_LE(largest_difference(got, want), 1e-4) << side;
    options.rows_per_pass = kMaskedPrompt;
    options.n_threads = 3;
    EXPECT_EQ(run(options, {kMaskedPrompt}), got) << side;
  }
}

// A second prompt attends to the first, which does not see it.
TEST_F(PromptMaskTest, ASymmetricPromptSeesEarlierOnes) {
  constexpr std::size_t kFirst = 60;
  for (const std::size_t side : {0U, 20U}) {
    const auto want = naive([side](std::uint32_t, std::uint32_t, std::size_t i, std::size_t j) {
      const std::size_t distance = i < j ? j - i : i - j;
      const std::size_t end = i < kFirst ? kFirst : kMaskedPrompt;
      return sees_before(i, j) || (i < kMaskedPrompt && j < end && (side == 0 || distance <= side));
    });
    const Logits got = run(symmetric(static_cast<std::uint32_t>(side)), {kFirst, kMaskedPrompt});
    EXPECT_LE(largest_difference(got, want), 1e-4) << side;
  }
}

TEST_F(PromptMaskTest, OtherRolesAndMembersDoNotShow) {
  EngineOptions fast = symmetric(20);
  fast.exact = false;
  fast.k_type = fast.v_type = KvType::k8Bit;
  for (const EngineOptions& options : {chunked(), symmetric(0), symmetric(20), fast}) {
    const Logits want = run(options, {kMaskedPrompt});
    EngineOptions two = options;
    two.n_sequences = 2;
    two.rows_per_pass = kMaskedPrompt + 20;
    const auto engine = open(two);
    const auto first = engine->create_session().value();
    const auto second = engine->create_session().value();
    Logits ignored;
    prefill(*first, 0, 30, ignored);
    Logits got;
    prefill(*second, 0, kMaskedPrompt, got);
    for (std::size_t i = kMaskedPrompt; i < kMaskedTokens; ++i) {
      step(*first, i, ignored);
      step(*second, i, got);
    }
    EXPECT_EQ(got, want);
  }
}

TEST_F(PromptMaskTest, TellsWhichPositionsAreVisible) {
  const auto visible = [&](const EngineOptions& options, std::size_t n) {
    const auto engine = open(options);
    const auto session = engine->create_session().value();
    Logits ignored;
    prefill(*session, 0, n, ignored);
    std::vector<std::uint32_t> positions;
    EXPECT_TRUE(session->visible_positions(1, 0, positions).ok());
    return positions;
  };
  EXPECT_THAT(visible(chunked(), 53), testing::ElementsAre(50, 51, 52));
  EXPECT_TRUE(visible(chunked(), 50).empty());
  EXPECT_THAT(visible(symmetric(2), 9), testing::ElementsAre(7, 8));
  EXPECT_EQ(visible(symmetric(0), 9).size(), 9U);
}

TEST_F(PromptMaskTest, ASymmetricPromptIsOnePass) {
  EXPECT_EQ(open(symmetric(0))->impl().rows_per_pass, kMaskedContext);
  EngineOptions options = symmetric(5);
  options.rows_per_pass = 64;
  const auto engine = open(options);
  const auto session = engine->create_session().value();
  Logits ignored;
  AppendLogits sink(ignored);
  for (const Status& status :
       {session->prefill_rows(tokens(0, 65), sink), session->prefill(tokens(0, 65), nullptr)}) {
    EXPECT_EQ(status.code(), StatusCode::kOutOfBudget);
    EXPECT_THAT(status.message(), HasSubstr("65 prompt tokens"));
    EXPECT_THAT(status.message(), HasSubstr("64 rows"));
  }
  EXPECT_EQ(session->length(), 0U);
  EXPECT_TRUE(session->prefill(tokens(0, 64), nullptr).ok());
}

TEST_F(PromptMaskTest, RefusesByName) {
  EngineOptions options = chunked(0);
  EXPECT_THAT(open_status(options).message(), HasSubstr("chunks of 0"));
  for (const KvPolicy policy : {KvPolicy::kWindow, KvPolicy::kH2o}) {
    for (EngineOptions both : {chunked(), symmetric(0)}) {
      both.kv_policy.policy = policy;
      const Status status = open_status(both);
      EXPECT_EQ(status.code(), StatusCode::kUnsupported);
      EXPECT_THAT(status.message(), HasSubstr(std::string(attention_kind_name(both.attention))));
      EXPECT_THAT(status.message(), HasSubstr(std::string(kv_policy_name(policy))));
    }
  }
  std::vector<double> log_probs(10);
  const Status scored = open(symmetric(0))->score(tokens(0, 11), 1, log_probs);
  EXPECT_EQ(scored.code(), StatusCode::kUnsupported);
  EXPECT_THAT(scored.message(), HasSubstr("symmetric"));
  EXPECT_TRUE(open(chunked())->score(tokens(0, 11), 1, log_probs).ok());
}

TEST_F(PromptMaskTest, ModelsThatCannotLookAheadAreRefused) {
  ModelSpec spec = naive_llama(2, kMaskedContext);
  spec.architecture = "mistral";
  spec.sliding_window = {0, 40};
  make_model(spec, kMaskedTokens);
  EXPECT_TRUE(open_status(chunked()).ok());
  EXPECT_THAT(open_status(symmetric(0)).message(), HasSubstr("attends to the last 40 of 200"));
}

// A session continues under the mask that it was saved with.
TEST_F(PromptMaskTest, SessionFilesNameTheMask) {
  const std::string file = path_ + ".session";
  const auto load = [&](const EngineOptions& options) {
    return open(options)->create_session().value()->load(file);
  };
  for (const EngineOptions& options : {chunked(), symmetric(7)}) {
    const auto engine = open(options);
    const auto session = engine->create_session().value();
    ASSERT_TRUE(session->prefill(tokens(0, 20), nullptr).ok());
    ASSERT_TRUE(session->save(file, {}).ok());
    const Status loaded = load(options);
    EXPECT_TRUE(loaded.ok()) << loaded.message();
    for (const EngineOptions& other : {exact_options(kMaskedContext), chunked(51), symmetric(8)}) {
      EXPECT_THAT(load(other).message(),
                  HasSubstr(std::string(attention_kind_name(options.attention))));
    }
    std::filesystem::remove(file);
  }
}

}  // namespace
}  // namespace qsf
