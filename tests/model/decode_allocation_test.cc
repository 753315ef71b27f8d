// SPDX-License-Identifier: MIT
//
// Decoding allocates nothing: malloc itself is counted, so that C libraries count as well.

#include <gtest/gtest.h>
#include <qsf/qsf.h>

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/testing/allocation_counter.h"

namespace {

using qsf::testing_support::counts_allocations;
using qsf::testing_support::n_allocations;

struct Watch {
  long at_token_5 = 0;
  long at_last_token = 0;
  int n_tokens = 0;
};

void on_token(int, const char*, void* user) {
  auto* watch = static_cast<Watch*>(user);
  if (++watch->n_tokens == 5) watch->at_token_5 = n_allocations();
  watch->at_last_token = n_allocations();
}

class DecodeAllocationTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!counts_allocations()) GTEST_SKIP() << "a sanitizer owns malloc in this build";
    QSFConfig* config = qsf_config_default();
    qsf_config_set_threads(config, 2);
    qsf_error error = {};
    const std::string model = std::string(QSF_SOURCE_DIR) + "/models/tales-5M-4bit.qsf";
    ASSERT_EQ(qsf_engine_open(model.c_str(), config, &engine_, &error), QSF_OK) << error.message;
    qsf_config_free(config);
  }
  void TearDown() override { qsf_free(engine_); }

  QSFEngine* engine_ = nullptr;
};

TEST_F(DecodeAllocationTest, TheCounterCounts) {
  const long before = n_allocations();
  std::vector<int> numbers(100);
  EXPECT_EQ(numbers.size(), 100U);
  EXPECT_GT(n_allocations(), before);
}

TEST_F(DecodeAllocationTest, GeneratingAllocatesNothingPerToken) {
  const char* const stop[] = {"a text that does not come", "nor this one"};
  const std::string prompt = "Once upon a time there was a king who had three sons";
  Watch watch;
  qsf_generate_options options;
  qsf_generate_options_init(&options);
  options.prompt = prompt.c_str();
  options.prompt_bytes = prompt.size();
  options.max_tokens = 200;
  qsf_sampling sampling;
  qsf_sampling_init(&sampling);
  options.sampling = &sampling;
  sampling.seed = 7;
  sampling.repeat_penalty = 1.1F;
  sampling.min_p = 0.02F;
  options.stop = stop;
  options.n_stop = 2;
  options.on_token = on_token;
  options.user_data = &watch;
  const qsf_logit_bias never_end = {2, -1e9F};
  sampling.logit_bias = &never_end;
  sampling.n_logit_bias = 1;
  qsf_generate_result result = {};
  result.struct_size = sizeof result;
  qsf_error error = {};
  ASSERT_EQ(qsf_engine_generate(engine_, &options, &result, &error), QSF_OK) << error.message;
  ASSERT_EQ(result.generated_tokens, 200);
  ASSERT_GE(watch.n_tokens, 200);
  EXPECT_EQ(watch.at_last_token - watch.at_token_5, 0);
}

TEST_F(DecodeAllocationTest, SteppingASessionAllocatesNothing) {
  qsf_error error = {};
  QSFSession* session = nullptr;
  ASSERT_EQ(qsf_session_create(engine_, &session, &error), QSF_OK) << error.message;
  std::vector<float> logits(4096);
  const int prompt[] = {1, 100, 200, 300};
  ASSERT_EQ(qsf_session_prefill(session, prompt, 4, logits.data(), &error), QSF_OK)
      << error.message;
  const long before = n_allocations();
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(qsf_session_step(session, 300 + i, logits.data(), &error), QSF_OK) << error.message;
  }
  EXPECT_EQ(n_allocations() - before, 0);
  qsf_session_free(session);
}

std::uint64_t weight_bytes_read(const QSFEngine* engine) {
  qsf_engine_stats stats = {};
  stats.struct_size = sizeof(stats);
  EXPECT_EQ(qsf_engine_get_stats(engine, &stats, nullptr), QSF_OK);
  return stats.weight_bytes_read;
}

bool is_resident(const QSFEngine* engine) {
  qsf_plan_info plan = {};
  plan.struct_size = sizeof(plan);
  EXPECT_EQ(qsf_plan_get_info(qsf_engine_plan(engine), &plan, nullptr), QSF_OK);
  return plan.everything_resident != 0;
}

