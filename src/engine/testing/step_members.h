// SPDX-License-Identifier: MIT
//
// For tests of steps: generations on the bundled model, which differ in prompt, length and
// sampling.

#ifndef QSF_ENGINE_TESTING_STEP_MEMBERS_H_
#define QSF_ENGINE_TESTING_STEP_MEMBERS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/testing/temporary_path.h"
#include "engine/engine.h"
#include "engine/engine_impl.h"
#include "engine/generation.h"
#include "engine/testing/bundled_path.h"

namespace qsf::testing_support {

inline EngineOptions step_options(std::uint32_t n_sequences, std::uint32_t rows_per_pass = 0) {
  EngineOptions options;
  options.n_threads = 2;
  options.n_sequences = n_sequences;
  options.rows_per_pass = rows_per_pass;
  options.max_context = 256;
  return options;
}

inline std::unique_ptr<Engine> open_bundled(const EngineOptions& options) {
  return Engine::open(kBundled, options).value();
}

inline std::vector<TokenId> encode(const Engine& engine, std::string_view text) {
  std::vector<TokenId> tokens;
  EXPECT_TRUE(engine.tokenizer()->encode(text, {}, tokens).ok());
  return tokens;
}

inline GenerateOptions member_options(std::size_t i, std::uint32_t max_tokens) {
  GenerateOptions options;
  options.max_tokens = max_tokens + static_cast<std::uint32_t>(i % 7);
  options.sampling.seed = i;
  options.sampling.temperature = i % 3 == 0 ? 0.0F : 0.9F;
  options.sampling.repeat_penalty = i % 2 == 0 ? 1.0F : 1.2F;
  return options;
}

inline std::string_view member_prompt(std::size_t i) {
  constexpr std::string_view kPrompts[] = {
      "There was a king", "The fox said to the raven that", "Once",
      "A poor woodcutter lived with his wife and his two children", "In the middle of the night"};
  return kPrompts[i % std::size(kPrompts)];
}

// A session and its generation of the i-th text.
class Member {
 public:
  Member(Engine& engine, std::size_t i, std::uint32_t max_tokens = 40)
      : Member(engine, member_prompt(i), member_options(i, max_tokens)) {}
  Member(Engine& engine, std::string_view prompt, GenerateOptions options) {
    options.on_token = [](TokenId, std::string_view piece, void* user) {
      Member& member = *static_cast<Member*>(user);
      member.text.append(piece);
      if (member.on_text) member.on_text();
    };
    options.on_prompt = [](std::uint64_t, std::uint64_t, void* user) {
      Member& member = *static_cast<Member*>(user);
      if (member.on_layer) member.on_layer();
    };
    options.user = this;
    session = engine.create_session().value();
    generation = Generation::create(*session, encode(engine, prompt), options).value();
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  std::string text;
  std::function<void()> on_text;   // in the callback of a token
  std::function<void()> on_layer;  // after each layer of its prompt
  std::unique_ptr<Session> session;
  GenerationPtr generation;
};

using Members = std::vector<std::unique_ptr<Member>>;

inline Members make_members(Engine& engine, std::size_t n) {
  Members members;
  for (std::size_t i = 0; i < n; ++i) members.push_back(std::make_unique<Member>(engine, i));
  return members;
}

inline std::vector<Generation*> generations_of(const Members& members) {
  std::vector<Generation*> generations;
  for (const auto& member : members) generations.push_back(member->generation.get());
  return generations;
}

inline bool all_finished(std::span<Generation* const> generations) {
  return std::all_of(generations.begin(), generations.end(),
                     [](const Generation* generation) { return generation->finished(); });
}

// Steps until every generation has ended.
inline void run_to_end(Engine& engine, std::span<Generation* const> generations) {
  while (!all_finished(generations)) ASSERT_TRUE(engine.step(generations).has_value());
}

// The i-th text of a lone generation, and the first n of them.
inline std::string text_alone(std::size_t i, EngineOptions options = step_options(1)) {
  options.n_sequences = 1;
  const std::unique_ptr<Engine> engine = open_bundled(options);
  Member member(*engine, i);
  Generation* const generation = member.generation.get();
  run_to_end(*engine, {&generation, 1});
  EXPECT_TRUE(generation->status().ok());
  return member.text;
}

inline std::vector<std::string> texts_alone(std::size_t n,
                                            const EngineOptions& options = step_options(1)) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < n; ++i) texts.push_back(text_alone(i, options));
  return texts;
}

}  // namespace qsf::testing_support

#endif  // QSF_ENGINE_TESTING_STEP_MEMBERS_H_
