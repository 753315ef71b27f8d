// SPDX-License-Identifier: MIT
//
// Tests of what options of policy and attention are accepted, and that refusals tell the values.

#include "kv/kv_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

namespace qsf {
namespace {

using testing::HasSubstr;

void expect_refused(const Status& status, StatusCode code, std::initializer_list<const char*> say) {
  EXPECT_EQ(status.code(), code);
  for (const char* text : say) EXPECT_THAT(status.message(), HasSubstr(text));
}

TEST(AttentionKindTest, NumbersAreFixedAndNoneCannotBeComputed) {
  static_assert(static_cast<int>(AttentionKind::kNone) == 0);
  static_assert(static_cast<int>(AttentionKind::kStandard) == 1);
  static_assert(static_cast<int>(AttentionKind::kChunked) == 2);
  static_assert(static_cast<int>(AttentionKind::kSymmetric) == 3);
  static_assert(static_cast<int>(AttentionKind::kSparsePrefill) == 4);
  EXPECT_TRUE(validate(AttentionKind::kStandard).ok());
  EXPECT_TRUE(validate(AttentionKind::kSparsePrefill).ok());
  EXPECT_TRUE(validate(AttentionKind::kChunked).ok());
  EXPECT_TRUE(validate(AttentionKind::kSymmetric).ok());
  expect_refused(validate(AttentionKind::kNone), StatusCode::kUnsupported, {"attention none (0)"});
  expect_refused(validate(static_cast<AttentionKind>(5)), StatusCode::kInvalidArgument, {"5"});
  EXPECT_EQ(attention_kind_name(AttentionKind::kStandard), "full");
  EXPECT_EQ(attention_kind_name(AttentionKind::kSparsePrefill), "h2o");
}

TEST(PromptMaskOptionsTest, ChunksHoldAPosition) {
  EXPECT_TRUE(validate(PromptMaskOptions{}).ok());
  EXPECT_TRUE(validate(PromptMaskOptions{.chunk = 1, .window = kMaxPolicyPositions}).ok());
  expect_refused(validate(PromptMaskOptions{.chunk = 0}), StatusCode::kInvalidArgument,
                 {"chunks of 0"});
  expect_refused(validate(PromptMaskOptions{.window = 0x80000000U}), StatusCode::kInvalidArgument,
                 {"2147483648", "each side"});
}

TEST(SparsePrefillOptionsTest, DefaultsAreAccepted) {
  const SparsePrefillOptions options;
  EXPECT_TRUE(validate(options).ok());
  EXPECT_TRUE(sparse_prefill_is_on(options));
  EXPECT_EQ(memory_set_size(options), 512U);
}

TEST(SparsePrefillOptionsTest, MemorySetsMustBeSmallerThanAChunk) {
  EXPECT_TRUE(validate(SparsePrefillOptions{.local = 511, .heavy = 512}).ok());
  expect_refused(validate(SparsePrefillOptions{.local = 513, .heavy = 511}),
                 StatusCode::kInvalidArgument, {"local 513", "heavy 511", "chunks of 1024"});
  expect_refused(validate(SparsePrefillOptions{.local = UINT32_MAX, .heavy = 4, .chunk = 64}),
                 StatusCode::kInvalidArgument, {"local 4294967295", "heavy 4", "chunks of 64"});
  expect_refused(validate(SparsePrefillOptions{.local = 1, .heavy = 0, .chunk = 0, .sinks = 0}),
                 StatusCode::kInvalidArgument, {"chunks of 0"});
  expect_refused(validate(SparsePrefillOptions{.chunk = 0x80000000U}), StatusCode::kInvalidArgument,
                 {"2147483648", "2147483647"});
}

TEST(SparsePrefillOptionsTest, SinksFitTheHeavyPositions) {
  EXPECT_TRUE(validate(SparsePrefillOptions{.local = 0, .heavy = 4}).ok());
  EXPECT_TRUE(validate(SparsePrefillOptions{.local = 8, .heavy = 0, .sinks = 0}).ok());
  expect_refused(validate(SparsePrefillOptions{.local = 8, .heavy = 3}),
                 StatusCode::kInvalidArgument, {"heavy 3", "4 sinks", "local 8"});
  expect_refused(validate(SparsePrefillOptions{.local = 8, .heavy = 0}),
                 StatusCode::kInvalidArgument, {"heavy 0", "4 sinks"});
}

TEST(SparsePrefillOptionsTest, WithoutLocalAndHeavyItIsOffWhateverTheRest) {
  const SparsePrefillOptions off{.local = 0, .heavy = 0, .chunk = 0, .sinks = 9};
  EXPECT_TRUE(validate(off).ok());
  EXPECT_FALSE(sparse_prefill_is_on(off));
}

TEST(SparsePrefillOptionsTest, RankingsOutsideTheEnumAreRefused) {
  expect_refused(validate(SparsePrefillOptions{.ranking = static_cast<H2oRanking>(2)}),
                 StatusCode::kInvalidArgument, {"attention h2o: score 2", "mean (0) or sum (1)"});
  EXPECT_EQ(h2o_ranking_name(H2oRanking::kMean), "mean");
  EXPECT_EQ(h2o_ranking_name(H2oRanking::kSum), "sum");
}

TEST(KvPolicyOptionsTest, FullAsksForNothing) {
  EXPECT_TRUE(validate(KvPolicyOptions{}).ok());
  EXPECT_TRUE(validate(KvPolicyOptions{.policy = KvPolicy::kFull, .window = 0, .heavy = 0}).ok());
  EXPECT_EQ(kv_policy_name(KvPolicy::kFull), "full");
  EXPECT_EQ(kv_policy_name(KvPolicy::kWindow), "window");
  EXPECT_EQ(kv_policy_name(KvPolicy::kH2o), "h2o");
}

TEST(KvPolicyOptionsTest, AWindowHasAPositionAndSumsFit) {
  const KvPolicy window = KvPolicy::kWindow;
  EXPECT_TRUE(validate(KvPolicyOptions{.policy = window}).ok());
  EXPECT_TRUE(validate(KvPolicyOptions{.policy = window, .window = 1, .sinks = 0}).ok());
  expect_refused(validate(KvPolicyOptions{.policy = window, .window = 0}),
                 StatusCode::kInvalidArgument, {"window of 0"});
  expect_refused(validate(KvPolicyOptions{.policy = window, .window = 0x7FFFFFFF, .sinks = 1}),
                 StatusCode::kInvalidArgument, {"window 2147483647", "sinks 1"});
  expect_refused(
      validate(KvPolicyOptions{.policy = window, .window = UINT32_MAX, .sinks = UINT32_MAX}),
      StatusCode::kInvalidArgument, {"window 4294967295"});
}

TEST(KvPolicyOptionsTest, SinksFitTheHeavyPositionsOfH2oAlone) {
  const KvPolicy h2o = KvPolicy::kH2o;
  EXPECT_TRUE(validate(KvPolicyOptions{.policy = h2o}).ok());
  EXPECT_TRUE(validate(KvPolicyOptions{.policy = h2o, .heavy = 4}).ok());
  expect_refused(validate(KvPolicyOptions{.policy = h2o, .window = 32, .sinks = 5, .heavy = 4}),
                 StatusCode::kInvalidArgument, {"4 heavy", "5 sinks", "window 32"});
  EXPECT_TRUE(validate(KvPolicyOptions{.policy = KvPolicy::kWindow, .sinks = 5, .heavy = 4}).ok());
  expect_refused(validate(KvPolicyOptions{.policy = h2o, .window = 0}),
                 StatusCode::kInvalidArgument, {"h2o", "window of 0"});
  expect_refused(validate(KvPolicyOptions{.policy = h2o, .heavy = 0x7FFFFFFF}),
                 StatusCode::kInvalidArgument, {"heavy 2147483647"});
}

TEST(KvPolicyOptionsTest, SinksAreMetByPlaceBesideAWindowAlone) {
  EXPECT_TRUE(validate(KvPolicyOptions{.policy = KvPolicy::kWindow, .rope_reindex = true}).ok());
  expect_refused(validate(KvPolicyOptions{.rope_reindex = true}), StatusCode::kInvalidArgument,
                 {"rope_reindex: needs kv policy window, got full"});
  expect_refused(validate(KvPolicyOptions{.policy = KvPolicy::kH2o, .rope_reindex = true}),
                 StatusCode::kInvalidArgument, {"rope_reindex: needs kv policy window, got h2o"});
}

TEST(KvPolicyOptionsTest, PoliciesOutsideTheEnumAreRefused) {
  expect_refused(validate(KvPolicyOptions{.policy = static_cast<KvPolicy>(3)}),
                 StatusCode::kInvalidArgument, {"kv policy: 3", "full (0), window (1) or h2o (2)"});
}

}  // namespace
}  // namespace qsf
