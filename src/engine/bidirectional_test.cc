// SPDX-License-Identifier: MIT
//
// Models whose rows attend to both sides, against their definition: embeddings and rows, windows,
// how long a text may be, and what such a model refuses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine_impl.h"
#include "engine/engine_plan.h"
#include "engine/testing/naive_model_test.h"
#include "engine/testing/streamed_model.h"

namespace qsf {
namespace {

using testing::HasSubstr;

constexpr std::uint32_t kContext = 700;  // more than a span of attention

ModelSpec encoder_spec(std::vector<std::uint32_t> windows) {
  ModelSpec spec = testing_support::naive_llama(3, kContext);
  spec.tied_head = spec.embeds_only = spec.bidirectional = true;
  spec.pooling = Pooling::kMean;
  spec.sliding_window = std::move(windows);
  return spec;
}

class BidirectionalTest : public testing_support::NaiveModelTest {
 protected:
  // The rows behind the layers, from the definition.
  std::vector<std::vector<double>> rows_of(std::size_t n_tokens) {
    std::vector<std::vector<std::vector<double>>> hidden;
    model_->logits({tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(n_tokens)},
                   kContext, {}, nullptr, &hidden);
    return hidden.back();
  }

  static testing_support::Logits rows_of(Engine& engine, std::span<const TokenId> tokens) {
    const std::size_t n_cols = engine.spec().hidden;
    std::vector<float> hidden(tokens.size() * n_cols);
    const Status status = engine.run_layers(tokens, 0, engine.spec().n_layers, hidden);
    EXPECT_TRUE(status.ok()) << status.message();
    testing_support::Logits rows;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto row = hidden.begin() + static_cast<std::ptrdiff_t>(i * n_cols);
      rows.emplace_back(row, row + static_cast<std::ptrdiff_t>(n_cols));
    }
    return rows;
  }

  static std::vector<float> embed(Engine& engine, std::span<const TokenId> tokens) {
    std::vector<float> embedding(engine.spec().hidden, NAN);
    const Status status = engine.embed(tokens, std::nullopt, true, embedding);
    EXPECT_TRUE(status.ok()) << status.message();
    return embedding;
  }
};

TEST_F(BidirectionalTest, RowsAreThoseOfTheDefinition) {
  const std::vector<std::uint32_t> windows[] = {
      {}, {0, 1, 0}, {9, 0, 65}, {0, 600, 200}, {kContext}};
  for (const std::vector<std::uint32_t>& window : windows) {
    make_model(encoder_spec(window), kContext);
    const auto engine = open(exact_options(kContext));
    for (const std::size_t n : {1U, 2U, 64U, 130U, kContext}) {
      const auto got = rows_of(*engine, tokens(0, n));
      EXPECT_LE(testing_support::largest_difference(got, rows_of(n)), 1e-4)
          << n << " tokens, " << window.size() << " windows";
    }
    TearDown();
  }
  make_model(encoder_spec({}), 1);
}

// The norms of sums: LayerNorm with biases, of the embedded tokens too.
TEST_F(BidirectionalTest, NormsOfSumsAreThoseOfTheDefinition) {
  ModelSpec spec = encoder_spec({});
  spec.architecture = "nomic-bert";
  spec.norm = NormType::kLayerNorm;
  spec.norms_stream = true;
  make_model(spec, kContext);
  const auto engine = open(exact_options(kContext));
  for (const std::size_t n : {1U, 2U, 64U, 130U}) {
    const auto got = rows_of(*engine, tokens(0, n));
    EXPECT_LE(testing_support::largest_difference(got, rows_of(n)), 1e-4) << n;
  }
  // The same in parts of the layers.
  const auto wanted = rows_of(*engine, tokens(0, 9));
  std::vector<float> hidden(std::size_t{9} * spec.hidden);
  ASSERT_TRUE(engine->run_layers(tokens(0, 9), 0, 1, hidden).ok());
  ASSERT_TRUE(engine->run_layers(tokens(0, 9), 1, 3, hidden).ok());
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    EXPECT_EQ(hidden[i], wanted[i / spec.hidden][i % spec.hidden]) << i;
  }
  const auto embedding = embed(*engine, tokens(0, 64));
  TearDown();
  spec.norms_stream = false;
  make_model(spec, kContext);
  EXPECT_NE(embed(*open(exact_options(kContext)), tokens(0, 64)), embedding);
}

// What comes behind a row changes it; of a model with windows alone, only near it.
TEST_F(BidirectionalTest, RowsSeeWhatComesBehindThem) {
  make_model(encoder_spec({3}), kContext);
  const auto engine = open(exact_options(kContext));
  const auto whole = rows_of(*engine, tokens(0, 40));
  const auto part = rows_of(*engine, tokens(0, 30));
  // Three layers of windows with two positions to each side reach six rows.
  for (std::size_t i = 0; i < 30; ++i) EXPECT_EQ(part[i] == whole[i], i < 24) << i;
}

