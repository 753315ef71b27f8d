// SPDX-License-Identifier: MIT
//
// Passes with several drafted rows of each sequence: every row has the logits that it has when it
// is generated alone, under every policy that keeps plain attention.

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_impl.h"
#include "engine/testing/naive_model_test.h"

namespace qsf {
namespace {

using testing_support::AppendLogits;
using testing_support::Logits;
using testing_support::naive_llama;
using testing_support::NaiveModelTest;

constexpr std::uint32_t kDraftedContext = 200;
constexpr std::size_t kDraftedPrompt = 70;
constexpr std::size_t kDraftedTokens = 150;

class DraftedRowsTest : public NaiveModelTest {
 protected:
  void SetUp() override { make_model(naive_llama(2, kDraftedContext), kDraftedTokens); }

  // The logits behind the prompt of two sequences, in passes of n rows of each.
  std::vector<Logits> run(EngineOptions options, std::size_t n) const {
    options.n_sequences = 2;
    options.max_drafts = static_cast<std::uint32_t>(2 * (n - 1));
    const auto engine = open(options);
    Engine::Impl& impl = engine->impl();
    std::vector<Logits> logits(2);
    SequenceId sequences[2];
    for (SequenceId& sequence : sequences) {
      sequence = impl.kv->create_sequence().value();
      EXPECT_TRUE(
          impl.append(sequence, tokens(0, kDraftedPrompt), RowRole::kPrompt, 0, nullptr).ok());
    }
    for (std::size_t done = kDraftedPrompt; done < kDraftedTokens;) {
      const std::size_t last = std::min(kDraftedTokens, done + n);
      AppendLogits sinks[] = {AppendLogits(logits[0]), AppendLogits(logits[1])};
      PassPart parts[2];
      for (std::size_t i = 0; i < 2; ++i) {
        parts[i] = {.sequence = sequences[i],
                    .tokens = tokens(done, last),
                    .role = RowRole::kDrafted,
                    .sink = &sinks[i]};
      }
      EXPECT_TRUE(impl.run_parts(parts).ok());
      done = last;
    }
    return logits;
  }
};

TEST_F(DraftedRowsTest, HaveTheLogitsOfGeneratedRows) {
  EngineOptions fast = exact_options(kDraftedContext);
  fast.exact = false;
  fast.k_type = fast.v_type = KvType::k8Bit;
  EngineOptions window = exact_options(kDraftedContext);
  window.kv_policy = {.policy = KvPolicy::kWindow, .window = 30, .sinks = 3};
  EngineOptions reindexed = window;
  reindexed.kv_policy.rope_reindex = true;
  for (const EngineOptions& options : {exact_options(kDraftedContext), fast, window, reindexed}) {
    const std::vector<Logits> want = run(options, 1);
    ASSERT_EQ(want[0].size(), kDraftedTokens - kDraftedPrompt);
    EXPECT_EQ(want[1], want[0]);
    for (const std::size_t n : {2U, 9U, 16U, 33U}) EXPECT_EQ(run(options, n), want) << n;
  }
}

}  // namespace
}  // namespace qsf
