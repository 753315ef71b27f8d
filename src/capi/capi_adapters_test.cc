// SPDX-License-Identifier: MIT
//
// Adapters of the C API: how they are named, chosen and refused, and that texts have them.

#include <gtest/gtest.h>
#include <qsf/qsf.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "engine/testing/bundled_path.h"
#include "engine/testing/random_adapter.h"

namespace {

using qsf::testing_support::kBundled;

struct FreeConfig {
  void operator()(QSFConfig* config) const { qsf_config_free(config); }
};
struct FreeEngine {
  void operator()(QSFEngine* engine) const { qsf_free(engine); }
};
struct FreeSession {
  void operator()(QSFSession* session) const { qsf_session_free(session); }
};
using ConfigPtr = std::unique_ptr<QSFConfig, FreeConfig>;
using EnginePtr = std::unique_ptr<QSFEngine, FreeEngine>;
using SessionPtr = std::unique_ptr<QSFSession, FreeSession>;

const std::string& adapter_path(std::size_t i) {
  static const std::string paths[] = {
      qsf::testing_support::write_random_adapter(kBundled, "first", 1),
      qsf::testing_support::write_random_adapter(kBundled, "second", 2)};
  return paths[i];
}

ConfigPtr config_with_adapters() {
  ConfigPtr config(qsf_config_default());
  qsf_config_set_threads(config.get(), 1);
  qsf_config_set_max_seq_len(config.get(), 128);
  qsf_config_set_max_sessions(config.get(), 2);
  qsf_config_add_adapter(config.get(), adapter_path(0).c_str(), nullptr);
  qsf_config_add_adapter(config.get(), adapter_path(1).c_str(), "other");
  return config;
}

EnginePtr open(const ConfigPtr& config) {
  QSFEngine* engine = nullptr;
  qsf_error error = {};
  EXPECT_EQ(qsf_engine_open(kBundled.c_str(), config.get(), &engine, &error), QSF_OK)
      << error.message;
  return EnginePtr(engine);
}

std::string refusal(const ConfigPtr& config) {
  QSFEngine* engine = nullptr;
  qsf_error error = {};
  EXPECT_NE(qsf_engine_open(kBundled.c_str(), config.get(), &engine, &error), QSF_OK);
  EXPECT_EQ(engine, nullptr);
  return error.message;
}

void append_text(int, const char* text, void* user_data) {
  static_cast<std::string*>(user_data)->append(text);
}

qsf_generate_options options_for(std::string& text) {
  qsf_generate_options options;
  qsf_generate_options_init(&options);
  options.prompt = "There was a king";
  options.max_tokens = 12;
  options.on_token = append_text;
  options.user_data = &text;
  return options;
}

std::string session_text(QSFEngine* engine, int adapter, float scale) {
  QSFSession* created = nullptr;
  EXPECT_EQ(qsf_session_create(engine, &created, nullptr), QSF_OK);
  const SessionPtr session(created);
  qsf_error error = {};
  EXPECT_EQ(qsf_session_set_adapter(created, adapter, scale, &error), QSF_OK) << error.message;
  std::string text;
  const qsf_generate_options options = options_for(text);
  EXPECT_EQ(qsf_session_generate(created, &options, nullptr, &error), QSF_OK) << error.message;
  return text;
}

std::string engine_text(QSFEngine* engine) {
  std::string text;
  const qsf_generate_options options = options_for(text);
  EXPECT_EQ(qsf_engine_generate(engine, &options, nullptr, nullptr), QSF_OK);
  return text;
}

TEST(CapiAdaptersTest, AreCountedAndNamed) {
  const EnginePtr engine = open(config_with_adapters());
  EXPECT_EQ(qsf_engine_adapter_count(engine.get()), 2);
  EXPECT_STREQ(qsf_engine_adapter_name(engine.get(), 1), "first");
  EXPECT_STREQ(qsf_engine_adapter_name(engine.get(), 2), "other");
  for (const int none : {-1, 0, 3}) {
    EXPECT_EQ(qsf_engine_adapter_name(engine.get(), none), nullptr) << none;
  }
  EXPECT_EQ(qsf_engine_adapter_count(nullptr), 0);
  EXPECT_EQ(qsf_engine_adapter_name(nullptr, 1), nullptr);
  const ConfigPtr plain(qsf_config_default());
  EXPECT_EQ(qsf_engine_adapter_count(open(plain).get()), 0);
}

TEST(CapiAdaptersTest, TextsHaveThatOfTheirSession) {
  const EnginePtr engine = open(config_with_adapters());
  const std::string base = session_text(engine.get(), 0, 1.0F);
  const std::string first = session_text(engine.get(), 1, 1.0F);
  const std::string second = session_text(engine.get(), 2, 1.0F);
  const std::string half = session_text(engine.get(), 1, 0.5F);
  EXPECT_NE(first, base);
  EXPECT_NE(second, base);
  EXPECT_NE(first, second);
  EXPECT_NE(first, half);
  EXPECT_EQ(engine_text(engine.get()), base);
  EXPECT_EQ(engine_text(open(ConfigPtr(qsf_config_default())).get()), base);
  const ConfigPtr config = config_with_adapters();
  qsf_config_set_adapter(config.get(), 1, 0.5F);
  const EnginePtr chosen = open(config);
  EXPECT_EQ(engine_text(chosen.get()), half);
  EXPECT_EQ(session_text(chosen.get(), 0, 1.0F), base);
}

TEST(CapiAdaptersTest, WrongChoicesAreRefused) {
  const EnginePtr engine = open(config_with_adapters());
  QSFSession* created = nullptr;
  ASSERT_EQ(qsf_session_create(engine.get(), &created, nullptr), QSF_OK);
  const SessionPtr session(created);
  qsf_error error = {};
  for (const int adapter : {-1, 3, 65536 + 1}) {
    EXPECT_EQ(qsf_session_set_adapter(created, adapter, 1.0F, &error), QSF_INVALID_ARGUMENT);
    EXPECT_NE(std::strstr(error.message, "adapter"), nullptr) << error.message;
  }
  EXPECT_EQ(qsf_session_set_adapter(created, 1, NAN, &error), QSF_INVALID_ARGUMENT);
  EXPECT_EQ(qsf_session_set_adapter(nullptr, 1, 1.0F, &error), QSF_INVALID_ARGUMENT);
  const int token = 300;
  ASSERT_EQ(qsf_session_prefill(created, &token, 1, nullptr, nullptr), QSF_OK);
  EXPECT_EQ(qsf_session_set_adapter(created, 1, 1.0F, &error), QSF_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message,
               "adapter: the session has 1 tokens, computed with another choice; truncate it to 0 "
               "tokens, or take a new session");
}

TEST(CapiAdaptersTest, WrongFilesAreRefusedAtTheOpening) {
  qsf_config_add_adapter(nullptr, "x", nullptr);
  qsf_config_set_adapter(nullptr, 1, 1.0F);
  ConfigPtr config = config_with_adapters();
  qsf_config_add_adapter(config.get(), "/nonexistent/adapter.qsf", nullptr);
  EXPECT_NE(refusal(config).find("/nonexistent/adapter.qsf"), std::string::npos);
  config = config_with_adapters();
  qsf_config_add_adapter(config.get(), adapter_path(1).c_str(), "first");
  EXPECT_NE(refusal(config).find("a second adapter of the name \"first\""), std::string::npos);
  config = config_with_adapters();
  qsf_config_set_adapter(config.get(), 3, 1.0F);
  EXPECT_EQ(refusal(config), "adapter 3: the model was opened with 2 adapters");
  config = config_with_adapters();
  qsf_config_set_adapter(config.get(), -1, 1.0F);
  EXPECT_EQ(refusal(config), "adapter: -1, expected 0 (none) or the number of one");
  config = config_with_adapters();
  qsf_config_add_adapter(config.get(), nullptr, nullptr);
  EXPECT_FALSE(refusal(config).empty());
}

}  // namespace
