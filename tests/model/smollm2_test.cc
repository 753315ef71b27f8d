// SPDX-License-Identifier: MIT
//
// A published model, SmolLM2-135M-Instruct, from its GGUF file: answers and perplexity against
// llama.cpp, a chat of 30 turns, and every setting of the KV cache. scripts/models/get_models
// fetches the model; without it the tests are skipped. scripts/golden/make_smollm2_golden.py wrote
// what llama.cpp computes and explains the bounds.

#include <gtest/gtest.h>
#include <qsf/qsf.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/model/testing/golden_model.h"

namespace {

using namespace qsf_tools;
namespace fs = std::filesystem;
using nlohmann::json;

// Windows of the text that the short test takes; SmolLm2SweepTest takes all.
constexpr std::size_t kShortWindows = 4;

using ConfigPtr = std::unique_ptr<QSFConfig, void (*)(QSFConfig*)>;
using Setting = std::function<void(QSFConfig*)>;

// Where get_models puts the file.
fs::path gguf_path() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const fs::path folder = cache != nullptr && cache[0] == '/' ? fs::path(cache)
                          : home != nullptr                   ? fs::path(home) / ".cache"
                                                              : fs::path();
  return folder / "qsf" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf";
}

json golden(const char* name) {
  return json::parse(read_file(fs::path(QSF_SOURCE_DIR) / "testdata" / "smollm2" / name));
}

class SmolLm2Test : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!fs::exists(gguf_path())) return;
    scratch_ = fs::temp_directory_path() / ("qsf_smollm2_" + std::to_string(::getpid()));
    fs::create_directories(scratch_);
    const std::string command = std::string(QSF_BIN_DIR) + "/qsf-convert --quiet '" +
                                gguf_path().string() + "' " + model().string();
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  static void TearDownTestSuite() {
    if (!scratch_.empty()) fs::remove_all(scratch_);
  }
  void SetUp() override {
    if (!fs::exists(gguf_path())) {
      GTEST_SKIP() << "no " << gguf_path().filename().string()
                   << "; scripts/models/get_models fetches it";
    }
  }

  static fs::path model() { return scratch_ / "model.qsf"; }

  // Opens the model with a context, exact or not, and what `set` changes.
  static EnginePtr open(int context, bool exact, const Setting& set = nullptr) {
    const ConfigPtr config(qsf_config_default(), qsf_config_free);
    qsf_config_set_max_seq_len(config.get(), context);
    qsf_config_set_exact(config.get(), exact ? 1 : 0);
    if (set) set(config.get());
    QSFEngine* engine = nullptr;
    qsf_error error = {};
    EXPECT_EQ(qsf_engine_open(model().c_str(), config.get(), &engine, &error), QSF_OK)
        << error.message;
    return EnginePtr(engine);
  }

  static fs::path scratch_;
};

fs::path SmolLm2Test::scratch_;

