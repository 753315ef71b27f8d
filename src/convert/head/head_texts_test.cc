// SPDX-License-Identifier: MIT
//
// Long texts with a sketched head against the full one, on the file that QSF_HEAD_MODEL names, of
// QSF_HEAD_TOKENS tokens (20,000): every token, the share of the head that was read, and tokens a
// second of both in turn. `./check long head-texts` runs it.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace qsf {
namespace {

constexpr std::uint32_t kTextTokens = 500;

const char* const kOpenings[] = {"Once upon a time there was a miller who had three sons,",
                                 "The capital of France is",
                                 "Here is how to bake bread:",
                                 "def add(a, b):",
                                 "Dear Sir or Madam,",
                                 "In 1969 two men walked on the moon. They",
                                 "Question: why is the sky blue?\nAnswer:",
                                 "A short history of the city of Rome:"};

std::unique_ptr<Engine> open_head(const std::string& path, HeadMode mode) {
  EngineOptions options;
  options.max_context = 1024;
  options.head_mode = mode;
  Result<std::unique_ptr<Engine>> engine = Engine::open(path, options);
  EXPECT_TRUE(engine.has_value()) << engine.error().message();
  return std::move(*engine);
}

struct Text {
  std::vector<TokenId> tokens;
  std::uint64_t ns = 0;
};

Text write_text(Engine& engine, std::size_t number, std::uint32_t n_tokens) {
  GenerateOptions options;
  options.max_tokens = n_tokens;
  options.ignore_end_of_text = true;
  options.sampling.temperature = number % 2 == 0 ? 0.0F : 0.8F;
  options.sampling.top_k = 40;
  options.sampling.seed = number;
  std::vector<TokenId> prompt = {static_cast<TokenId>(number % engine.spec().n_vocab)};
  if (engine.tokenizer() != nullptr) {
    prompt.clear();
    EXPECT_TRUE(
        engine.tokenizer()->encode(kOpenings[number / 2 % std::size(kOpenings)], {}, prompt).ok());
  }
  const std::unique_ptr<Session> session = engine.create_session().value();
  const auto result = session->generate(prompt, options);
  EXPECT_TRUE(result.has_value()) << result.error().message();
  return {{session->tokens().begin(), session->tokens().end()}, result->generate_ns};
}

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

TEST(HeadTextsTest, EveryTokenIsThatOfTheFullHead) {
  const char* const path = std::getenv("QSF_HEAD_MODEL");
  if (path == nullptr) GTEST_SKIP() << "QSF_HEAD_MODEL names no file";
  const char* const asked = std::getenv("QSF_HEAD_TOKENS");
  const auto n_tokens = static_cast<std::uint32_t>(asked == nullptr ? 20000 : std::atoi(asked));
  const std::unique_ptr<Engine> full = open_head(path, HeadMode::kFull);
  const std::unique_ptr<Engine> certified = open_head(path, HeadMode::kCertified);
  std::uint64_t ns[2][2] = {};  // [greedy, top-k][full, certified]
  HeadCounts greedy;
  HeadCounts before;
  std::size_t n_texts = 0;
  for (; n_texts * kTextTokens < n_tokens; ++n_texts) {
    const Text expected = write_text(*full, n_texts, kTextTokens);
    const Text text = write_text(*certified, n_texts, kTextTokens);
    ASSERT_EQ(text.tokens, expected.tokens) << "text " << n_texts;
    ns[n_texts % 2][0] += expected.ns;
    ns[n_texts % 2][1] += text.ns;
    const HeadCounts now = certified->stats().head;
    if (n_texts % 2 == 0) {
      greedy.n_searched += now.n_searched - before.n_searched;
      greedy.bytes_read += now.bytes_read - before.bytes_read;
      greedy.bytes_replaced += now.bytes_replaced - before.bytes_replaced;
    }
    before = now;
  }
  EXPECT_GT(before.n_searched, 0U);
  const double n_each = static_cast<double>((n_texts + 1) / 2 * kTextTokens);
  std::printf("%zu texts of %u tokens: %llu rows searched, %llu in full\n", n_texts, kTextTokens,
              static_cast<unsigned long long>(before.n_searched),
              static_cast<unsigned long long>(before.n_full));
  std::printf("greedy: %.1f %% of the head read; %.1f tokens/s, full %.1f\n",
              percent(greedy.bytes_read, greedy.bytes_replaced),
              n_each * 1e9 / static_cast<double>(ns[0][1]),
              n_each * 1e9 / static_cast<double>(ns[0][0]));
  if (n_texts < 2) return;
  const double n_odd = static_cast<double>(n_texts / 2 * kTextTokens);
  std::printf(
      "top 40: %.1f %% of the head read; %.1f tokens/s, full %.1f\n",
      percent(before.bytes_read - greedy.bytes_read, before.bytes_replaced - greedy.bytes_replaced),
      n_odd * 1e9 / static_cast<double>(ns[1][1]), n_odd * 1e9 / static_cast<double>(ns[1][0]));
}

// The best token of the approximate head behind the texts of the full one.
struct BestToken final : LogitsSink {
  void consume(std::uint32_t, std::uint32_t first,
               std::span<const float> logits) noexcept override {
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const TokenId token = first + static_cast<TokenId>(i);
      if (logits[i] < logit || (logits[i] == logit && token > best)) continue;
      logit = logits[i];
      best = token;
    }
  }
  HeadNeed head_need(std::uint32_t) const noexcept override {
    return {.n_best = 1, .n_tokens = UINT32_MAX, .most_suffice = true};
  }
  float logit = -3e38F;
  TokenId best = 0;
};

