// SPDX-License-Identifier: MIT
//
// Log probabilities of prompts: those of Engine::score() for every token, however the prompt is cut
// into passes and whoever shares them, and the text behind is what it is without them.

#include "engine/prompt_log_probs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/testing/allocation_counter.h"
#include "engine/testing/step_members.h"

namespace qsf {
namespace {

using namespace testing_support;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Keeps the row behind the targets.
class LastRow final : public LogitsSink {
 public:
  void consume(std::uint32_t row, std::uint32_t, std::span<const float> logits) noexcept override {
    EXPECT_EQ(row, 0U);
    n_logits += logits.size();
  }
  std::size_t n_logits = 0;
};

TEST(PromptLogProbsTest, AreThoseOfWholeRows) {
  constexpr std::uint32_t kVocab = 2500;
  constexpr std::uint32_t kDrawable = 2300;  // ends within a block, and the last one is left out
  constexpr std::size_t kRows = 3;
  Rng rng(7);
  std::vector<std::vector<float>> rows(kRows + 1, std::vector<float>(kVocab));
  for (auto& row : rows) {
    for (float& logit : row) logit = static_cast<float>(rng.next_f64() * 20.0 - 5.0);
    row[kDrawable + 1] = 90.0F;
  }
  rows[2][5] = rows[2][1700] = 30.0F;
  rows[1][kDrawable - 1] = kMinusInfinity;
  LastRow last;
  PromptLogProbs sink(kDrawable, kRows, 4, last);
  for (int pass = 0; pass < 2; ++pass) {
    const std::vector<TokenId> targets = {1030, kDrawable - 1, pass == 0 ? 5U : kDrawable + 1};
    sink.begin(targets);
    for (std::uint32_t first = 0; first < kVocab; first += kLogitBlock) {
      for (std::uint32_t row = 0; row <= kRows; ++row) {
        const std::span<const float> logits(rows[row]);
        sink.consume(row, first,
                     logits.subspan(first, std::min<std::size_t>(kLogitBlock, kVocab - first)));
      }
    }
    for (std::size_t row = 0; row < kRows; ++row) {
      std::vector<float> kept(kDrawable);
      LogProbs whole(4);
      whole.take(std::span<const float>(rows[row]).first(kDrawable), kept);
      EXPECT_TRUE(sink.is_sound(row));
      if (targets[row] < kDrawable && row != 1) {
        EXPECT_NEAR(sink.of(row), whole.of(targets[row]), 1e-6) << row;
      } else {
        EXPECT_EQ(sink.of(row), kMinusInfinity);
      }
      const std::span<const TokenLogProb> top = sink.top(row);
      ASSERT_EQ(top.size(), 4U);
      for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(top[i].token, whole.top()[i].token) << row;
        EXPECT_NEAR(top[i].log_prob, whole.top()[i].log_prob, 1e-6);
      }
    }
  }
  EXPECT_EQ(last.n_logits, 2U * kVocab);
  rows[0][9] = std::numeric_limits<float>::quiet_NaN();
  sink.begin({});
  const TokenId target = 3;
  sink.begin({&target, 1});
  sink.consume(0, 0, std::span<const float>(rows[0]).first(kLogitBlock));
  EXPECT_FALSE(sink.is_sound(0));
}

// A generation that asks for the log probabilities of its prompt.
struct Scored {
  Scored(Engine& engine, std::span<const TokenId> prompt, GenerateOptions options = {},
         Session* in = nullptr) {
    options.on_prompt_token = [](const GeneratedToken& token, void* user) {
      return static_cast<Scored*>(user)->take(token);
    };
    options.on_token = [](TokenId, std::string_view piece, void* user) {
      static_cast<Scored*>(user)->text.append(piece);
    };
    options.n_top_log_probs = 3;
    options.user = this;
    if (in == nullptr) own = engine.create_session().value();
    session = in == nullptr ? own.get() : in;
    generation = Generation::create(*session, prompt, options).value();
  }
  Scored(const Scored&) = delete;
  Scored& operator=(const Scored&) = delete;

  int take(const GeneratedToken& token) {
    EXPECT_TRUE(text.empty());  // before all that is generated
    EXPECT_TRUE(token.text.empty());
    if (tokens.empty()) {
      EXPECT_TRUE(std::isnan(token.log_prob));
      EXPECT_TRUE(token.top_log_probs.empty());
    } else {
      EXPECT_EQ(token.top_log_probs.size(), 3U);
      best.push_back(token.top_log_probs.front());
      for (const TokenLogProb& top : token.top_log_probs) {
        EXPECT_TRUE(top.token != token.token || top.log_prob == token.log_prob);
      }
      EXPECT_GE(token.top_log_probs.front().log_prob, token.log_prob);
    }
    tokens.push_back(token.token);
    log_probs.push_back(token.log_prob);
    return tokens.size() == stop_at ? 1 : 0;
  }

