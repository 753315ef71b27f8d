// SPDX-License-Identifier: MIT
//
// Passes with prompt and generated rows of several sequences under sparse prefill and under H2O
// eviction, on small random models: every sequence has the logits it has alone.

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/engine.h"
#include "engine/engine_impl.h"
#include "engine/testing/naive_model_test.h"

namespace qsf {
namespace {

using testing_support::AppendLogits;
using testing_support::Logits;
using testing_support::naive_llama;
using testing_support::NaiveModelTest;

constexpr std::uint32_t kMembersContext = 400;

// Rows of a sequence: the first n_prompt are prompt rows.
struct Text {
  std::vector<TokenId> tokens;
  std::size_t n_prompt;
};

// A text in work.
struct Member {
  const Text& text;
  SequenceId sequence;
  std::size_t n_done = 0;
  Logits logits = {};

  std::size_t n_left() const { return text.tokens.size() - n_done; }
  bool in_prompt() const { return n_done < text.n_prompt; }
};

class SparseMembersTest : public NaiveModelTest {
 protected:
  void SetUp() override { make_model(naive_llama(2, kMembersContext), 1); }

  static EngineOptions sparse_prefill() {
    EngineOptions options = exact_options(kMembersContext);
    options.attention = AttentionKind::kSparsePrefill;
    options.sparse_prefill = {.local = 5, .heavy = 6, .chunk = 16, .sinks = 2};
    return options;
  }
  static EngineOptions h2o_eviction() {
    EngineOptions options = exact_options(kMembersContext);
    options.kv_policy = {.policy = KvPolicy::kH2o, .window = 40, .sinks = 2, .heavy = 20};
    return options;
  }

  // Short and long ones: within a chunk, of many, and of several blocks of H2O eviction.
  static std::vector<Text> texts() {
    std::vector<Text> texts;
    const std::size_t lengths[] = {9, 16, 57, 130, 40, 300, 1};
    for (std::size_t i = 0; i < std::size(lengths); ++i) {
      Rng rng(i);
      Text text = {{}, lengths[i]};
      for (std::size_t t = 0; t < lengths[i] + 20; ++t) {
        text.tokens.push_back(rng.below(testing_support::kNaiveVocab));
      }
      texts.push_back(text);
    }
    return texts;
  }

  // Adds the next n rows of a member to a pass.
  static void run(Engine& engine, std::span<Member* const> members,
                  std::span<const std::size_t> n_rows) {
    std::vector<PassPart> parts;
    std::vector<AppendLogits> sinks;
    sinks.reserve(members.size());
    for (const bool prompt : {true, false}) {
      for (std::size_t i = 0; i < members.size(); ++i) {
        Member& member = *members[i];
        if (n_rows[i] == 0 || member.in_prompt() != prompt) continue;
        sinks.emplace_back(member.logits);
        parts.push_back({.sequence = member.sequence,
                         .tokens = std::span(member.text.tokens).subspan(member.n_done, n_rows[i]),
                         .role = prompt ? RowRole::kPrompt : RowRole::kGenerated,
                         .sink = &sinks.back()});
      }
    }
    const Status status = engine.impl().run_parts(parts);
    ASSERT_TRUE(status.ok()) << status.message();
    for (std::size_t i = 0; i < members.size(); ++i) members[i]->n_done += n_rows[i];
  }

  std::vector<Logits> alone(const EngineOptions& options, std::span<const Text> texts) const {
    std::vector<Logits> logits;
    const auto engine = open(options);
    for (const Text& text : texts) {
      Member member = {text, engine->impl().kv->create_sequence().value()};
      Member* const members[] = {&member};
      while (member.n_left() > 0) {
        const std::size_t n[] = {member.in_prompt() ? text.n_prompt : 1};
        run(*engine, members, n);
      }
      engine->impl().truncate(member.sequence, 0);
      engine->impl().kv->free_sequence(member.sequence);
      logits.push_back(member.logits);
    }
    return logits;
  }

  // In passes of rows that a seed chooses; members join at any pass.
  std::vector<Logits> together(EngineOptions options, std::span<const Text> texts,
                               std::uint64_t seed) const {
    Rng rng(seed);
    options.n_sequences = static_cast<std::uint32_t>(texts.size());
    const auto engine = open(options);
    std::vector<Member> members;
    for (const Text& text : texts) {
      members.push_back({text, engine->impl().kv->create_sequence().value()});
    }
    const auto is_done = [](const Member& member) { return member.n_left() == 0; };
    while (!std::ranges::all_of(members, is_done)) {
      std::vector<Member*> order;
      for (Member& member : members) order.push_back(&member);
      for (std::size_t i = order.size(); i > 1; --i) {
        std::swap(order[i - 1], order[rng.below(static_cast<std::uint32_t>(i))]);
      }
      std::vector<std::size_t> n_rows(members.size());
      std::size_t n_left = engine->impl().rows_per_pass;
      for (std::size_t i = 0; i < order.size(); ++i) {
        const Member& member = *order[i];
        if (is_done(member) || n_left == 0 || rng.below(3) == 0) continue;
        const std::size_t most =
            member.in_prompt() ? std::min(n_left, member.text.n_prompt - member.n_done) : 1;
        n_rows[i] = 1 + rng.below(static_cast<std::uint32_t>(most));
        n_left -= n_rows[i];
      }
      if (n_left < engine->impl().rows_per_pass) run(*engine, order, n_rows);
    }
    std::vector<Logits> logits;
    for (Member& member : members) logits.push_back(std::move(member.logits));
    return logits;
  }

  void expect_same_together(const EngineOptions& options) const {
    const std::vector<Text> all = texts();
    const std::vector<Logits> want = alone(options, all);
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      EngineOptions changed = options;
      const std::uint32_t rows_per_pass[] = {0, 33, 200};
      changed.rows_per_pass = rows_per_pass[seed % 3];
      changed.n_threads = 1 + static_cast<unsigned>(seed % 2);
      EXPECT_EQ(together(changed, all, seed), want) << "seed " << seed;
    }
  }
};

TEST_F(SparseMembersTest, SparsePrefillOfManyIsThatOfEach) {
  expect_same_together(sparse_prefill());
  EngineOptions fast = sparse_prefill();
  fast.exact = false;
  fast.k_type = fast.v_type = KvType::k8Bit;
  expect_same_together(fast);
}

TEST_F(SparseMembersTest, H2oEvictionOfManyIsThatOfEach) {
  expect_same_together(h2o_eviction());
  EngineOptions fast = h2o_eviction();
  fast.exact = false;
  fast.k_type = fast.v_type = KvType::k8Bit;
  expect_same_together(fast);
}

}  // namespace
}  // namespace qsf