// Opens the bundled model in the smallest budget, which a refusal names. Returns null where that
// is not possible.
QSFEngine* open_in_least_budget(qsf_read_path path, int context) {
  const std::string model = std::string(QSF_SOURCE_DIR) + "/models/tales-5M-4bit.qsf";
  QSFConfig* config = qsf_config_default();
  qsf_config_set_threads(config, 2);
  qsf_config_set_io(config, path);
  qsf_config_set_max_seq_len(config, context);
  qsf_config_set_ram_budget(config, 1);
  QSFEngine* engine = nullptr;
  qsf_error error = {};
  EXPECT_EQ(qsf_engine_open(model.c_str(), config, &engine, &error), QSF_OUT_OF_BUDGET);
  const std::string message = error.message;
  const std::size_t at = message.find("needs ");
  EXPECT_NE(at, message.npos) << message;
  if (at != message.npos) {
    qsf_config_set_ram_budget(config, std::strtoul(message.c_str() + at + 6, nullptr, 10));
    EXPECT_EQ(qsf_engine_open(model.c_str(), config, &engine, &error), QSF_OK) << error.message;
  }
  qsf_config_free(config);
  return engine;
}

// Weights and embedding rows come from the disk. Budgets are whole megabytes, and this model has
// three: where all of it fits after all, a shorter context leaves less room.
TEST(StreamedAllocationTest, SteppingAStreamedSessionAllocatesNothing) {
  if (!counts_allocations()) GTEST_SKIP() << "a sanitizer owns malloc in this build";
  for (const qsf_read_path path : {QSF_READ_AUTO, QSF_READ_PREAD}) {
    int context = 1024;
    QSFEngine* engine = open_in_least_budget(path, context);
    while (engine != nullptr && is_resident(engine)) {
      qsf_free(engine);
      context -= 64;
      ASSERT_GE(context, 512) << "the whole model fits the smallest budget of any context";
      engine = open_in_least_budget(path, context);
    }
    ASSERT_NE(engine, nullptr);
    qsf_error error = {};
    QSFSession* session = nullptr;
    ASSERT_EQ(qsf_session_create(engine, &session, &error), QSF_OK) << error.message;
    std::vector<float> logits(4096);
    const int prompt[] = {1, 100, 200, 300};
    ASSERT_EQ(qsf_session_prefill(session, prompt, 4, logits.data(), &error), QSF_OK)
        << error.message;
    const std::uint64_t read_before = weight_bytes_read(engine);
    const long before = n_allocations();
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(qsf_session_step(session, 300 + i, logits.data(), &error), QSF_OK) << error.message;
    }
    EXPECT_EQ(n_allocations() - before, 0);
    EXPECT_GT(weight_bytes_read(engine), read_before + 100'000'000);
    qsf_session_free(session);
    qsf_free(engine);
  }
}

// Every branch of the graph: parallel blocks, norms of heads and behind sublayers, rotation by long
// factors, ALiBi, soft caps, windows.
TEST(GraphAllocationTest, SteppingAllocatesNothingInAnyGraph) {
  if (!counts_allocations()) GTEST_SKIP() << "a sanitizer owns malloc in this build";
  const std::string path = testing::TempDir() + "qsf_allocation_" + std::to_string(::getpid());
  for (const char* name : {"phi2", "phi3_long", "qwen3_windows", "opt", "bloom", "gemma2"}) {
    const std::string command = std::string(QSF_BIN_DIR) +
                                "/qsf-convert --quiet --quant-type 4bit " +
                                QSF_SOURCE_DIR "/testdata/golden/" + name + " " + path;
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    QSFConfig* config = qsf_config_default();
    qsf_config_set_threads(config, 2);
    QSFEngine* engine = nullptr;
    qsf_error error = {};
    ASSERT_EQ(qsf_engine_open(path.c_str(), config, &engine, &error), QSF_OK) << error.message;
    qsf_config_free(config);
    std::filesystem::remove(path);
    QSFSession* session = nullptr;
    ASSERT_EQ(qsf_session_create(engine, &session, &error), QSF_OK) << error.message;
    std::vector<float> logits(256);
    const int prompt[] = {1, 20, 30, 40};
    ASSERT_EQ(qsf_session_prefill(session, prompt, 4, logits.data(), &error), QSF_OK)
        << error.message;
    const long before = n_allocations();
    for (int i = 0; i < 70; ++i) {
      ASSERT_EQ(qsf_session_step(session, 3 + i, logits.data(), &error), QSF_OK) << error.message;
    }
    EXPECT_EQ(n_allocations() - before, 0) << name;
    qsf_session_free(session);
    qsf_free(engine);
  }
}

}  // namespace