  std::vector<TokenId> tokens;
  std::vector<float> log_probs;
  std::vector<TokenLogProb> best;  // from the second token on
  std::string text;
  std::size_t stop_at = 0;
  std::unique_ptr<Session> own;
  Session* session = nullptr;
  GenerationPtr generation;
};

std::vector<TokenId> tale(const Engine& engine, std::size_t n_tokens, std::size_t first = 0) {
  std::string text;
  while (encode(engine, text).size() < first + n_tokens) {
    text +=
        "There was once a poor fisherman who lived with his wife in a hut by the sea. Every day "
        "he went out with his nets, and in the evening she asked him what he had caught. ";
  }
  const std::vector<TokenId> tokens = encode(engine, text);
  const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(n_tokens)};
}

void expect_scores(const Scored& scored, std::span<const TokenId> prompt,
                   const EngineOptions& from) {
  ASSERT_EQ(scored.tokens, std::vector<TokenId>(prompt.begin(), prompt.end()));
  if (prompt.size() < 2) return;
  EngineOptions options = from;
  options.n_sequences = 1;
  options.rows_per_pass = 0;
  options.prefix_cache = false;
  const std::unique_ptr<Engine> engine = open_bundled(options);
  std::vector<double> expected(prompt.size() - 1);
  ASSERT_TRUE(engine->score(prompt, 1, expected).ok());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(scored.log_probs[i + 1], expected[i], 1e-5) << i;
  }
}

void run(Engine& engine, std::span<Scored* const> texts, StepOptions bounds = {}) {
  std::vector<Generation*> members;
  for (Scored* const text : texts) members.push_back(text->generation.get());
  while (!all_finished(members)) ASSERT_TRUE(engine.step(members, bounds).has_value());
}

GenerateOptions warm(std::uint32_t max_tokens) {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.sampling = {.temperature = 0.9F, .repeat_penalty = 1.2F, .seed = 3};
  return options;
}

TEST(PromptLogProbsTest, AreThoseOfScoresHoweverThePromptIsCut) {
  for (const std::size_t n_prompt : {1U, 2U, 63U, 64U, 65U, 130U}) {
    for (const std::uint32_t rows : {0U, 1U, 7U, 64U}) {
      for (const std::uint32_t max_tokens : {0U, 1U, 20U}) {
        SCOPED_TRACE(std::to_string(n_prompt) + " tokens by " + std::to_string(rows) + ", " +
                     std::to_string(max_tokens) + " behind");
        const EngineOptions options = step_options(2, rows);
        const std::unique_ptr<Engine> engine = open_bundled(options);
        const std::vector<TokenId> prompt = tale(*engine, n_prompt);
        Scored scored(*engine, prompt, warm(max_tokens));
        Scored* const one = &scored;
        run(*engine, {&one, 1});
        ASSERT_TRUE(scored.generation->status().ok());
        expect_scores(scored, prompt, options);
        EXPECT_EQ(scored.generation->result().generated_tokens, max_tokens);
        EXPECT_EQ(scored.generation->result().reason, StopReason::kTokenLimit);

        // The text is what it is without them.
        std::string text;
        GenerateOptions plain = warm(max_tokens);
        plain.user = &text;
        plain.on_token = [](TokenId, std::string_view piece, void* user) {
          static_cast<std::string*>(user)->append(piece);
        };
        const std::unique_ptr<Session> session = engine->create_session().value();
        ASSERT_TRUE(session->generate(prompt, plain).has_value());
        EXPECT_EQ(scored.text, text);
        EXPECT_EQ(scored.session->length(), session->length());
      }
    }
  }
}

TEST(PromptLogProbsTest, AreAsAloneBesideOtherTexts) {
  for (const std::uint32_t rows : {0U, 5U, 40U}) {
    const EngineOptions options = step_options(5, rows);
    const std::unique_ptr<Engine> engine = open_bundled(options);
    const std::vector<TokenId> prompts[] = {tale(*engine, 70), tale(*engine, 9, 20),
                                            tale(*engine, 41, 3)};
    std::vector<std::unique_ptr<Scored>> texts;
    for (const auto& prompt : prompts) {
      texts.push_back(std::make_unique<Scored>(*engine, prompt, warm(12)));
    }
    const Members others = make_members(*engine, 2);  // one generates before, and beside them
    std::vector<Generation*> members = generations_of(others);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(engine->step({members.data(), 1}).has_value());
    for (const auto& text : texts) members.push_back(text->generation.get());
    while (!all_finished(members)) {
      ASSERT_TRUE(engine->step(members, {.max_prompt_rows = rows == 40 ? 23U : 0U}).has_value());
    }
    for (std::size_t i = 0; i < 3; ++i) expect_scores(*texts[i], prompts[i], options);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(others[i]->text, text_alone(i));
  }
}

