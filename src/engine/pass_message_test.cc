// SPDX-License-Identifier: MIT
//
// Passes as messages: an engine without generations computes what the engine of the generations
// does, and refuses messages that are damaged or do not continue its sequences.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "engine/pass_message.h"
#include "engine/testing/step_members.h"

namespace qsf {
namespace {

using namespace testing_support;
using testing::HasSubstr;

EngineOptions recording(std::uint32_t n_sequences) {
  EngineOptions options = step_options(n_sequences, 24);
  options.record_passes = true;
  return options;
}

// The logits of the last pass, row by row.
class LastLogits final : public LogitsSink {
 public:
  void consume(std::uint32_t row, std::uint32_t first_token,
               std::span<const float> logits) noexcept override {
    rows.resize(std::max<std::size_t>(rows.size(), row + 1));
    rows[row].resize(std::max(rows[row].size(), first_token + logits.size()));
    std::copy(logits.begin(), logits.end(), rows[row].begin() + first_token);
  }
  std::vector<std::vector<float>> rows;
};

// Sends a pass as bytes.
Status send(Engine& from, PassId pass, Engine& to, LogitsSink* sink) {
  std::vector<std::byte> bytes;
  encode(from.message_of(pass), bytes);
  const ReceivedPass received = decode_pass(bytes).value();
  EXPECT_EQ(received.pass, pass);
  return to.execute(received.message(), sink);
}

// The token with the largest logit, as a greedy sampler draws it.
TokenId best(const std::vector<float>& logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TEST(PassMessageTest, AnotherEngineComputesThePasses) {
  const std::unique_ptr<Engine> engine = open_bundled(recording(5));
  const std::unique_ptr<Engine> other = open_bundled(step_options(5, 24));
  GenerateOptions greedy;
  greedy.max_tokens = 30;
  greedy.sampling.temperature = 0.0F;
  Members members;
  for (std::size_t i = 0; i < 3; ++i) {
    members.push_back(std::make_unique<Member>(*engine, member_prompt(i), greedy));
  }
  std::unique_ptr<Session> fork;
  for (std::size_t step = 0; !all_finished(generations_of(members)); ++step) {
    if (step == 6) fork = members[0]->session->fork().value();
    if (step == 9) fork.reset();
    if (step == 12) members[1]->generation->cancel();
    if (step == 14) {  // a sequence ends and another one takes its number
      members[1]->generation.reset();
      members[1]->session.reset();
      members[1] = std::make_unique<Member>(*engine, member_prompt(3), greedy);
    }
    std::vector<Generation*> all = generations_of(members);
    const PassId pass = engine->begin_step(all).value();
    LastLogits logits;
    ASSERT_TRUE(send(*engine, pass, *other, &logits).ok());
    if (step == 4) {  // fails here alone; the next message takes its rows back there
      engine->cancel();
      EXPECT_EQ(engine->end_step(pass).error().code(), StatusCode::kCancelled);
      continue;
    }
    std::vector<std::vector<float>> expected;
    ASSERT_TRUE(engine->end_step(pass).has_value());
    // The logits of the members that had a row, in the order of the pass.
    const std::size_t n_vocab = engine->spec().n_vocab;
    const std::span<const float> sampled = engine->impl().sample_logits;
    for (const std::vector<float>& row : logits.rows) {
      const bool found = std::any_of(members.begin(), members.end(), [&](const auto& member) {
        const std::size_t first = member->generation->sequence() * n_vocab;
        return std::equal(row.begin(), row.begin() + 500, sampled.begin() + first) &&
               (member->generation->finished() ||
                member->generation->result().pending_token == best(row));
      });
      EXPECT_TRUE(found) << "step " << step;
    }
  }
}

TEST(PassMessageTest, MessagesThatDoNotContinueAreRefused) {
  const std::unique_ptr<Engine> engine = open_bundled(recording(2));
  const std::unique_ptr<Engine> other = open_bundled(step_options(2, 24));
  const Members members = make_members(*engine, 2);
  std::vector<Generation*> all = generations_of(members);
  PassId pass = engine->begin_step(all).value();
  ASSERT_TRUE(send(*engine, pass, *other, nullptr).ok());
  const std::uint32_t n_free = other->kv_pages().n_free;
  // The same pass again: its sequences exist already.
  EXPECT_FALSE(send(*engine, pass, *other, nullptr).ok());
  ASSERT_TRUE(engine->end_step(pass).has_value());
  pass = engine->begin_step(all).value();
  ASSERT_TRUE(engine->end_step(pass).has_value());  // a pass that the other one never gets
  pass = engine->begin_step(all).value();
  const Status refused = send(*engine, pass, *other, nullptr);
  EXPECT_EQ(refused.code(), StatusCode::kCorrupt);
  EXPECT_THAT(refused.message(), HasSubstr("pass 3: row 0: token"));
  EXPECT_THAT(refused.message(), HasSubstr("does not continue sequence 0"));
  EXPECT_EQ(other->kv_pages().n_free, n_free);

  const PassMessage message = engine->message_of(pass);
  std::vector<Row> rows(message.rows.begin(), message.rows.end());
  rows[1].sequence = 0;
  EXPECT_EQ(other->execute({pass, {}, rows}, nullptr).code(), StatusCode::kCorrupt);
  rows[0].sequence = 7;
  EXPECT_EQ(other->execute({pass, {}, rows}, nullptr).code(), StatusCode::kCorrupt);
  rows.assign(25, rows[0]);
  EXPECT_EQ(other->execute({pass, {}, rows}, nullptr).code(), StatusCode::kCorrupt);
  const SequenceChange wrong[] = {{SequenceChange::Kind::kTruncate, 0, 200},
                                  {SequenceChange::Kind::kFree, 9, 0},
                                  {SequenceChange::Kind::kFork, 5, 9},
                                  {SequenceChange::Kind::kCreate, 5, 0}};
  for (const SequenceChange& change : wrong) {
    EXPECT_FALSE(other->execute({pass, {&change, 1}, {}}, nullptr).ok());
  }
  EXPECT_EQ(other->kv_pages().n_free, n_free);
  EXPECT_TRUE(engine->end_step(pass).has_value());
}

TEST(PassMessageTest, DamagedBytesAreRefused) {
  const Row row = {.sequence = 3,
                   .token = 77,
                   .position = 5,
                   .kv_slot = 5,
                   .role = RowRole::kGenerated,
                   .visible = {.prefix = 6, .ancestors = 1ULL << 40, .sinks = 2, .first = 1},
                   .adapter = 9,
                   .adapter_scale = 0.5F,
                   .wants_output = true};
  const SequenceChange change = {SequenceChange::Kind::kFork, 3, 1};
  std::vector<std::byte> bytes;
  encode({12, {&change, 1}, {&row, 1}}, bytes);
  const ReceivedPass received = decode_pass(bytes).value();
  EXPECT_EQ(received.pass, 12U);
  EXPECT_EQ(received.changes, std::vector{change});
  ASSERT_EQ(received.rows.size(), 1U);
  const Row& got = received.rows[0];
  EXPECT_EQ(got.sequence, row.sequence);
  EXPECT_EQ(got.token, row.token);
  EXPECT_EQ(got.position, row.position);
  EXPECT_EQ(got.kv_slot, row.kv_slot);
  EXPECT_EQ(got.role, row.role);
  EXPECT_EQ(got.visible.prefix, row.visible.prefix);
  EXPECT_EQ(got.visible.ancestors, row.visible.ancestors);
  EXPECT_EQ(got.visible.sinks, row.visible.sinks);
  EXPECT_EQ(got.visible.first, row.visible.first);
  EXPECT_EQ(got.adapter, row.adapter);
  EXPECT_EQ(got.adapter_scale, row.adapter_scale);
  EXPECT_TRUE(got.wants_output);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_EQ(decode_pass(ByteSpan(bytes).first(n)).error().code(), StatusCode::kCorrupt) << n;
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::vector<std::byte> damaged = bytes;
    damaged[i] ^= std::byte{0x10};
    EXPECT_EQ(decode_pass(damaged).error().code(), StatusCode::kCorrupt) << i;
  }
}

}  // namespace
}  // namespace qsf
