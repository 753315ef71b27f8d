// SPDX-License-Identifier: MIT
//
// Several texts after one prompt, which the first of them computes: each is the text that it is
// alone, whatever the first one does meanwhile, and no prompt row is computed twice.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/engine_impl.h"
#include "engine/testing/step_members.h"

namespace qsf {
namespace {

using namespace testing_support;
using testing::HasSubstr;

EngineOptions shared_options(std::uint32_t n_sequences) {
  EngineOptions options = step_options(n_sequences, 40);
  options.max_context = 512;
  return options;
}

std::vector<TokenId> tale(const Engine& engine, std::size_t n_tokens) {
  std::string text;
  while (encode(engine, text).size() < n_tokens) {
    text +=
        "There was once a poor woodcutter who lived with his wife and his two children at the "
        "edge of a great forest, and every day he went out to look for bread. ";
  }
  std::vector<TokenId> tokens = encode(engine, text);
  tokens.resize(n_tokens);
  return tokens;
}

// A session, and a generation after `prompt`.
struct Text {
  Text(Engine& engine, std::span<const TokenId> prompt, std::uint64_t seed,
       std::uint32_t max_tokens = 30, const char* key = nullptr) {
    GenerateOptions options;
    options.max_tokens = max_tokens;
    options.sampling.temperature = 0.9F;
    options.sampling.repeat_penalty = 1.2F;
    options.sampling.seed = seed;
    options.user = &text;
    options.on_token = [](TokenId, std::string_view piece, void* user) {
      static_cast<std::string*>(user)->append(piece);
    };
    if (key != nullptr) options.prefix_key = key;
    session = engine.create_session().value();
    generation = Generation::create(*session, prompt, options).value();
  }
  std::string text;
  std::unique_ptr<Session> session;
  GenerationPtr generation;
};
using Texts = std::vector<std::unique_ptr<Text>>;

void step(Engine& engine, const Text& text) {
  Generation* const member = text.generation.get();
  ASSERT_TRUE(engine.step({&member, 1}).has_value());
}
void run_to_end(Engine& engine, const Texts& texts) {
  std::vector<Generation*> members;
  for (const auto& text : texts) members.push_back(text->generation.get());
  testing_support::run_to_end(engine, members);
}

std::vector<std::string> texts_alone(std::size_t n_prompt, std::size_t n,
                                     const EngineOptions& options) {
  std::vector<std::string> texts;
  const std::unique_ptr<Engine> engine = open_bundled(options);
  for (std::size_t i = 0; i < n; ++i) {
    Texts one;
    one.push_back(std::make_unique<Text>(*engine, tale(*engine, n_prompt), i));
    run_to_end(*engine, one);
    texts.push_back(one.front()->text);
  }
  return texts;
}

TEST(SharedPromptTest, EachTextIsTheSameAndThePromptIsComputedOnce) {
  constexpr std::size_t kTexts = 4;
  for (const bool caches : {false, true}) {
    for (const bool spills : {false, true}) {
      for (const std::size_t n_prompt : {1U, 2U, 63U, 64U, 65U, 128U, 129U, 200U}) {
        SCOPED_TRACE(std::to_string(n_prompt) + " tokens" + (caches ? ", cached" : "") +
                     (spills ? ", in a file" : ""));
        const std::vector<std::string> alone =
            texts_alone(n_prompt, kTexts, shared_options(kTexts));
        EngineOptions options = shared_options(kTexts);
        options.prefix_cache = caches;
        if (spills) options.kv_spill_path = temporary_path("shared_prompt.spill");
        const std::unique_ptr<Engine> engine = open_bundled(options);
        const std::vector<TokenId> prompt = tale(*engine, n_prompt);
        Texts texts;
        for (std::size_t i = 0; i < kTexts; ++i) {
          texts.push_back(
              std::make_unique<Text>(*engine, prompt, i, 30, caches ? "a key" : nullptr));
          ASSERT_TRUE(texts.back()->generation->admit().ok());
        }
        Text& first = *texts.front();
        while (first.session->length() < n_prompt) step(*engine, first);
        // One takes it at once, the others once the first has gone on.
        for (std::size_t i = 1; i < kTexts; ++i) {
          const auto taken = texts[i]->generation->take_prompt(*first.session);
          ASSERT_TRUE(taken.has_value()) << taken.error().message();
          EXPECT_EQ(*taken, n_prompt - 1);
          EXPECT_EQ(texts[i]->generation->result().cached_tokens, n_prompt - 1);
          ASSERT_TRUE(engine->impl().kv->is_consistent());
          if (caches) {
            ASSERT_TRUE(engine->impl().prefix_tree->is_consistent());
          }
          for (int n = 0; n < 3; ++n) step(*engine, first);
        }
        run_to_end(*engine, texts);
        for (std::size_t i = 0; i < kTexts; ++i) EXPECT_EQ(texts[i]->text, alone[i]) << i;
        EXPECT_EQ(engine->stats().prompt_tokens, n_prompt + kTexts - 1);
      }
    }
  }
}

TEST(SharedPromptTest, TheFirstTextMayEndWithItsFirstToken) {
  const std::size_t n_prompt = 100;
  const std::vector<std::string> alone = texts_alone(n_prompt, 2, shared_options(2));
  const std::unique_ptr<Engine> engine = open_bundled(shared_options(2));
  const std::vector<TokenId> prompt = tale(*engine, n_prompt);
  Text first(*engine, prompt, 0, 1);
  Texts second;
  second.push_back(std::make_unique<Text>(*engine, prompt, 1));
  ASSERT_TRUE(second.front()->generation->admit().ok());
  while (!first.generation->finished()) step(*engine, first);
  ASSERT_EQ(second.front()->generation->take_prompt(*first.session).value(), n_prompt - 1);
  first.generation.reset();
  first.session.reset();
  run_to_end(*engine, second);
  EXPECT_EQ(second.front()->text, alone[1]);
}

TEST(SharedPromptTest, WhatIsReservedSuffices) {
  // Pages for two reservations, and none beside them.
  EngineOptions options = shared_options(2);
  options.kv_positions = 2 * 192;
  options.max_context = 256;
  const std::unique_ptr<Engine> engine = open_bundled(options);
  const std::vector<TokenId> prompt = tale(*engine, 100);
  Texts texts;
  for (std::size_t i = 0; i < 2; ++i) {
    texts.push_back(std::make_unique<Text>(*engine, prompt, i, 92));
    ASSERT_TRUE(texts.back()->generation->admit().ok());
  }
  EXPECT_EQ(engine->kv_pages().n_unreserved, 0U);
  while (texts[0]->session->length() < prompt.size()) step(*engine, *texts[0]);
  ASSERT_EQ(texts[1]->generation->take_prompt(*texts[0]->session).value(), 99U);
  EXPECT_EQ(engine->kv_pages().n_unreserved, 1U);  // the full page of both
  run_to_end(*engine, texts);
  for (const auto& text : texts) EXPECT_TRUE(text->generation->status().ok());
}

TEST(SharedPromptTest, OnlyWhatBeginsAlikeIsTaken) {
  const std::unique_ptr<Engine> engine = open_bundled(shared_options(3));
  const std::vector<TokenId> prompt = tale(*engine, 150);
  std::vector<TokenId> other = prompt;
  other[90] ^= 1;
  Text first(*engine, prompt, 0);
  Text second(*engine, other, 1);
  ASSERT_TRUE(second.generation->admit().ok());
  EXPECT_EQ(second.generation->take_prompt(*first.session).value(), 0U);  // it has no rows yet
  while (first.session->length() < prompt.size()) step(*engine, first);
  EXPECT_EQ(second.generation->take_prompt(*first.session).value(), 90U);
  Text third(*engine, other, 1);
  while (!third.generation->finished()) step(*engine, third);
  EXPECT_EQ(second.generation->take_prompt(*third.session).value(), 0U)
      << "it has a part of a page already";
  while (!second.generation->finished()) step(*engine, second);
  EXPECT_EQ(second.text, third.text);
}

// Generated rows have other bits than the same tokens of a prompt.
TEST(SharedPromptTest, GeneratedRowsAreNotTaken) {
  const std::unique_ptr<Engine> engine = open_bundled(shared_options(2));
  const std::vector<TokenId> prompt = tale(*engine, 40);
  Text first(*engine, prompt, 0);
  while (!first.generation->finished()) step(*engine, first);
  const std::vector<TokenId> longer(first.session->tokens().begin(), first.session->tokens().end());
  ASSERT_GT(longer.size(), prompt.size() + 5);
  Text second(*engine, longer, 1);
  ASSERT_TRUE(second.generation->admit().ok());
  EXPECT_EQ(second.generation->take_prompt(*first.session).value(), prompt.size());
}

TEST(SharedPromptTest, OtherKeysKeepTheirPagesApart) {
  EngineOptions options = shared_options(4);
  options.prefix_cache = true;
  const std::unique_ptr<Engine> engine = open_bundled(options);
  const std::vector<TokenId> prompt = tale(*engine, 150);
  Text first(*engine, prompt, 0, 30, "one");
  while (!first.generation->finished()) step(*engine, first);
  Text own(*engine, prompt, 1, 30, "two");
  while (!own.generation->finished()) step(*engine, own);
  Text second(*engine, prompt, 1, 30, "two");  // begins with pages of its own key
  ASSERT_TRUE(second.generation->admit().ok());
  EXPECT_EQ(second.generation->take_prompt(*first.session).value(), 0U);
  EXPECT_EQ(second.generation->take_prompt(*own.session).value(), 21U);
  while (!second.generation->finished()) step(*engine, second);
  EXPECT_EQ(second.text, own.text);
  EXPECT_TRUE(engine->impl().prefix_tree->is_consistent());
}

TEST(SharedPromptTest, Refusals) {
  const std::unique_ptr<Engine> engine = open_bundled(shared_options(3));
  const std::unique_ptr<Engine> elsewhere = open_bundled(shared_options(1));
  const std::vector<TokenId> prompt = tale(*engine, 50);
  Text first(*engine, prompt, 0);
  Text second(*engine, prompt, 1);
  Text foreign(*elsewhere, prompt, 1);
  const auto refusal = [&](const Session& from) {
    const auto taken = second.generation->take_prompt(from);
    return taken.has_value() ? std::string() : taken.error().message();
  };
  EXPECT_THAT(refusal(*first.session), HasSubstr("not one that was admitted"));
  ASSERT_TRUE(second.generation->admit().ok());
  EXPECT_THAT(refusal(*second.session), HasSubstr("own"));
  EXPECT_THAT(refusal(*foreign.session), HasSubstr("another engine"));
  Generation* const member = first.generation.get();
  const PassId pass = engine->begin_step({&member, 1}).value();
  EXPECT_THAT(refusal(*first.session), HasSubstr("in flight"));
  ASSERT_TRUE(engine->end_step(pass).has_value());
  ASSERT_TRUE(first.generation->park(temporary_path("shared_prompt.session")).ok());
  EXPECT_THAT(refusal(*first.session), HasSubstr("parked"));
  ASSERT_TRUE(first.generation->resume().ok());
  EXPECT_EQ(second.generation->take_prompt(*first.session).value(), 0U);  // rows of a file
  step(*engine, second);
  EXPECT_THAT(refusal(*first.session), HasSubstr("rows of its own"));
  for (const bool records : {false, true}) {
    EngineOptions options = shared_options(2);
    options.record_passes = records;
    if (!records) options.kv_policy = {.policy = KvPolicy::kWindow, .window = 64, .sinks = 4};
    const std::unique_ptr<Engine> other = open_bundled(options);
    Text from(*other, prompt, 0);
    step(*other, from);
    Text to(*other, prompt, 0);
    ASSERT_TRUE(to.generation->admit().ok());
    EXPECT_EQ(to.generation->take_prompt(*from.session).error().code(), StatusCode::kUnsupported);
  }
}

}  // namespace
}  // namespace qsf
