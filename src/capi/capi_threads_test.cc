// SPDX-License-Identifier: MIT
//
// The functions that the header allows on any thread, called by several threads while another one
// computes with the same engine. They return what they do alone. Races are the sanitizer's to find
// (docs/testing.md).
//
// Usage: capi_threads_test MODEL.qsf      of a model with a chat template

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "qsf/qsf.h"

namespace {

constexpr int kReaders = 3;
constexpr int kRounds = 300;
constexpr int kSteps = 40;
const std::string kText = "Once upon a time there was a king who had three sons, and the youngest";

std::atomic<int> g_failures{0};

void expect(bool holds, const char* what) {
  if (holds) return;
  ++g_failures;
  std::fprintf(stderr, "failed: %s\n", what);
}

// What the readers learn of an engine.
struct Facts {
  std::vector<int> tokens;
  std::string text;
  std::string chat;
  std::string prompts;
  std::string refusal;
  int n_vocab = 0;
  std::string chat_template;
  std::uint64_t planned_bytes = 0;
  std::uint64_t region_bytes = 0;
  bool operator==(const Facts&) const = default;
};

std::string take(char* text) {
  const std::string copy = text == nullptr ? "" : text;
  qsf_string_free(text);
  return copy;
}

// Prompts of several templates, more than an engine keeps parsed.
std::string make_prompts(QSFEngine* engine) {
  const std::string messages = R"([{"role":"user","content":"Who was the king?"}])";
  std::string texts;
  for (int i = -1; qsf_chat_template_name(i) != nullptr || i < 0; ++i) {
    qsf_chat_prompt_options options;
    qsf_chat_prompt_options_init(&options);
    options.messages = messages.data();
    options.messages_bytes = messages.size();
    options.chat_template = i < 0 ? nullptr : qsf_chat_template_name(i);
    options.now_seconds = 1'000'000'000;
    qsf_error error;
    QSFChatPrompt* prompt = nullptr;
    qsf_chat_prompt_info info = {};
    info.struct_size = sizeof info;
    if (qsf_chat_prompt_create(engine, &options, &prompt, &error) == QSF_OK) {
      expect(qsf_chat_prompt_get_info(prompt, &info, &error) == QSF_OK, "qsf_chat_prompt_get_info");
      texts.append(info.text, info.text_bytes);
    } else {
      texts += error.message;
    }
    qsf_chat_prompt_free(prompt);
  }
  return texts;
}

Facts read_facts(QSFEngine* engine) {
  Facts facts;
  qsf_error error;
  std::size_t n = 0;
  qsf_engine_tokenize(engine, kText.data(), kText.size(), 0, nullptr, 0, &n, &error);
  facts.tokens.resize(n);
  expect(qsf_engine_tokenize(engine, kText.data(), kText.size(), 0, facts.tokens.data(), n, &n,
                             &error) == QSF_OK,
         "qsf_engine_tokenize");
  char* text = nullptr;
  expect(qsf_engine_detokenize(engine, facts.tokens.data(), n, &text, &error) == QSF_OK,
         "qsf_engine_detokenize");
  facts.text = take(text);
  const int absent = -1;
  expect(qsf_engine_detokenize(engine, &absent, 1, &text, &error) == QSF_INVALID_ARGUMENT,
         "qsf_engine_detokenize of no token");
  facts.refusal = error.message;
  const qsf_chat_message messages[] = {
      {"user", "Who was the king?"}, {"assistant", "He had three sons."}, {"user", "And then?"}};
  expect(qsf_engine_apply_chat_template(engine, nullptr, messages, 3, 1, &text, &error) == QSF_OK,
         "qsf_engine_apply_chat_template");
  facts.chat = take(text);
  facts.prompts = make_prompts(engine);
  qsf_model_info info = {};
  info.struct_size = sizeof info;
  expect(qsf_engine_model_info(engine, &info, &error) == QSF_OK, "qsf_engine_model_info");
  facts.n_vocab = info.n_vocab;
  facts.chat_template = info.chat_template == nullptr ? "" : info.chat_template;
  const QSFPlan* const plan = qsf_engine_plan(engine);
  qsf_plan_info planned = {};
  planned.struct_size = sizeof planned;
  expect(qsf_plan_get_info(plan, &planned, &error) == QSF_OK, "qsf_plan_get_info");
  facts.planned_bytes = planned.planned_bytes;
  for (int i = 0; i < qsf_plan_region_count(plan); ++i) {
    qsf_memory_region region = {};
    region.struct_size = sizeof region;
    expect(qsf_plan_region(plan, i, &region, &error) == QSF_OK, "qsf_plan_region");
    facts.region_bytes += region.bytes + std::strlen(region.name) + std::strlen(region.reason);
  }
  return facts;
}

// One generation after the other, until the readers are done. Returns how many.
int compute_until(QSFEngine* engine, const std::atomic<int>& n_reading) {
  int n_generations = 0;
  while (n_reading > 0 || n_generations == 0) {
    qsf_error error;
    QSFSession* session = nullptr;
    QSFGeneration* generation = nullptr;
    qsf_generate_options options;
    qsf_generate_options_init(&options);
    options.prompt = kText.c_str();
    options.prompt_bytes = kText.size();
    options.max_tokens = kSteps;
    options.ignore_end_of_text = 1;
    expect(qsf_session_create(engine, &session, &error) == QSF_OK, "qsf_session_create");
    expect(qsf_generation_create(session, &options, &generation, &error) == QSF_OK,
           "qsf_generation_create");
    while (qsf_generation_is_finished(generation) == 0) {
      if (qsf_engine_step(engine, &generation, 1, nullptr, &error) == QSF_OK) continue;
      expect(false, error.message);
      break;
    }
    qsf_generation_free(generation);
    qsf_session_free(session);
    ++n_generations;
  }
  return n_generations;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: capi_threads_test MODEL.qsf\n");
    return 2;
  }
  qsf_error error;
  QSFConfig* const config = qsf_config_default();
  QSFEngine* engine = nullptr;
  qsf_config_set_threads(config, 2);
  qsf_config_set_max_seq_len(config, 256);
  if (qsf_engine_open(argv[1], config, &engine, &error) != QSF_OK) {
    std::fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  qsf_config_free(config);
  const Facts alone = read_facts(engine);
  expect(alone.text == kText, "the text is that of its tokens");
  expect(alone.prompts.find("king") != std::string::npos, "prompts");
  expect(!alone.chat.empty() && !alone.refusal.empty() && alone.n_vocab > 0, "facts");
  std::atomic<int> n_reading{kReaders};
  std::vector<std::jthread> readers;
  for (int i = 0; i < kReaders; ++i) {
    readers.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        expect(read_facts(engine) == alone, "the same while another thread computes");
      }
      --n_reading;
    });
  }
  const int n_generations = compute_until(engine, n_reading);
  readers.clear();
  qsf_free(engine);
  std::fprintf(stderr, "%d rounds of %d threads beside %d generations, %d failures\n", kRounds,
               kReaders, n_generations, g_failures.load());
  return g_failures == 0 ? 0 : 1;
}