std::vector<int> joined(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

// The largest logit of each row of a prompt, collected block by block.
struct BestTokens {
  std::vector<int> best;
  std::vector<float> largest;

  explicit BestTokens(std::size_t n)
      : best(n, -1), largest(n, -std::numeric_limits<float>::infinity()) {}

  static void add(std::size_t row, int first_token, const float* logits, std::size_t n_logits,
                  void* user_data) {
    auto* self = static_cast<BestTokens*>(user_data);
    const float* const top = std::max_element(logits, logits + n_logits);
    if (*top <= self->largest[row]) return;
    self->largest[row] = *top;
    self->best[row] = first_token + static_cast<int>(top - logits);
  }
};

// At every step of llama.cpp's answers its token must be the best one here too, if it leads by more
// than the bound. Steps after a closer one are compared as well, since the answer is given.
void expect_answers(QSFEngine* engine, double bound) {
  const json all = golden("answers.json");
  std::size_t n_compared = 0;
  std::size_t n_close = 0;
  for (const json& item : all["answers"]) {
    const auto prompt = item["prompt"].get<std::vector<int>>();
    const auto answer = item["answer"].get<std::vector<int>>();
    const auto leads = item["leads"].get<std::vector<double>>();
    const std::vector<int> tokens = joined(prompt, answer);
    BestTokens best(tokens.size());
    const SessionPtr session = open_session(engine);
    qsf_error error = {};
    ASSERT_EQ(qsf_session_prefill_logits(session.get(), tokens.data(), tokens.size(),
                                         BestTokens::add, &best, &error),
              QSF_OK)
        << error.message;
    for (std::size_t i = 0; i < answer.size(); ++i) {
      if (leads[i] <= bound) {
        ++n_close;
        continue;
      }
      ++n_compared;
      EXPECT_EQ(best.best[prompt.size() - 1 + i], answer[i])
          << item["question"] << " token " << i << ", lead " << leads[i];
    }
  }
  // A bound that leaves little to compare would prove nothing.
  EXPECT_GT(n_compared, n_close) << "bound " << bound;
}

TEST_F(SmolLm2Test, ExactAnswersEqualLlamaCpp) {
  const auto set = [](QSFConfig* config) { qsf_config_set_kv_type(config, QSF_KV_F32); };
  expect_answers(open(512, true, set).get(), golden("answers.json")["exact_bound"]);
}

TEST_F(SmolLm2Test, DefaultAnswersEqualLlamaCpp) {
  expect_answers(open(512, false).get(), golden("answers.json")["rounding"]);
}

// The whole path of a chat: template, tokenizer, greedy sampling, text.
TEST_F(SmolLm2Test, AChatGivesTheAnswerOfLlamaCpp) {
  const auto set = [](QSFConfig* config) { qsf_config_set_kv_type(config, QSF_KV_F32); };
  const EnginePtr engine = open(512, true, set);
  const json item = golden("answers.json")["answers"][0];
  QSFChat* chat = nullptr;
  qsf_error error = {};
  ASSERT_EQ(qsf_chat_create(engine.get(), nullptr, &chat, &error), QSF_OK) << error.message;
  qsf_sampling greedy;
  qsf_sampling_init(&greedy);
  greedy.temperature = 0;
  greedy.repeat_penalty = 1;
  qsf_chat_send_options options;
  qsf_chat_send_options_init(&options);
  options.sampling = &greedy;
  options.max_tokens = 64;
  std::string text;
  options.user_data = &text;
  options.on_token = [](int, const char* piece, void* user_data) {
    static_cast<std::string*>(user_data)->append(piece);
  };
  qsf_chat_result result = {};
  result.struct_size = sizeof result;
  const std::string question = item["question"];
  EXPECT_EQ(qsf_chat_send(chat, question.data(), question.size(), &options, &result, &error),
            QSF_OK)
      << error.message;
  EXPECT_EQ(result.prompt_tokens, static_cast<int>(item["prompt"].size()));
  EXPECT_EQ(result.reason, QSF_STOP_END_OF_TEXT);
  EXPECT_EQ(text + "<|im_end|>", item["text"].get<std::string>());
  qsf_chat_free(chat);
}

TEST_F(SmolLm2Test, AChatOf30TurnsComputesOnlyWhatIsNew) {
  constexpr int kContext = 768;
  const EnginePtr engine = open(kContext, false);
  QSFChat* chat = nullptr;
  qsf_error error = {};
  ASSERT_EQ(qsf_chat_create(engine.get(), nullptr, &chat, &error), QSF_OK) << error.message;
  qsf_chat_send_options options;
  qsf_chat_send_options_init(&options);
  options.max_tokens = 24;
  const json all = golden("answers.json");
  int dropped = 0;
  for (int turn = 0; turn < 30; ++turn) {
    const std::string question = all["answers"][static_cast<std::size_t>(turn) % 10]["question"];
    qsf_chat_result result = {};
    result.struct_size = sizeof result;
    ASSERT_EQ(qsf_chat_send(chat, question.data(), question.size(), &options, &result, &error),
              QSF_OK)
        << turn << ": " << error.message;
    EXPECT_TRUE(result.reason == QSF_STOP_END_OF_TEXT || result.reason == QSF_STOP_MAX_TOKENS)
        << turn << ": " << result.reason;
    EXPECT_GT(result.generated_tokens, 0) << turn;
    EXPECT_LE(result.context_tokens, kContext) << turn;
    if (turn > 0 && result.dropped_messages == 0) {
      EXPECT_LT(result.prompt_tokens, 40) << turn;
      EXPECT_GT(result.reused_tokens, 0) << turn;
    }
    dropped += result.dropped_messages;
  }
  EXPECT_GT(dropped, 0) << "30 turns did not fill the context";
  qsf_chat_info info = {};
  info.struct_size = sizeof info;
  ASSERT_EQ(qsf_chat_get_info(chat, &info, &error), QSF_OK) << error.message;
  EXPECT_EQ(info.n_messages, 2 * 30 - dropped);
  qsf_chat_free(chat);
}

// exp of the mean loss of tokens[first] and those after it.
double perplexity_of(QSFEngine* engine, const std::vector<int>& tokens, std::size_t first) {
  std::vector<double> log_probs(tokens.size() - first);
  qsf_error error = {};
  EXPECT_EQ(qsf_engine_score(engine, tokens.data(), tokens.size(), first, log_probs.data(), &error),
            QSF_OK)
      << error.message;
  double sum = 0;
  for (const double value : log_probs) sum -= value;
  return std::exp(sum / static_cast<double>(log_probs.size()));
}

// The ten questions and answers, one after another: a text of some 900 tokens.
std::vector<int> conversation() {
  const json all = golden("answers.json");
  std::vector<int> tokens;
  for (const json& item : all["answers"]) {
    tokens = joined(tokens, item["prompt"].get<std::vector<int>>());
    tokens = joined(tokens, item["answer"].get<std::vector<int>>());
  }
  return tokens;
}

struct KvCase {
  const char* name;
  double most;  // times the perplexity with everything kept in f32
  Setting set;
};

Setting kv_types(qsf_kv_type keys, qsf_kv_type values) {
  return [=](QSFConfig* config) { qsf_config_set_kv_types(config, keys, values); };
}

Setting kv_policy(qsf_kv_policy policy, bool rope_reindex = false) {
  return [=](QSFConfig* config) {
    qsf_config_set_kv_policy(config, policy, 256, 4, 64);
    if (rope_reindex) qsf_config_set_rope_reindex(config, 1);
  };
}

std::vector<KvCase> kv_cases() {
  const auto sparse = [](QSFConfig* config) {
    qsf_h2o_options options;
    qsf_h2o_options_init(&options);
    options.local = 64;
    options.heavy = 64;
    options.chunk = 256;
    qsf_config_set_attention(config, QSF_ATTENTION_H2O, &options);
  };
  return {{"f16", 1.01, kv_types(QSF_KV_F16, QSF_KV_F16)},
          {"8", 1.02, kv_types(QSF_KV_8BIT, QSF_KV_8BIT)},
          {"4", 1.15, kv_types(QSF_KV_4BIT, QSF_KV_4BIT)},
          {"2", 6.0, kv_types(QSF_KV_2BIT, QSF_KV_2BIT)},
          {"window", 1.5, kv_policy(QSF_KV_POLICY_WINDOW)},
          {"window, keys rotated by cache position", 1.5, kv_policy(QSF_KV_POLICY_WINDOW, true)},
          {"h2o eviction", 1.5, kv_policy(QSF_KV_POLICY_H2O)},
          {"sparse prefill", 1.5, sparse}};
}

// Fewer bits and fewer positions cost quality. On this text 2 bits triple the perplexity; every
// other setting raises it by a few percent.
TEST_F(SmolLm2Test, EveryKvTypeAndPolicyKeepsTheTextLikely) {
  const std::vector<int> tokens = conversation();
  const double full = perplexity_of(open(1024, false, kv_types(QSF_KV_F32, QSF_KV_F32)).get(),
                                    tokens, tokens.size() / 2);
  for (const KvCase& item : kv_cases()) {
    const double found =
        perplexity_of(open(1024, false, item.set).get(), tokens, tokens.size() / 2);
    EXPECT_LT(found / full, item.most) << item.name;
    EXPECT_GT(found / full, 0.9) << item.name;
  }
}

// The text that perplexity is of, as tokens; empty where the shared corpus is absent.
std::vector<int> text_tokens(QSFEngine* engine, const json& expected) {
  const fs::path path = fs::path(QSF_SHARED_DIR) / "corpus" / expected["text"].get<std::string>();
  if (!fs::exists(path)) return {};
  const std::string text = read_file(path).substr(0, expected["bytes"].get<std::size_t>());
  std::vector<int> tokens(text.size());
  std::size_t n_tokens = 0;
  qsf_error error = {};
  EXPECT_EQ(qsf_engine_tokenize(engine, text.data(), text.size(), 0, tokens.data(), tokens.size(),
                                &n_tokens, &error),
            QSF_OK)
      << error.message;
  tokens.resize(n_tokens);
  EXPECT_EQ(n_tokens, expected["n_tokens"].get<std::size_t>());
  return tokens;
}

// Perplexity of the first windows, over llama.cpp's with the weights in f16.
double over_llama_cpp(QSFEngine* engine, const json& expected, const std::vector<int>& tokens,
                      std::size_t n_windows) {
  const auto context = expected["context"].get<std::size_t>();
  const auto losses = expected["f16_losses"].get<std::vector<double>>();
  n_windows = std::min(n_windows, losses.size());
  double difference = 0;
  for (std::size_t i = 0; i < n_windows; ++i) {
    const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(i * context);
    const std::vector<int> window(begin, begin + static_cast<std::ptrdiff_t>(context));
    difference += std::log(perplexity_of(engine, window, context / 2 + 1)) - losses[i];
  }
  return std::exp(difference / static_cast<double>(n_windows));
}

void expect_perplexity(QSFEngine* engine, std::size_t n_windows, double tolerance) {
  const json expected = golden("perplexity.json");
  const std::vector<int> tokens = text_tokens(engine, expected);
  if (tokens.empty()) GTEST_SKIP() << "no shared corpus at " << QSF_SHARED_DIR;
  EXPECT_NEAR(over_llama_cpp(engine, expected, tokens, n_windows), 1.0, tolerance);
}

TEST_F(SmolLm2Test, ExactPerplexityEqualsLlamaCppInF16) {
  expect_perplexity(open(512, true).get(), kShortWindows, 0.001);
}

// Rounding activations to 8 bits raises the perplexity of the whole text by 0.56 % +/- 0.13, that
// of these windows by 0.66 %. In llama.cpp it is 0.16 % +/- 0.11.
TEST_F(SmolLm2Test, DefaultPerplexityIsNearLlamaCppInF16) {
  expect_perplexity(open(512, false).get(), kShortWindows, 0.01);
}

using SmolLm2SweepTest = SmolLm2Test;

TEST_F(SmolLm2SweepTest, PerplexityOfTheWholeText) {
  expect_perplexity(open(512, true).get(), SIZE_MAX, 0.001);
  expect_perplexity(open(512, false).get(), SIZE_MAX, 0.0075);
}

// Every type of keys with every type of values under every policy.
TEST_F(SmolLm2SweepTest, EveryPairOfKvTypesUnderEveryPolicy) {
  const std::vector<int> tokens = conversation();
  const qsf_kv_type types[] = {QSF_KV_F32, QSF_KV_F16, QSF_KV_8BIT, QSF_KV_4BIT, QSF_KV_2BIT};
  const double full = perplexity_of(open(1024, false, kv_types(QSF_KV_F32, QSF_KV_F32)).get(),
                                    tokens, tokens.size() / 2);
  for (const qsf_kv_policy policy : {QSF_KV_POLICY_FULL, QSF_KV_POLICY_WINDOW, QSF_KV_POLICY_H2O}) {
    for (const qsf_kv_type keys : types) {
      for (const qsf_kv_type values : types) {
        const auto set = [&](QSFConfig* config) {
          kv_types(keys, values)(config);
          kv_policy(policy)(config);
        };
        const double found = perplexity_of(open(1024, false, set).get(), tokens, tokens.size() / 2);
        EXPECT_LT(found / full, 10.0) << policy << " keys " << keys << " values " << values;
        EXPECT_GT(found / full, 0.9) << policy << " keys " << keys << " values " << values;
      }
    }
  }
}

}  // namespace
