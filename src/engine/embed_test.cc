// SPDX-License-Identifier: MIT
//
// Tests of embeddings: pooled rows behind the final norm, against the definition of the model.

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/generation.h"
#include "engine/testing/naive_model_test.h"

namespace qsf {
namespace {

using testing_support::CancelAtAttention;

constexpr std::size_t kTokens = 21;

class EmbedTest : public testing_support::NaiveModelTest {
 protected:
  void SetUp() override { make_model(testing_support::naive_llama(3, 64), kTokens); }

  // The rows that the head multiplies, from the definition.
  std::vector<std::vector<double>> normed_rows() {
    std::vector<std::vector<double>> rows;
    model_->set_on_product(
        [&](TensorKind matrix, std::uint32_t, std::uint32_t, const std::vector<double>& x) {
          if (matrix == TensorKind::kHead) rows.push_back(x);
        });
    model_->logits({tokens_.begin(), tokens_.end()}, 64, {});
    return rows;
  }

  std::vector<float> embed(Engine& engine, std::optional<Pooling> pooling, bool normalize) {
    std::vector<float> embedding(engine.spec().hidden, NAN);
    const Status status = engine.embed(tokens_, pooling, normalize, embedding);
    EXPECT_TRUE(status.ok()) << status.message();
    return embedding;
  }
};

void expect_near(const std::vector<float>& got, const std::vector<double>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-4) << i;
}

std::vector<double> divided(std::vector<double> values, double divisor) {
  for (double& value : values) value /= divisor;
  return values;
}

double length(const std::vector<double>& values) {
  double squares = 0.0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

TEST_F(EmbedTest, PoolsTheRowsBehindTheFinalNorm) {
  const std::vector<std::vector<double>> rows = normed_rows();
  ASSERT_EQ(rows.size(), kTokens);
  std::vector<double> sum(rows[0].size());
  for (const std::vector<double>& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) sum[i] += row[i];
  }
  std::vector<std::vector<float>> first;
  for (const std::uint32_t rows_per_pass : {0U, 1U, 5U}) {
    EngineOptions options = exact_options(64);
    options.rows_per_pass = rows_per_pass;
    const auto engine = open(options);
    const std::vector<std::vector<float>> all = {
        embed(*engine, Pooling::kMean, false),  embed(*engine, Pooling::kLast, false),
        embed(*engine, Pooling::kMean, true),   embed(*engine, Pooling::kLast, true),
        embed(*engine, Pooling::kFirst, false), embed(*engine, std::nullopt, true)};
    expect_near(all[0], divided(sum, kTokens));
    expect_near(all[1], rows.back());
    expect_near(all[2], divided(sum, length(sum)));
    expect_near(all[3], divided(rows.back(), length(rows.back())));
    expect_near(all[4], rows.front());
    EXPECT_EQ(all[5], all[2]) << "the mean where the file names no pooling";
    if (first.empty()) first = all;
    EXPECT_EQ(all, first) << rows_per_pass << " rows a pass";
  }
}

TEST_F(EmbedTest, PoolsAsTheFileSays) {
  for (const Pooling pooling : {Pooling::kMean, Pooling::kLast, Pooling::kFirst}) {
    ModelSpec spec = testing_support::naive_llama(3, 64);
    spec.pooling = pooling;
    make_model(spec, kTokens);
    const auto engine = open(exact_options(64));
    EXPECT_EQ(embed(*engine, std::nullopt, true), embed(*engine, pooling, true));
  }
}

TEST_F(EmbedTest, AModelThatEmbedsAloneSaysNoTokens) {
  ModelSpec spec = testing_support::naive_llama(3, 64);
  spec.tied_head = spec.embeds_only = true;
  make_model(spec, kTokens);
  const auto engine = open(exact_options(64));
  embed(*engine, std::nullopt, true);
  std::vector<float> hidden(kTokens * spec.hidden);
  EXPECT_TRUE(engine->run_layers(tokens_, 0, 3, hidden).ok());
  const auto expect_refused = [](const Status& status, const char* call) {
    EXPECT_EQ(status.code(), StatusCode::kUnsupported) << call;
    EXPECT_NE(std::string(status.message()).find("embeds texts alone"), std::string::npos)
        << call << ": " << status.message();
  };
  std::vector<double> log_probs(kTokens - 1);
  expect_refused(engine->score(tokens_, 1, log_probs), "score");
  const auto session = engine->create_session().value();
  expect_refused(session->prefill(tokens_, nullptr), "prefill");
  expect_refused(Generation::create(*session, tokens_, {}).error(), "generate");
  EXPECT_EQ(session->length(), 0U);
}

TEST_F(EmbedTest, ACancelledOneLeavesNothing) {
  CancelAtAttention cancel;
  EngineOptions options = exact_options(64);
  options.observer = &cancel;
  options.rows_per_pass = 4;
  const auto engine = open(options);
  cancel.engine = engine.get();
  const std::vector<float> wanted = embed(*engine, Pooling::kMean, true);
  cancel.n_left = 5;
  std::vector<float> embedding(engine->spec().hidden);
  EXPECT_EQ(engine->embed(tokens_, Pooling::kMean, true, embedding).code(), StatusCode::kCancelled);
  EXPECT_EQ(embed(*engine, Pooling::kMean, true), wanted);
}

TEST_F(EmbedTest, RefusesWhatItCannotRun) {
  const auto engine = open(exact_options(16));
  std::vector<float> embedding(engine->spec().hidden);
  const auto code = [&](std::span<const TokenId> tokens) {
    return engine->embed(tokens, Pooling::kLast, false, embedding).code();
  };
  EXPECT_EQ(code({}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(tokens_), StatusCode::kOutOfBudget);
  const std::vector<TokenId> unknown = {1, testing_support::kNaiveVocab};
  EXPECT_EQ(code(unknown), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(std::span(tokens_).first(16)), StatusCode::kOk);
}

}  // namespace
}  // namespace qsf
