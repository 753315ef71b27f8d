// SPDX-License-Identifier: MIT
//
// For tests of speculation: a generation, and everything that it shows to its caller.

#ifndef QSF_ENGINE_TESTING_DRAFTED_TEXT_H_
#define QSF_ENGINE_TESTING_DRAFTED_TEXT_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/testing/temporary_path.h"
#include "engine/engine.h"
#include "engine/testing/session_bytes.h"
#include "engine/testing/step_members.h"

namespace qsf::testing_support {

inline constexpr std::string_view kRepeated =
    "There was a king who had three sons. The first was wise, the second was brave, and the third "
    "was a fool. There was a king who had three sons. The first was wise, the second";

// Everything that a generation shows to its caller.
struct Shown {
  std::vector<std::tuple<TokenId, std::string, float, std::vector<TokenId>>> tokens;
  StopReason reason = StopReason::kTokenLimit;
  TokenId pending = kNoToken;
  std::uint32_t n_generated = 0;
  std::vector<TokenId> session;
  std::vector<std::byte> file;  // of the session
  bool operator==(const Shown&) const = default;
};

struct Work {
  std::uint64_t drafted = 0;
  std::uint64_t accepted = 0;
};

using Change = std::function<void(GenerateOptions&)>;

// The most tokens that a callback takes before it ends the text; 0: all.
struct Receiver {
  Shown shown;
  std::size_t most = 0;
};

inline GenerateOptions receiving(Receiver& receiver, const Change& change) {
  GenerateOptions options;
  options.max_tokens = 60;
  options.sampling.temperature = 0.0F;
  options.log_probs = true;
  options.n_top_log_probs = 2;
  options.user = &receiver;
  options.on_generated = [](const GeneratedToken& token, void* user) {
    Receiver& to = *static_cast<Receiver*>(user);
    std::vector<TokenId> top;
    for (const TokenLogProb& other : token.top_log_probs) top.push_back(other.token);
    to.shown.tokens.emplace_back(token.token, token.text, token.log_prob, top);
    return to.most != 0 && to.shown.tokens.size() == to.most ? 1 : 0;
  };
  if (change) change(options);
  return options;
}

inline Shown generate(Engine& engine, Session& session, std::string_view prompt,
                      const Change& change, Work& work, std::size_t most = 0) {
  Receiver receiver{.shown = {}, .most = most};
  const EngineStats before = engine.stats();
  const std::size_t length_before = session.length();
  const auto result = session.generate(encode(engine, prompt), receiving(receiver, change));
  EXPECT_TRUE(result.has_value()) << result.error().message();
  Shown& shown = receiver.shown;
  shown.reason = result->reason;
  shown.pending = result->pending_token;
  shown.n_generated = result->generated_tokens;
  shown.session.assign(session.tokens().begin(), session.tokens().end());
  EXPECT_EQ(session.n_computed(), session.length());
  const EngineStats after = engine.stats();
  EXPECT_EQ(after.drafted_tokens - before.drafted_tokens, result->drafted_tokens);
  EXPECT_EQ(after.accepted_tokens - before.accepted_tokens, result->accepted_tokens);
  EXPECT_EQ(
      after.prompt_tokens + after.generated_tokens - before.prompt_tokens - before.generated_tokens,
      session.length() - length_before);  // refused rows are not counted
  work.drafted += result->drafted_tokens;
  work.accepted += result->accepted_tokens;
  const std::string path = temporary_path("drafted_text.session");
  EXPECT_TRUE(session.save(path).ok());
  shown.file = bytes_of_file(path);
  return shown;
}

// What a greedy text shows that its ninth token cancels, by itself or by its engine.
struct CancelledText {
  std::string text;
  std::size_t n_shown = 0;
  std::vector<TokenId> session;
  std::size_t n_computed = 0;
  bool operator==(const CancelledText&) const = default;
};

inline CancelledText cancel_text(Engine& engine, bool by_engine) {
  GenerateOptions options;
  options.max_tokens = 60;
  options.sampling.temperature = 0.0F;
  Member member(engine, kRepeated, options);
  std::size_t n_shown = 0;
  member.on_text = [&] {
    if (++n_shown != 9) return;
    by_engine ? engine.cancel() : member.generation->cancel();
  };
  Generation* const generation = member.generation.get();
  bool failed = false;
  while (!generation->finished() && !failed) {
    failed = !engine.step({&generation, 1}).has_value();
  }
  EXPECT_EQ(failed, by_engine);
  const auto tokens = member.session->tokens();
  return {member.text, n_shown, {tokens.begin(), tokens.end()}, member.session->n_computed()};
}

}  // namespace qsf::testing_support

#endif  // QSF_ENGINE_TESTING_DRAFTED_TEXT_H_
