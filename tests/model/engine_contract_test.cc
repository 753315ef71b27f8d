// SPDX-License-Identifier: MIT
//
// Promises of the public interface that only a real model can keep or break: cancellation,
// callbacks, statistics, and scores that do not depend on how a file is cut into tiles.

#include <gtest/gtest.h>
#include <qsf/qsf.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

class EngineContractTest : public testing::Test {
 protected:
  void SetUp() override {
    engine_ = open(std::string(QSF_SOURCE_DIR) + "/models/tales-5M-4bit.qsf");
  }
  void TearDown() override { qsf_free(engine_); }

  static QSFEngine* open(const std::string& path) {
    QSFConfig* config = qsf_config_default();
    qsf_config_set_threads(config, 2);
    QSFEngine* engine = nullptr;
    qsf_error error = {};
    EXPECT_EQ(qsf_engine_open(path.c_str(), config, &engine, &error), QSF_OK) << error.message;
    qsf_config_free(config);
    return engine;
  }

  qsf_generate_result generate(int max_tokens, QSFTokenCallback on_token, void* user_data) {
    qsf_sampling greedy;
    qsf_sampling_init(&greedy);
    greedy.temperature = 0;
    qsf_generate_options options;
    qsf_generate_options_init(&options);
    options.prompt = "Once upon a time";
    options.prompt_bytes = 16;
    options.max_tokens = max_tokens;
    options.sampling = &greedy;
    options.on_token = on_token;
    options.user_data = user_data;
    qsf_generate_result result = {};
    result.struct_size = sizeof result;
    qsf_error error = {};
    EXPECT_EQ(qsf_engine_generate(engine_, &options, &result, &error), QSF_OK) << error.message;
    return result;
  }

  QSFEngine* engine_ = nullptr;
};

struct Calls {
  QSFEngine* engine = nullptr;
  int cancel_at = 0;  // 0: never
  int n = 0;
};

void count_and_cancel(int, const char*, void* user_data) {
  auto* calls = static_cast<Calls*>(user_data);
  if (++calls->n == calls->cancel_at) qsf_engine_cancel(calls->engine);
}

TEST_F(EngineContractTest, EveryTokenIsReportedOnce) {
  for (const int n : {0, 1, 3, 20}) {
    Calls calls;
    const qsf_generate_result result = generate(n, count_and_cancel, &calls);
    EXPECT_EQ(result.generated_tokens, n);
    EXPECT_EQ(calls.n, n);
  }
}

// A cancellation belongs to the call in progress, also when it comes with the very last token.
TEST_F(EngineContractTest, CancellingAtTheLastTokenLeavesTheNextCallAlone) {
  for (const int at : {1, 2, 3}) {
    Calls calls{.engine = engine_, .cancel_at = at};
    const qsf_generate_result cancelled = generate(3, count_and_cancel, &calls);
    EXPECT_EQ(cancelled.reason, QSF_STOP_CANCELLED) << at;
    EXPECT_EQ(cancelled.generated_tokens, at);
    Calls undisturbed;
    const qsf_generate_result next = generate(3, count_and_cancel, &undisturbed);
    EXPECT_EQ(next.reason, QSF_STOP_MAX_TOKENS) << at;
    EXPECT_EQ(undisturbed.n, 3);
  }
}

TEST_F(EngineContractTest, PartsOfTheTimeNeverExceedTheWhole) {
  const std::vector<int> tokens(900, 300);
  for (int i = 0; i < 3; ++i) {
    QSFSession* session = nullptr;
    qsf_error error = {};
    ASSERT_EQ(qsf_session_create(engine_, &session, &error), QSF_OK) << error.message;
    qsf_engine_cancel(engine_);
    EXPECT_EQ(qsf_session_prefill(session, tokens.data(), tokens.size(), nullptr, &error),
              QSF_CANCELLED);
    EXPECT_EQ(qsf_session_length(session), 0U);
    EXPECT_EQ(qsf_session_prefill(session, tokens.data(), 70, nullptr, &error), QSF_OK);
    qsf_session_free(session);
  }
  qsf_engine_stats stats = {};
  stats.struct_size = sizeof stats;
  ASSERT_EQ(qsf_engine_get_stats(engine_, &stats, nullptr), QSF_OK);
  EXPECT_EQ(stats.prompt_tokens, 210U);
  EXPECT_GT(stats.matmul_ns, 0U);
  EXPECT_LE(stats.matmul_ns + stats.attention_ns + stats.other_ns,
            stats.prompt_ns + stats.generate_ns);
}