TEST(HeadTextsTest, ApproximateHeadsAgree) {
  const char* const path = std::getenv("QSF_HEAD_MODEL");
  if (path == nullptr) GTEST_SKIP() << "QSF_HEAD_MODEL names no file";
  const char* const asked = std::getenv("QSF_HEAD_TOKENS");
  const auto n_tokens = static_cast<std::uint32_t>(asked == nullptr ? 20000 : std::atoi(asked)) / 4;
  const std::unique_ptr<Engine> full = open_head(path, HeadMode::kFull);
  const std::unique_ptr<Engine> approximate = open_head(path, HeadMode::kApproximate);
  using Clock = std::chrono::steady_clock;
  Clock::duration full_time{};
  Clock::duration time{};
  std::uint64_t n_same = 0;
  std::uint64_t n_all = 0;
  for (std::size_t number = 0; n_all < n_tokens; ++number) {
    const Text text = write_text(*full, number, kTextTokens);
    const std::unique_ptr<Session> one = full->create_session().value();
    const std::unique_ptr<Session> other = approximate->create_session().value();
    for (const TokenId token : text.tokens) {
      BestToken expected;
      BestToken found;
      const SessionToken with_full = {one.get(), token, &expected};
      const SessionToken without = {other.get(), token, &found};
      const auto start = Clock::now();
      ASSERT_TRUE(full->step_sessions({&with_full, 1}).ok());
      const auto middle = Clock::now();
      ASSERT_TRUE(approximate->step_sessions({&without, 1}).ok());
      full_time += middle - start;
      time += Clock::now() - middle;
      n_same += expected.best == found.best ? 1 : 0;
      ++n_all;
    }
  }
  const HeadCounts counts = approximate->stats().head;
  const auto microseconds = [&](Clock::duration whole) {
    return std::chrono::duration<double, std::micro>(whole).count() / static_cast<double>(n_all);
  };
  std::printf("approximate: %.2f %% of %llu best tokens found, %.1f %% of the head read\n",
              percent(n_same, n_all), static_cast<unsigned long long>(n_all),
              percent(counts.bytes_read, counts.bytes_replaced));
  std::printf("a token: %.0f us, with the full head %.0f us\n", microseconds(time),
              microseconds(full_time));
  EXPECT_GE(percent(n_same, n_all), 99.0);
}

}  // namespace
}  // namespace qsf
