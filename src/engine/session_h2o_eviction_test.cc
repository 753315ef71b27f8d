// SPDX-License-Identifier: MIT
//
// Session files under the policy that keeps h2o eviction: what follows has the bits of never
// having stopped, wherever a text was cut; other sizes and damage are refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "engine/engine_impl.h"
#include "engine/session_file.h"
#include "engine/testing/bare_session.h"
#include "engine/testing/session_bytes.h"
#include "engine/testing/session_text.h"
#include "engine/testing/streamed_model.h"
#include "io/testing/faulty_file.h"

namespace qsf {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::BareSession;
using testing_support::begin_text;
using testing_support::bytes_of_file;
using testing_support::entry_at;
using testing_support::expect_bits;
using testing_support::expect_same_text;
using testing_support::expect_same_text_of_every_type;
using testing_support::expect_truncation_leaves_no_trace;
using testing_support::go_on;
using testing_support::index_of;
using testing_support::kBareShape;
using testing_support::kIds;
using testing_support::open;
using testing_support::path;
using testing_support::random_tokens;
using testing_support::repair;
using testing_support::section_at;
using testing_support::StreamedModel;

constexpr KvPolicyOptions policy_of(std::uint32_t window, std::uint32_t sinks,
                                    std::uint32_t heavy) {
  return {.policy = KvPolicy::kH2o, .window = window, .sinks = sinks, .heavy = heavy};
}

EngineOptions evicting_options(KvType k_type, KvType v_type,
                               const KvPolicyOptions& policy = policy_of(100, 4, 70)) {
  EngineOptions options;
  options.n_threads = 2;
  options.max_context = 560;
  options.rows_per_pass = 64;
  options.k_type = k_type;
  options.v_type = v_type;
  options.kv_policy = policy;
  return options;
}

class SessionH2oEvictionTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = new StreamedModel("session_h2o_eviction", {.n_layers = 3});
  }
  static void TearDownTestSuite() { delete model_; }
  static StreamedModel* model_;
};
StreamedModel* SessionH2oEvictionTest::model_ = nullptr;

TEST_F(SessionH2oEvictionTest, GoesOnAsIfItHadNeverStopped) {
  // Inside the first block and at its end, with nothing outside the window, with slots that are not
  // used yet, and when all are; inside and at the end of tiles and blocks.
  for (const std::size_t n_rows : {50U, 64U, 100U, 150U, 192U, 216U, 256U, 303U, 330U}) {
    expect_same_text(*model_, evicting_options(KvType::kF16, KvType::kF16), n_rows);
  }
}

TEST_F(SessionH2oEvictionTest, EveryTypeOfKeysAndValuesGoesOn) {
  expect_same_text_of_every_type(*model_, evicting_options(KvType::kF16, KvType::kF16), 303);
}

TEST_F(SessionH2oEvictionTest, EveryHeadMayHaveKeysOfItsOwnAndSizesMayBeSmall) {
  const StreamedModel model("session_h2o_eviction_mha", {.n_layers = 2, .n_kv_heads = 8});
  for (const KvPolicyOptions& policy :
       {policy_of(100, 4, 70), policy_of(1, 0, 1), policy_of(40, 0, 0), policy_of(500, 4, 70)}) {
    expect_same_text(model, evicting_options(KvType::kF16, KvType::kF16, policy), 303);
  }
}

TEST_F(SessionH2oEvictionTest, ForgottenRowsAreSavedAndLeaveNoTrace) {
  expect_truncation_leaves_no_trace(*model_, evicting_options(KvType::kF16, KvType::k4Bit),
                                    {224, 200, 192, 40});
}

TEST_F(SessionH2oEvictionTest, AShorterTextLeavesALoadedSession) {
  const auto engine = open(*model_, evicting_options(KvType::kF16, KvType::kF16));
  for (const std::size_t n : {310U, 200U}) {  // inside the current block, and before it
    std::vector<float> expected;
    {
      const auto session = engine->create_session().value();
      begin_text(*session, 330);
      ASSERT_TRUE(session->save(path("long")).ok());
      ASSERT_TRUE(session->truncate(n).ok());
      expected = go_on(*session);
    }
    const auto session = engine->create_session().value();
    ASSERT_TRUE(session->load(path("long")).ok());
    ASSERT_TRUE(session->truncate(n).ok());
    expect_bits(go_on(*session), expected);
  }
}

