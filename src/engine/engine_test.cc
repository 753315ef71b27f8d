// SPDX-License-Identifier: MIT
//
// The engine on the bundled model: the same text at any number of threads, with every thread at
// work, and a memory plan that covers what is mapped.

#include "engine/engine.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/engine_impl.h"

namespace qsf {
namespace {

struct Story {
  std::string text;
  std::vector<std::uint64_t> chunks;  // of each worker
};

void append_text(TokenId, std::string_view text, void* user) {
  static_cast<std::string*>(user)->append(text);
}

Result<std::unique_ptr<Engine>> open_bundled(unsigned n_threads) {
  EngineOptions options;
  options.n_threads = n_threads;
  return Engine::open(std::string(QSF_SOURCE_DIR) + "/models/tales-5M-4bit.qsf", options);
}

Story tell(unsigned n_threads) {
  Story story;
  const std::unique_ptr<Engine> engine = open_bundled(n_threads).value();
  std::vector<TokenId> prompt;
  EXPECT_TRUE(engine->tokenizer()->encode("There was a king", {}, prompt).ok());
  GenerateOptions options;
  options.max_tokens = 80;
  options.sampling.seed = 11;
  options.on_token = append_text;
  options.user = &story.text;
  const std::unique_ptr<Session> session = engine->create_session().value();
  EXPECT_EQ(session->generate(prompt, options).value().generated_tokens, 80U);
  for (unsigned worker = 0; worker < n_threads; ++worker) {
    story.chunks.push_back(engine->impl().threads->chunks_done(worker));
  }
  return story;
}

TEST(EngineTest, SameSeedSameTextAtOneAndTwoThreadsAndBothRan) {
  const Story one = tell(1);
  Story two = tell(2);
  // On a machine that is busy elsewhere one worker may do it all, once.
  for (int i = 0; i < 20 && (two.chunks[0] == 0 || two.chunks[1] == 0); ++i) two = tell(2);
  EXPECT_FALSE(one.text.empty());
  EXPECT_EQ(one.text, two.text);
  EXPECT_EQ(one.text, tell(64).text);
  if (open_bundled(2).value()->impl().threads->n_parallel() < 2) {
    GTEST_SKIP() << "one CPU: workers take turns";
  }
  EXPECT_GT(two.chunks[0], 0U);
  EXPECT_GT(two.chunks[1], 0U);
}

// A step reads every matrix of the layers and the head once, and operators account for its time.
TEST(EngineTest, TheProfileAccountsForAStep) {
  const std::unique_ptr<Engine> engine = open_bundled(2).value();
  const std::unique_ptr<Session> session = engine->create_session().value();
  const std::vector<TokenId> prompt = {1, 100, 200};
  struct Nothing final : LogitsSink {
    void consume(std::uint32_t, std::uint32_t, std::span<const float>) noexcept override {}
  } sink;
  ASSERT_TRUE(session->prefill(prompt, nullptr).ok());
  const EngineStats before = engine->stats();
  ASSERT_TRUE(session->step(300, &sink).ok());
  const EngineStats after = engine->stats();
  const ModelSpec& spec = engine->spec();
  const auto bytes_of = [&](OperatorKind kind) {
    return after.operators[kind].bytes - before.operators[kind].bytes;
  };
  const auto calls_of = [&](OperatorKind kind) {
    return after.operators[kind].calls - before.operators[kind].calls;
  };
  // 4-bit blocks of 64 columns: 16 rows take a line of scales and mins and 8 lines of codes.
  const auto matrix_bytes = [](std::uint64_t rows, std::uint64_t cols) {
    return (rows + 15) / 16 * ((cols + 63) / 64) * 9 * 64;
  };
  EXPECT_EQ(bytes_of(OperatorKind::kGateUp),
            2 * spec.n_layers * matrix_bytes(spec.ffn, spec.hidden));
  EXPECT_EQ(bytes_of(OperatorKind::kDown), spec.n_layers * matrix_bytes(spec.hidden, spec.ffn));
  EXPECT_EQ(bytes_of(OperatorKind::kAttend),
            std::uint64_t{4} * spec.n_layers * spec.kv_dim() * 2 * 2);
  EXPECT_EQ(calls_of(OperatorKind::kQkv), spec.n_layers);
  EXPECT_EQ(calls_of(OperatorKind::kGateUp), spec.n_layers);
  EXPECT_EQ(calls_of(OperatorKind::kHead), 1U);
  EXPECT_EQ(calls_of(OperatorKind::kResidual), 0U);
  const std::uint64_t step_ns = after.generate_ns - before.generate_ns;
  EXPECT_LE(after.operators.total_ns() - before.operators.total_ns(), step_ns);
  EXPECT_LE(after.operators.product_ns() - before.operators.product_ns(), step_ns);
  EXPECT_GT(after.operators.product_ns(), before.operators.product_ns());
}

TEST(EngineTest, SessionsAreBoundedAndReturned) {
  const std::unique_ptr<Engine> engine = open_bundled(1).value();
  {
    const auto first = engine->create_session();
    ASSERT_TRUE(first.has_value());
    EXPECT_EQ(engine->create_session().error().code(), StatusCode::kOutOfBudget);
  }
  EXPECT_TRUE(engine->create_session().has_value());
}

TEST(EngineTest, OptionsOutOfRangeAreNamed) {
  EngineOptions options;
  options.max_context = 1025;
  const std::string path = std::string(QSF_SOURCE_DIR) + "/models/tales-5M-4bit.qsf";
  const Status status = Engine::open(path, options).error();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("1025"), std::string::npos);
  EXPECT_NE(status.message().find("1024"), std::string::npos);
}

}  // namespace
}  // namespace qsf
