// SPDX-License-Identifier: MIT
//
// Holds embeddings of folders and GGUF files to those of transformers, at many lengths; and the
// rows that they are made of. expected.bin is laid out in scripts/golden/make_embedding_golden.py.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/testing/golden_values.h"

namespace qsf {
namespace {

using testing_support::GoldenReader;
using testing_support::relative_error;

namespace fs = std::filesystem;

constexpr double kTolerance = 1e-4;  // of the largest value, as golden logits have it
constexpr double kFaultFactor = 100;

const char* const kModels[] = {"qwen3_embedding", "modernbert", "embedding_gemma", "nomic_bert",
                               "nomic_bert_saved"};

struct EmbeddingGolden {
  struct Case {
    std::size_t length;
    std::vector<float> embedding;
    std::vector<float> rows;  // in front of the final norm; empty for long texts
  };
  std::vector<TokenId> tokens;
  std::vector<Case> cases;

  explicit EmbeddingGolden(const fs::path& path) {
    GoldenReader in(path, "QSFEMBD1");
    const std::uint32_t n_cols = in.number();
    tokens.resize(in.number());
    const std::uint32_t n_cases = in.number();
    for (TokenId& token : tokens) token = in.number();
    for (std::uint32_t i = 0; i < n_cases; ++i) {
      const std::uint32_t length = in.number();
      const std::uint32_t n_rows = in.number();
      std::vector<float> embedding = in.values(n_cols);
      cases.push_back({length, std::move(embedding), in.values(std::size_t{n_rows} * n_cols)});
    }
    if (!in.ok()) cases.clear();
  }
};

class GoldenEmbeddingsTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    scratch_ = fs::temp_directory_path() /
               (std::string("qsf_embedding_") + GetParam() + "_" + std::to_string(::getpid()));
    fs::create_directories(scratch_);
  }
  void TearDown() override { fs::remove_all(scratch_); }

  static fs::path data() { return fs::path(QSF_SOURCE_DIR) / "testdata" / "embedding"; }
  static fs::path source() { return data() / GetParam(); }
  static EmbeddingGolden golden() { return EmbeddingGolden(source() / "expected.bin"); }

  std::string convert(const fs::path& from, const std::string& type) {
    const std::string out = (scratch_ / ("model-" + type + ".qsf")).string();
    const std::string command = std::string(QSF_BIN_DIR) + "/qsf-convert --quiet --quant-type " +
                                type + " " + from.string() + " " + out;
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return out;
  }

  static std::unique_ptr<Engine> open(const std::string& path, EngineOptions options = {}) {
    options.exact = true;
    options.k_type = options.v_type = KvType::kF32;
    if (options.n_threads == 0) options.n_threads = 2;
    auto engine = Engine::open(path, options);
    EXPECT_TRUE(engine) << engine.error().message();
    return engine ? std::move(*engine) : nullptr;
  }

  static std::vector<float> embed(Engine& engine, std::span<const TokenId> tokens) {
    std::vector<float> embedding(engine.spec().hidden);
    const Status status = engine.embed(tokens, std::nullopt, true, embedding);
    EXPECT_TRUE(status.ok()) << status.message();
    return embedding;
  }

  fs::path scratch_;
};

TEST_P(GoldenEmbeddingsTest, MatchTransformersAtEveryLength) {
  const EmbeddingGolden golden = this->golden();
  ASSERT_EQ(golden.cases.size(), 8U);
  const auto engine = open(convert(source(), "f32"));
  ASSERT_NE(engine, nullptr);
  for (const EmbeddingGolden::Case& item : golden.cases) {
    const std::span<const TokenId> tokens = std::span(golden.tokens).first(item.length);
    EXPECT_LE(relative_error(embed(*engine, tokens), item.embedding), kTolerance) << item.length;
    if (item.rows.empty()) continue;
    std::vector<float> rows(item.rows.size());
    ASSERT_TRUE(engine->run_layers(tokens, 0, engine->spec().n_layers, rows).ok());
    EXPECT_LE(relative_error(rows, item.rows), kTolerance) << "rows of " << item.length;
  }
}

TEST_P(GoldenEmbeddingsTest, GgufGivesTheSameBits) {
  const EmbeddingGolden golden = this->golden();
  const auto folder = open(convert(source(), "f32"));
  const auto gguf = open(convert(data() / (std::string(GetParam()) + ".gguf"), "f32"));
  ASSERT_TRUE(folder != nullptr && gguf != nullptr);
  for (const EmbeddingGolden::Case& item : golden.cases) {
    const std::span<const TokenId> tokens = std::span(golden.tokens).first(item.length);
    EXPECT_EQ(embed(*gguf, tokens), embed(*folder, tokens)) << item.length;
  }
}

// One thread or more, behind other texts or not, one sequence or several.
TEST_P(GoldenEmbeddingsTest, BitsDoNotDependOnThreadsOrCompany) {
  const EmbeddingGolden golden = this->golden();
  const std::string path = convert(source(), "4bit");
  const auto all_of = [&](Engine& engine) {
    std::vector<std::vector<float>> all;
    for (const EmbeddingGolden::Case& item : golden.cases) {
      all.push_back(embed(engine, std::span(golden.tokens).first(item.length)));
    }
    return all;
  };
  const auto first = open(path);
  ASSERT_NE(first, nullptr);
  const auto wanted = all_of(*first);
  EXPECT_EQ(all_of(*first), wanted) << "again";
  EngineOptions one;
  one.n_threads = 1;
  EXPECT_EQ(all_of(*open(path, one)), wanted) << "one thread";
  EngineOptions many;
  many.n_sequences = 3;
  EXPECT_EQ(all_of(*open(path, many)), wanted) << "three sequences";
}

// A pooling of another kind is as far off as a fault of the graph.
TEST_P(GoldenEmbeddingsTest, AnotherPoolingIsCaught) {
  const EmbeddingGolden golden = this->golden();
  const auto engine = open(convert(source(), "f32"));
  ASSERT_NE(engine, nullptr);
  ASSERT_TRUE(engine->spec().pooling.has_value());
  for (const Pooling pooling : {Pooling::kMean, Pooling::kLast, Pooling::kFirst}) {
    const EmbeddingGolden::Case& item = golden.cases[5];
    std::vector<float> embedding(engine->spec().hidden);
    ASSERT_TRUE(
        engine->embed(std::span(golden.tokens).first(item.length), pooling, true, embedding).ok());
    const double error = relative_error(embedding, item.embedding) / kTolerance;
    if (pooling == *engine->spec().pooling) {
      EXPECT_LE(error, 1.0);
    } else {
      EXPECT_GT(error, kFaultFactor);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenEmbeddingsTest, testing::ValuesIn(kModels),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace qsf