TEST_F(SessionH2oEvictionTest, OtherPoliciesAreRefusedWithBothValues) {
  {
    const auto engine = open(*model_, evicting_options(KvType::kF16, KvType::kF16));
    const auto session = engine->create_session().value();
    begin_text(*session, 250);
    ASSERT_TRUE(session->save(path("h2o")).ok());
  }
  const auto refusal = [&](const KvPolicyOptions& policy, const std::string& file) {
    const auto engine = open(*model_, evicting_options(KvType::kF16, KvType::kF16, policy));
    const auto target = engine->create_session().value();
    const Status status = target->load(path(file));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
    EXPECT_EQ(target->length(), 0U);
    EXPECT_TRUE(target->prefill(random_tokens(200, 1, kIds), nullptr).ok());
    return std::string(status.message());
  };
  const std::string saved = "section policy: h2o (window 100, sinks 4, heavy 70), expected ";
  EXPECT_THAT(refusal({}, "h2o"), HasSubstr(saved + "full (0, 0, 0)"));
  EXPECT_THAT(refusal(policy_of(101, 4, 70), "h2o"), HasSubstr(saved + "h2o (101, 4, 70)"));
  EXPECT_THAT(refusal(policy_of(100, 3, 70), "h2o"), HasSubstr(saved + "h2o (100, 3, 70)"));
  EXPECT_THAT(refusal(policy_of(100, 4, 71), "h2o"), HasSubstr(saved + "h2o (100, 4, 71)"));
  const KvPolicyOptions window = {.policy = KvPolicy::kWindow, .window = 100, .sinks = 4};
  EXPECT_THAT(refusal(window, "h2o"), HasSubstr(saved + "window (100, 4, 0)"));
  {
    const auto engine = open(*model_, evicting_options(KvType::kF16, KvType::kF16, window));
    const auto session = engine->create_session().value();
    begin_text(*session, 250);
    ASSERT_TRUE(session->save(path("window")).ok());
  }
  EXPECT_THAT(refusal(policy_of(100, 4, 70), "window"),
              HasSubstr("window (window 100, sinks 4, heavy 0), expected h2o (100, 4, 70)"));
}

// A file in memory, 22 rows into its third block: 88 positions left the window, 20 of them are
// kept.
class SessionH2oEvictionDamageTest : public testing::Test {
 protected:
  static constexpr KvPolicyOptions kPolicy = policy_of(40, 2, 20);
  static constexpr std::uint32_t kRows = 150;
  static constexpr std::uint32_t kUsed = 20;

  void SetUp() override {
    BareSession session(kBareShape, 200, {}, kPolicy);
    const std::vector<TokenId> tokens = session.fill(kRows);
    ASSERT_TRUE(write_session_file(path("bare"), system_file_ops(), session.identity(),
                                   session.place(), tokens, 7, {})
                    .ok());
    bytes_ = bytes_of_file(path("bare"));
    section_ = section_at(bytes_, index_of(bytes_, "heavy_hitters"));
  }

  // A refused file leaves the sequence, and the slots of heavy hitters, as they were.
  Status load(ByteSpan bytes, SessionReadOptions options = {}) {
    into_.kv().truncate(into_.sequence(), 0);
    into_.eviction().truncate(0);
    MemoryFileOps ops(bytes);
    const File file = File::open("s.session", ops).value();
    SessionText text;
    Status status = read_session_file(file, into_.identity(), into_.place(), options, text);
    if (status.ok()) return status;
    EXPECT_EQ(into_.kv().n_slots(into_.sequence()), 0U);
    EXPECT_EQ(into_.kv().n_free_pages(), into_.kv().limits().n_pages);
    EXPECT_TRUE(text.rows.empty());
    EXPECT_TRUE(into_.eviction().stands_at(0));
    EXPECT_TRUE(into_.eviction().check(0).ok());
    return status;
  }
  template <typename T>
  void expect_refused(std::size_t at, T value, const std::string& words) {
    std::vector<std::byte> bytes = bytes_;
    store_le(MutableByteSpan(bytes), at, value);
    repair(bytes);
    const Status status = load(bytes);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.message();
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("s.session: section heavy_hitters: "), HasSubstr(words)));
    EXPECT_EQ(load(bytes, {.verify_crc = false}).code(), StatusCode::kCorrupt);
  }

  // Where parts of a head begin: a K and a V block, slots, their totals, those of 40 recent
  // positions, then twice what was paid to slots and to 62 positions.
  const std::size_t values_ = static_cast<std::size_t>(kBareShape.block_bytes(KvPart::kKeys));
  const std::size_t slots_ =
      values_ + static_cast<std::size_t>(kBareShape.block_bytes(KvPart::kValues));
  const std::size_t totals_ = slots_ + 4 * kUsed;
  const std::size_t recent_ = totals_ + 4 * kUsed;
  const std::size_t paid_ = recent_ + 4 * 40;
  const std::size_t head_bytes_ = paid_ + 2 * 4 * (kUsed + 62);

  std::vector<std::byte> bytes_;
  std::size_t section_ = 0;
  BareSession into_{kBareShape, 200, {}, kPolicy};
};