TEST_F(EngineContractTest, ScoresDoNotDependOnTiles) {
  const fs::path folder =
      fs::temp_directory_path() / ("qsf_contract_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  std::vector<int> tokens = {1};
  for (int i = 1; i < 200; ++i) tokens.push_back((i * 37) % 4000 + 20);
  std::vector<std::vector<double>> scores;
  for (const char* tile_bytes : {"65536", "1048576"}) {
    const std::string model = (folder / "model.qsf").string();
    const std::string command = std::string(QSF_BIN_DIR) + "/qsf-convert --quiet --tile-bytes " +
                                tile_bytes + " --quant-type 4bit " + QSF_SOURCE_DIR +
                                "/models/tales-5M " + model;
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    QSFEngine* engine = open(model);
    ASSERT_NE(engine, nullptr);
    scores.emplace_back(tokens.size() - 1);
    qsf_error error = {};
    EXPECT_EQ(
        qsf_engine_score(engine, tokens.data(), tokens.size(), 1, scores.back().data(), &error),
        QSF_OK)
        << error.message;
    qsf_free(engine);
  }
  EXPECT_EQ(scores[0], scores[1]);
  fs::remove_all(folder);
}

struct Drawn {
  int end = 0;  // ids from here on have no token
  int n = 0;
  int n_beyond = 0;
};

void note_beyond(int token, const char*, void* user_data) {
  auto* drawn = static_cast<Drawn*>(user_data);
  ++drawn->n;
  drawn->n_beyond += token >= drawn->end ? 1 : 0;
}

// Phi-2, Qwen2 and others pad their embedding: rows from some id on belong to no token.
TEST_F(EngineContractTest, RowsBeyondTheTokenizerAreNeverDrawn) {
  const fs::path folder = fs::temp_directory_path() / ("qsf_padded_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const fs::path golden = fs::path(QSF_SOURCE_DIR) / "testdata/golden/gpt2";
  std::ifstream in(golden / "config.json");
  std::string config(std::istreambuf_iterator<char>(in), {});
  for (std::size_t at = config.find("112"); at != std::string::npos; at = config.find("112")) {
    config.replace(at, 3, "7");  // the ends of text, which are the last of 113 rows
  }
  std::ofstream(folder / "config.json") << config;
  fs::copy_file(golden / "model.safetensors", folder / "model.safetensors");
  std::ofstream(folder / "vocab.json")
      << R"({"a":0,"b":1,"c":2,"d":3,"e":4,"f":5,"g":6,"<end>":7})";
  std::ofstream(folder / "merges.txt") << "#version: 0.2\n";
  const std::string model = (folder / "model.qsf").string();
  const std::string command =
      std::string(QSF_BIN_DIR) + "/qsf-convert --quiet " + folder.string() + " " + model;
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  QSFEngine* engine = open(model);
  ASSERT_NE(engine, nullptr);

  qsf_logit_bias bias[] = {{100, 50.0F}, {7, -50.0F}};
  qsf_sampling sampling;
  qsf_sampling_init(&sampling);
  sampling.temperature = 3;
  sampling.top_k = 0;
  sampling.top_p = 1;
  sampling.logit_bias = bias;
  sampling.n_logit_bias = 2;
  Drawn drawn{.end = 8};
  qsf_generate_options options;
  qsf_generate_options_init(&options);
  options.prompt = "abc";
  options.prompt_bytes = 3;
  options.max_tokens = 200;
  options.sampling = &sampling;
  options.on_token = note_beyond;
  options.user_data = &drawn;
  qsf_generate_result result = {};
  result.struct_size = sizeof result;
  qsf_error error = {};
  EXPECT_EQ(qsf_engine_generate(engine, &options, &result, &error), QSF_OK) << error.message;
  EXPECT_EQ(drawn.n, 200);
  EXPECT_EQ(drawn.n_beyond, 0);

  // They may still be put in, and are no text.
  const int tokens[] = {0, 8, 112, 1};
  char* text = nullptr;
  EXPECT_EQ(qsf_engine_detokenize(engine, tokens, 4, &text, &error), QSF_OK) << error.message;
  EXPECT_STREQ(text, "ab");
  qsf_string_free(text);
  qsf_free(engine);
  fs::remove_all(folder);
}

TEST_F(EngineContractTest, AWindowLongerThanTheContextIsRefused) {
  const std::vector<int> tokens(1025, 300);
  std::vector<double> scores(1024);
  qsf_error error = {};
  EXPECT_EQ(qsf_engine_score(engine_, tokens.data(), tokens.size(), 1, scores.data(), &error),
            QSF_OUT_OF_BUDGET);
  EXPECT_EQ(qsf_engine_score(engine_, tokens.data(), 1024, 1, scores.data(), &error), QSF_OK)
      << error.message;
}

}  // namespace