TEST(PromptLogProbsTest, AreComputedWhateverTheCacheHolds) {
  EngineOptions options = step_options(3, 50);
  options.prefix_cache = true;
  const std::unique_ptr<Engine> engine = open_bundled(options);
  const std::vector<TokenId> prompt = tale(*engine, 140);
  GenerateOptions keyed = warm(4);
  keyed.prefix_key = "a key";
  const auto cached = [&](const GenerateOptions& with) {
    const std::unique_ptr<Session> session = engine->create_session().value();
    return session->generate(prompt, with).value().cached_tokens;
  };
  const auto n_look_ups = [&] {
    const PrefixTreeStats tree = engine->prefix_stats().tree;
    return tree.n_hits + tree.n_no_entry + tree.n_other_key + tree.n_too_short;
  };
  // What it computed is there for others, which are the only ones that look it up.
  for (int round = 0; round < 2; ++round) {
    const std::uint64_t before = n_look_ups();
    Scored scored(*engine, prompt, keyed);
    Scored* const one = &scored;
    run(*engine, {&one, 1});
    expect_scores(scored, prompt, options);
    EXPECT_EQ(scored.generation->result().cached_tokens, 0U);
    EXPECT_EQ(n_look_ups(), before);
    EXPECT_EQ(cached(keyed), 128U);
    EXPECT_EQ(n_look_ups(), before + 1);
  }
  // Nor do rows come from another session.
  Scored first(*engine, prompt, keyed);
  Scored second(*engine, prompt, keyed);
  ASSERT_TRUE(second.generation->admit().ok());
  Scored* const one = &first;
  run(*engine, {&one, 1});
  EXPECT_EQ(*second.generation->take_prompt(*first.session), 0U);
  Scored* const two = &second;
  run(*engine, {&two, 1});
  expect_scores(second, prompt, options);
  EXPECT_EQ(first.text, second.text);
}

TEST(PromptLogProbsTest, SurviveParkingWithinThePrompt) {
  const EngineOptions options = step_options(2, 16);
  const std::unique_ptr<Engine> engine = open_bundled(options);
  const std::vector<TokenId> prompt = tale(*engine, 60);
  Scored scored(*engine, prompt, warm(8));
  Scored plain(*engine, prompt, warm(8));
  Generation* const member = scored.generation.get();
  ASSERT_TRUE(engine->step({&member, 1}).has_value());
  EXPECT_EQ(scored.tokens.size(), 17U);  // one is known before the first row
  const std::string path = temporary_path("prompt_log_probs.session");
  ASSERT_TRUE(member->park(path).ok());
  Scored* const other = &plain;
  run(*engine, {&other, 1});
  ASSERT_TRUE(member->resume().ok());
  Scored* const one = &scored;
  run(*engine, {&one, 1});
  expect_scores(scored, prompt, options);
  EXPECT_EQ(scored.log_probs.back(), plain.log_probs.back());
  EXPECT_EQ(scored.text, plain.text);
}

TEST(PromptLogProbsTest, ContinueASessionFromTheSecondToken) {
  const EngineOptions options = step_options(1, 16);
  const std::unique_ptr<Engine> engine = open_bundled(options);
  const std::vector<TokenId> whole = tale(*engine, 50);
  const std::unique_ptr<Session> session = engine->create_session().value();
  ASSERT_TRUE(session->prefill(std::span<const TokenId>(whole).first(20), nullptr).ok());
  const std::span<const TokenId> prompt = std::span<const TokenId>(whole).subspan(20);
  {
    Scored scored(*engine, prompt, warm(0), session.get());
    Scored* const one = &scored;
    run(*engine, {&one, 1});
    ASSERT_EQ(scored.tokens, std::vector<TokenId>(prompt.begin(), prompt.end()));
    const std::unique_ptr<Engine> fresh = open_bundled(options);
    std::vector<double> expected(29);
    ASSERT_TRUE(fresh->score(whole, 21, expected).ok());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(scored.log_probs[i + 1], expected[i], 1e-5) << i;
    }
  }
  // Without a prompt there is nothing to deliver.
  Scored scored(*engine, {}, warm(3), session.get());
  Scored* const one = &scored;
  run(*engine, {&one, 1});
  EXPECT_TRUE(scored.tokens.empty());
  EXPECT_EQ(scored.generation->result().generated_tokens, 3U);
}