TEST_F(BidirectionalTest, BitsDoNotDependOnThreadsCompanyOrContext) {
  make_model(encoder_spec({9, 0, 65}), kContext);
  const auto wanted = embed(*open(exact_options(kContext)), tokens(0, 300));
  EngineOptions options = exact_options(400);
  options.n_threads = 1;
  options.n_sequences = 4;
  const auto engine = open(options);
  embed(*engine, tokens(0, 77));
  EXPECT_EQ(embed(*engine, tokens(0, 300)), wanted);
  options.rows_per_pass = 300;
  EXPECT_EQ(embed(*open(options), tokens(0, 300)), wanted);
  options.attention = AttentionKind::kSymmetric;
  EXPECT_EQ(embed(*open(options), tokens(0, 300)), wanted);
}

// Weights of layers pass through a ring, and rows of the dense matrices are read one by one.
TEST_F(BidirectionalTest, StreamedWeightsGiveTheSameBits) {
  ModelSpec spec = encoder_spec({9, 0, 65});
  spec.hidden = 256;
  spec.n_heads = 16;
  spec.head_dim = 32;
  spec.ffn = 2400;
  spec.embedding_dense = 200;
  make_model(spec, kContext);
  EngineOptions options = exact_options(100);
  const auto resident = open(options);
  const auto wanted = embed(*resident, tokens(0, 90));
  options.rows_per_pass = 100;
  // The first budget whose activations have room for the text.
  options.ram_budget_bytes = testing_support::smallest_budget(path_, options);
  for (auto plan = Engine::plan_file(path_, options); plan && plan->rows_per_pass < 90;
       plan = Engine::plan_file(path_, options)) {
    options.ram_budget_bytes += testing_support::kMB / 2;
  }
  const auto engine = Engine::open(path_, options);
  ASSERT_TRUE(engine) << engine.error().message();
  EXPECT_FALSE((*engine)->plan().residency.everything_resident);
  EXPECT_EQ(embed(**engine, tokens(0, 90)), wanted);
}

TEST_F(BidirectionalTest, ATextThatIsTooLongIsRefusedWithTheLimit) {
  make_model(encoder_spec({9, 0, 65}), kContext);
  EngineOptions options = exact_options(kContext);
  options.rows_per_pass = 50;
  const auto engine = open(options);
  EXPECT_EQ(engine->plan().rows_per_pass, 50U);
  embed(*engine, tokens(0, 50));
  std::vector<float> embedding(engine->spec().hidden);
  const Status status = engine->embed(tokens(0, 51), std::nullopt, true, embedding);
  EXPECT_EQ(status.code(), StatusCode::kOutOfBudget);
  EXPECT_THAT(status.message(), HasSubstr("51 tokens"));
  EXPECT_THAT(status.message(), HasSubstr("at most 50 rows"));
  EXPECT_THAT(status.message(), HasSubstr("rows per pass"));
  std::vector<float> hidden(51 * engine->spec().hidden);
  EXPECT_EQ(engine->run_layers(tokens(0, 51), 0, 3, hidden).code(), StatusCode::kOutOfBudget);
}

// Without an option a pass has the rows of the whole context.
TEST_F(BidirectionalTest, ThePlanHasRoomForAText) {
  make_model(encoder_spec({}), kContext);
  EngineOptions options = exact_options(600);
  EXPECT_EQ(open(options)->plan().rows_per_pass, 600U);
  options.prefix_cache = true;
  EXPECT_FALSE(open(options)->impl().prefix_tree.has_value());
}

TEST_F(BidirectionalTest, RefusesOtherMasksAndGeneration) {
  make_model(encoder_spec({9, 0, 65}), kContext);
  const auto message = [&](const EngineOptions& options) {
    const auto engine = Engine::open(path_, options);
    return engine ? std::string() : std::string(engine.error().message());
  };
  EngineOptions chunked = exact_options(100);
  chunked.attention = AttentionKind::kChunked;
  EXPECT_THAT(message(chunked), HasSubstr("attention chunked"));
  EXPECT_THAT(message(chunked), HasSubstr("both sides"));
  EngineOptions narrow = exact_options(100);
  narrow.attention = AttentionKind::kSymmetric;
  narrow.prompt_mask.window = 5;
  EXPECT_THAT(message(narrow), HasSubstr("attention symmetric"));
  EngineOptions window = exact_options(100);
  window.kv_policy.policy = KvPolicy::kWindow;
  EXPECT_THAT(message(window), HasSubstr("kv policy window"));
  const auto engine = open(exact_options(100));
  const auto session = engine->create_session().value();
  const Status status = session->prefill(tokens(0, 5), nullptr);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("cannot generate"));
  std::vector<double> log_probs(4);
  const Status score = engine->score(tokens(0, 5), 1, log_probs);
  EXPECT_EQ(score.code(), StatusCode::kUnsupported);
  EXPECT_THAT(score.message(), HasSubstr("cannot generate or score"));
}

}  // namespace
}  // namespace qsf