TEST_F(SessionH2oEvictionDamageTest, TheFileItselfIsReadAsItWasWritten) {
  const std::size_t entry = entry_at(index_of(bytes_, "heavy_hitters"));
  EXPECT_EQ(load_le<std::uint64_t>(bytes_, entry + session_layout::entry_at::kBytes),
            4 * head_bytes_);
  BareSession written(kBareShape, 200, {}, kPolicy);
  written.fill(kRows);
  const Status status = load(bytes_);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(into_.eviction().stands_at(kRows));
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    for (std::uint32_t head = 0; head < 2; ++head) {
      const auto got = into_.eviction().saved_parts(layer, head);
      const auto expected = written.eviction().saved_parts(layer, head);
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(std::ranges::equal(got[i], expected[i])) << layer << ", " << head << ": " << i;
      }
    }
  }
}

TEST_F(SessionH2oEvictionDamageTest, EveryPrefixAndFlippedBitsAreRefused) {
  for (std::size_t n = 0; n < bytes_.size(); n += 53) {
    ASSERT_EQ(load(ByteSpan(bytes_).first(n)).code(), StatusCode::kCorrupt) << n;
  }
  int n_loaded = 0;
  for (std::size_t at = section_; at < section_ + 4 * head_bytes_; at += 11) {
    std::vector<std::byte> bytes = bytes_;
    bytes[at] ^= static_cast<std::byte>(1U << (at * 5 + at / 64) % 8);
    const Status status = load(bytes);
    ASSERT_EQ(status.code(), StatusCode::kCorrupt) << at;
    ASSERT_THAT(status.message(), AllOf(HasSubstr("section heavy_hitters"), HasSubstr("CRC")));
    if (!load(bytes, {.verify_crc = false}).ok()) continue;
    // What could have come from attention can be gone on with.
    ++n_loaded;
    const std::uint32_t end = into_.eviction().block_start(0) + kEvictionBlock;
    ASSERT_TRUE(into_.kv().append(into_.sequence(), end - kRows).has_value());
    for (std::uint32_t layer = 0; layer < 2; ++layer) {
      const KvLayerPages pages = into_.place().store.acquire_layer(layer);
      for (std::uint32_t head = 0; head < 2; ++head) {
        into_.eviction().close_head(layer, head, into_.kv(), into_.sequence(), pages);
      }
      into_.eviction().mark_scored(layer, end);
    }
    ASSERT_TRUE(into_.eviction().check(end).ok());
  }
  EXPECT_GT(n_loaded, 0);
}

TEST_F(SessionH2oEvictionDamageTest, EveryFieldIsChecked) {
  const std::size_t second_head = section_ + head_bytes_;
  const auto slot = [&](std::size_t m) {
    return load_le<std::int32_t>(bytes_, second_head + slots_ + 4 * m);
  };
  for (const std::int32_t position : {-1, 88, 150, std::numeric_limits<std::int32_t>::max()}) {
    expect_refused(second_head + slots_ + 4 * 9, position,
                   "layer 0, head 1: slot 9 holds position " + std::to_string(position));
  }
  expect_refused(second_head + slots_ + 4 * 9, slot(10), "head 1: position");
  ASSERT_EQ(slot(0), 0);
  std::int32_t dropped = 2;
  for (std::size_t m = 0; m < kUsed; ++m) {
    if (slot(m) != dropped) continue;
    ++dropped;
    m = 0;
  }
  expect_refused(second_head + slots_, dropped, "position 0, a sink, is missing");
  for (const float value :
       {-1.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::size_t part : {totals_, recent_, paid_, paid_ + 4 * kUsed, head_bytes_ - 4}) {
      expect_refused(second_head + part, value, "layer 0, head 1: ");
    }
  }
  // A scale that is no number.
  expect_refused(second_head + values_ - 2, std::uint16_t{0x7E00}, "keys");
}

TEST_F(SessionH2oEvictionDamageTest, PolicyAndHeavyHittersComeTogether) {
  const auto renamed = [&](const char* from, const char* to) {
    std::vector<std::byte> bytes = bytes_;
    const auto name = MutableByteSpan(bytes).subspan(entry_at(index_of(bytes_, from)),
                                                     session_layout::kNameBytes);
    std::ranges::fill(name, std::byte{0});
    std::ranges::copy(as_bytes(to), name.begin());
    repair(bytes);
    return bytes;
  };
  EXPECT_THAT(load(renamed("heavy_hitters", "layer_9")).message(),
              HasSubstr("section heavy_hitters: is missing"));
  // Another number of positions means other sizes.
  std::vector<std::byte> bytes = bytes_;
  store_le(MutableByteSpan(bytes), section_at(bytes_, index_of(bytes_, "tokens")), kRows + 1);
  repair(bytes);
  EXPECT_THAT(load(bytes).message(), HasSubstr("section heavy_hitters: "));
}

}  // namespace
}  // namespace qsf