TEST(PromptLogProbsTest, EndWhereTheReceiverOrACancellationEndsThem) {
  for (const std::size_t stop_at : {1U, 10U, 17U, 60U}) {
    const std::unique_ptr<Engine> engine = open_bundled(step_options(1, 16));
    Scored scored(*engine, tale(*engine, 60), warm(8));
    scored.stop_at = stop_at;
    Scored* const one = &scored;
    run(*engine, {&one, 1});
    EXPECT_EQ(scored.tokens.size(), stop_at);
    EXPECT_TRUE(scored.generation->status().ok());
    EXPECT_EQ(scored.generation->result().reason, StopReason::kCallback);
    EXPECT_EQ(scored.generation->result().generated_tokens, 0U);
    EXPECT_EQ(scored.session->length(), stop_at == 60 ? 60U : 0U);
    EXPECT_TRUE(engine->impl().kv->is_consistent());
    EXPECT_EQ(engine->impl().kv->n_slots(0), scored.session->length());
  }
  const std::unique_ptr<Engine> engine = open_bundled(step_options(1, 16));
  Scored scored(*engine, tale(*engine, 60), warm(8));
  Generation* const member = scored.generation.get();
  ASSERT_TRUE(engine->step({&member, 1}).has_value());
  member->cancel();
  ASSERT_TRUE(engine->step({&member, 1}).has_value());
  EXPECT_EQ(scored.tokens.size(), 17U);
  EXPECT_EQ(member->result().reason, StopReason::kCancelled);
}

TEST(PromptLogProbsTest, AllocateNothingInAPass) {
  if (!counts_allocations()) GTEST_SKIP() << "a sanitizer owns malloc in this build";
  const std::unique_ptr<Engine> engine = open_bundled(step_options(1, 16));
  Scored scored(*engine, tale(*engine, 60), warm(0));
  scored.tokens.reserve(60);
  scored.log_probs.reserve(60);
  scored.best.reserve(60);
  Generation* const member = scored.generation.get();
  ASSERT_TRUE(engine->step({&member, 1}).has_value());
  const long before = n_allocations();
  while (!member->finished()) ASSERT_TRUE(engine->step({&member, 1}).has_value());
  EXPECT_EQ(n_allocations(), before);
  EXPECT_EQ(scored.tokens.size(), 60U);
}

TEST(PromptLogProbsTest, AreRefusedWherePromptTokensAttendToLaterOnes) {
  EngineOptions options = step_options(1);
  options.attention = AttentionKind::kSymmetric;
  const std::unique_ptr<Engine> engine = open_bundled(options);
  const std::unique_ptr<Session> session = engine->create_session().value();
  GenerateOptions asks;
  asks.on_prompt_token = [](const GeneratedToken&, void*) { return 0; };
  const auto refused = Generation::create(*session, tale(*engine, 5), asks);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), StatusCode::kUnsupported);
}

// The token that ends a text is reported with its log probability, where that is asked for.
TEST(PromptLogProbsTest, TellTheTokenThatEndsTheText) {
  struct Seen {
    std::vector<TokenId> tokens;
    int n_ends = 0;
    float end_log_prob = 0.0F;
  };
  for (const bool asks : {false, true}) {
    const std::unique_ptr<Engine> engine = open_bundled(step_options(1));
    const TokenId end = engine->tokenizer()->eos();
    ASSERT_NE(end, kNoToken);
    const std::vector<TokenId> prompt = tale(*engine, 12);
    Seen seen;
    GenerateOptions options;
    options.max_tokens = 5;
    options.sampling.logit_bias = {{end, 1000.0F}};
    options.log_probs = true;
    options.reports_end = asks;
    options.user = &seen;
    options.on_generated = [](const GeneratedToken& token, void* user) {
      Seen& to = *static_cast<Seen*>(user);
      to.tokens.push_back(token.token);
      EXPECT_TRUE(token.text.empty());
      to.n_ends += token.is_end ? 1 : 0;
      to.end_log_prob = token.log_prob;
      return 0;
    };
    const std::unique_ptr<Session> session = engine->create_session().value();
    const GenerateResult result = session->generate(prompt, options).value();
    EXPECT_EQ(result.reason, StopReason::kEndOfText);
    EXPECT_EQ(result.generated_tokens, 0U);
    EXPECT_EQ(seen.n_ends, asks ? 1 : 0);
    if (!asks) continue;
    EXPECT_EQ(seen.tokens, std::vector<TokenId>{end});
    std::vector<TokenId> whole = prompt;
    whole.push_back(end);
    ASSERT_TRUE(session->truncate(0).ok());
    std::vector<double> expected(1);
    const std::unique_ptr<Engine> fresh = open_bundled(step_options(1));
    ASSERT_TRUE(fresh->score(whole, prompt.size(), expected).ok());
    EXPECT_NEAR(seen.end_log_prob, expected[0], 1e-4);
  }
}

}  // namespace
}  // namespace qsf
