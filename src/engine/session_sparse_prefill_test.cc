// SPDX-License-Identifier: MIT
//
// Session files of prompts that attend to chunks and memory sets: what follows has the bits of
// never having stopped, wherever a text was cut; other options and damage are refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
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

// Two whole tiles and a shorter one, and not in step with pages.
constexpr SparsePrefillOptions kChunks = {.local = 24, .heavy = 24, .chunk = 160, .sinks = 4};

EngineOptions sparse_options(KvType k_type, KvType v_type) {
  EngineOptions options;
  options.n_threads = 2;
  options.max_context = 560;
  options.rows_per_pass = 64;
  options.k_type = k_type;
  options.v_type = v_type;
  options.attention = AttentionKind::kSparsePrefill;
  options.sparse_prefill = kChunks;
  return options;
}

class SessionSparsePrefillTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = new StreamedModel("session_sparse_prefill", {.n_layers = 3});
  }
  static void TearDownTestSuite() { delete model_; }
  static StreamedModel* model_;
};
StreamedModel* SessionSparsePrefillTest::model_ = nullptr;

TEST_F(SessionSparsePrefillTest, GoesOnAsIfItHadNeverStopped) {
  // Inside a tile of the first chunk, at its end, inside tiles of the next chunks, at a tile's
  // end of the second, at the end of the first and second chunk, and before the last tile of it.
  for (const std::size_t n_rows : {50U, 64U, 150U, 160U, 161U, 224U, 303U, 320U, 330U}) {
    expect_same_text(*model_, sparse_options(KvType::kF16, KvType::kF16), n_rows);
  }
}

TEST_F(SessionSparsePrefillTest, EveryTypeOfKeysAndValuesGoesOn) {
  expect_same_text_of_every_type(*model_, sparse_options(KvType::kF16, KvType::kF16), 303);
}

TEST_F(SessionSparsePrefillTest, EveryHeadMayHaveKeysOfItsOwn) {
  const StreamedModel model("session_sparse_prefill_mha", {.n_layers = 2, .n_kv_heads = 8});
  for (const std::size_t n_rows : {150U, 303U}) {
    expect_same_text(model, sparse_options(KvType::kF16, KvType::kF16), n_rows);
  }
  EngineOptions by_mean = sparse_options(KvType::kF16, KvType::kF16);
  by_mean.sparse_prefill = {
      .local = 0, .heavy = 40, .chunk = 100, .sinks = 0, .ranking = H2oRanking::kMean};
  expect_same_text(model, by_mean, 303);
  by_mean.sparse_prefill = {.local = 40, .heavy = 0, .chunk = 100, .sinks = 0};
  expect_same_text(model, by_mean, 303);
}

TEST_F(SessionSparsePrefillTest, ForgottenRowsAreSavedAndLeaveNoTrace) {
  expect_truncation_leaves_no_trace(*model_, sparse_options(KvType::kF16, KvType::k4Bit),
                                    {224, 200, 100, 40});
}

TEST_F(SessionSparsePrefillTest, AShorterTextLeavesALoadedSession) {
  const auto engine = open(*model_, sparse_options(KvType::kF16, KvType::kF16));
  const std::vector<TokenId> tokens = random_tokens(300, 1, kIds);
  std::vector<float> expected;
  {
    const auto session = engine->create_session().value();
    ASSERT_TRUE(session->prefill(tokens, nullptr).ok());
    ASSERT_TRUE(session->save(path("long")).ok());
    ASSERT_TRUE(session->truncate(200).ok());
    expected = go_on(*session);
  }
  const auto session = engine->create_session().value();
  ASSERT_TRUE(session->load(path("long")).ok());
  ASSERT_TRUE(session->truncate(200).ok());
  expect_bits(go_on(*session), expected);
}

TEST_F(SessionSparsePrefillTest, OtherAttentionIsRefusedWithBothValues) {
  const EngineOptions wanted = sparse_options(KvType::kF16, KvType::kF16);
  const auto engine = open(*model_, wanted);
  const auto session = engine->create_session().value();
  begin_text(*session, 100);
  ASSERT_TRUE(session->save(path("h2o")).ok());
  const std::string saved = "h2o (local 24, heavy 24, chunk 160, sinks 4, score sum)";
  const auto refusal = [&](const EngineOptions& other, const std::string& file) {
    const auto opened = open(*model_, other);
    const auto target = opened->create_session().value();
    const Status status = target->load(path(file));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
    EXPECT_EQ(target->length(), 0U);
    EXPECT_TRUE(target->prefill(random_tokens(200, 1, kIds), nullptr).ok());
    return std::string(status.message());
  };
  EngineOptions other = wanted;
  const auto expected = [&](SparsePrefillOptions sparse, const std::string& words) {
    other.sparse_prefill = sparse;
    EXPECT_THAT(refusal(other, "h2o"), AllOf(HasSubstr("section attention: " + saved),
                                             HasSubstr("expected h2o (" + words + ")"),
                                             HasSubstr("open the model with the attention")));
  };
  expected({.local = 25, .heavy = 24, .chunk = 160, .sinks = 4},
           "local 25, heavy 24, chunk 160, sinks 4, score sum");
  expected({.local = 24, .heavy = 23, .chunk = 160, .sinks = 4},
           "local 24, heavy 23, chunk 160, sinks 4, score sum");
  expected({.local = 24, .heavy = 24, .chunk = 128, .sinks = 4},
           "local 24, heavy 24, chunk 128, sinks 4, score sum");
  expected({.local = 24, .heavy = 24, .chunk = 160, .sinks = 0},
           "local 24, heavy 24, chunk 160, sinks 0, score sum");
  expected({.local = 24, .heavy = 24, .chunk = 160, .sinks = 4, .ranking = H2oRanking::kMean},
           "local 24, heavy 24, chunk 160, sinks 4, score mean");
  other = wanted;
  other.attention = AttentionKind::kStandard;
  EXPECT_THAT(refusal(other, "h2o"), AllOf(HasSubstr(saved + ", expected full"),
                                           HasSubstr("a context longer than its chunk")));
  {
    const auto full = open(*model_, other);
    const auto plain = full->create_session().value();
    begin_text(*plain, 100);
    ASSERT_TRUE(plain->save(path("full")).ok());
  }
  EXPECT_THAT(refusal(wanted, "full"),
              AllOf(HasSubstr("section attention: is missing: saved under attention full"),
                    HasSubstr("expected " + saved)));
}

TEST_F(SessionSparsePrefillTest, ADiskThatFailsLosesNothing) {
  FaultyFileOps disk;
  EngineOptions wanted = sparse_options(KvType::kF16, KvType::kF16);
  wanted.file_ops = &disk;
  const auto engine = open(*model_, wanted);
  auto session = engine->create_session().value();
  begin_text(*session, 200);
  ASSERT_TRUE(session->save(path("kept")).ok());
  const std::vector<std::byte> before = bytes_of_file(path("kept"));
  const std::size_t state = section_at(before, index_of(before, "h2o_state"));
  ASSERT_TRUE(session->step(5, nullptr).ok());
  disk.plan.write_error_at = state + 1000;
  EXPECT_EQ(session->save(path("kept")).code(), StatusCode::kIo);
  disk.plan = {};
  EXPECT_EQ(bytes_of_file(path("kept")), before);
  ASSERT_TRUE(session->save(path("one_more")).ok());
  const std::vector<float> expected = go_on(*session);
  session.reset();
  session = engine->create_session().value();
  disk.plan.read_error_at = state + 1000;
  EXPECT_EQ(session->load(path("kept")).code(), StatusCode::kIo);
  EXPECT_EQ(session->length(), 0U);
  disk.plan = {.max_transfer_bytes = 1000, .interrupt_every = 3};
  ASSERT_TRUE(session->load(path("one_more")).ok());
  disk.plan = {};
  expect_bits(go_on(*session), expected);
}

// A file in memory, 70 rows into its second chunk: a whole tile and one that is open.
class SessionSparsePrefillDamageTest : public testing::Test {
 protected:
  static constexpr SparsePrefillOptions kSmall = {.local = 5, .heavy = 6, .chunk = 80, .sinks = 2};
  static constexpr std::uint32_t kRows = 150;
  static constexpr std::uint32_t kMembers = 11;

  void SetUp() override {
    BareSession session(kBareShape, 200, kSmall);
    const std::vector<TokenId> tokens = session.fill(kRows);
    ASSERT_TRUE(write_session_file(path("bare"), system_file_ops(), session.identity(),
                                   session.place(), tokens, 7, {})
                    .ok());
    bytes_ = bytes_of_file(path("bare"));
    section_ = section_at(bytes_, index_of(bytes_, "h2o_state"));
  }

  // A refused file leaves the sequence, and what attention remembers of it, as they were.
  Status load(ByteSpan bytes, SessionReadOptions options = {}) {
    into_.kv().truncate(into_.sequence(), 0);
    into_.sparse_prefill().truncate(0);
    MemoryFileOps ops(bytes);
    const File file = File::open("s.session", ops).value();
    SessionText text;
    Status status = read_session_file(file, into_.identity(), into_.place(), options, text);
    if (status.ok()) return status;
    EXPECT_EQ(into_.kv().n_slots(into_.sequence()), 0U);
    EXPECT_TRUE(text.rows.empty());
    EXPECT_TRUE(into_.sparse_prefill().stands_at(0));
    for (const SparsePrefillBuffer& buffer : into_.sparse_prefill().buffers()) {
      const bool is_indices = buffer.name.find("idx") != std::string::npos;
      const std::byte unused{is_indices ? std::uint8_t{0xFF} : std::uint8_t{0}};
      EXPECT_THAT(buffer.bytes, testing::Each(unused)) << buffer.name;
    }
    return status;
  }
  template <typename T>
  Status load_with(std::size_t at, T value) {
    std::vector<std::byte> bytes = bytes_;
    store_le(MutableByteSpan(bytes), at, value);
    repair(bytes);
    Status status = load(bytes);
    EXPECT_EQ(status.code(), load(bytes, {.verify_crc = false}).code());
    return status;
  }
  template <typename T>
  void expect_refused(std::size_t at, T value, const std::string& words) {
    const Status status = load_with(at, value);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.message();
    EXPECT_THAT(status.message(), HasSubstr("s.session: section h2o_state: " + words));
  }

  // Where parts of a head begin: scores of 80 positions, members, their sums, 64 sums of whole
  // tiles, sums of members, then 70 and 11 of the open tile.
  static constexpr std::size_t kIndices = 2 * 80;
  static constexpr std::size_t kTotals = kIndices + 4 * kMembers;
  static constexpr std::size_t kChunkSums = kTotals + 4 * kMembers;
  static constexpr std::size_t kMemorySums = kChunkSums + 4 * 64;
  static constexpr std::size_t kStripSums = kMemorySums + 4 * kMembers;
  static constexpr std::size_t kHeadBytes = kStripSums + 4 * (70 + kMembers);

  std::vector<std::byte> bytes_;
  std::size_t section_ = 0;
  BareSession into_{kBareShape, 200, kSmall};
};

TEST_F(SessionSparsePrefillDamageTest, TheFileItselfIsReadAsItWasWritten) {
  const std::size_t entry = entry_at(index_of(bytes_, "h2o_state"));
  EXPECT_EQ(load_le<std::uint64_t>(bytes_, entry + session_layout::entry_at::kBytes),
            2 * 2 * kHeadBytes);
  BareSession written(kBareShape, 200, kSmall);
  written.fill(kRows);
  const Status status = load(bytes_);
  ASSERT_TRUE(status.ok()) << status.message();
  const auto got = into_.sparse_prefill().buffers();
  const auto expected = written.sparse_prefill().buffers();
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(got[i].bytes, expected[i].bytes)) << got[i].name;
  }
  EXPECT_EQ(into_.sparse_prefill().chunk_index(), 1U);
  EXPECT_EQ(into_.sparse_prefill().total_tokens(), 80U);
  EXPECT_THAT(into_.sparse_prefill().chunk_state().boundaries, testing::ElementsAre(0U, 80U));
}

TEST_F(SessionSparsePrefillDamageTest, EveryPrefixAndEveryFlippedBitIsRefused) {
  for (std::size_t n = 0; n < bytes_.size(); n += n < section_ + 2 * kHeadBytes ? 7 : 501) {
    ASSERT_EQ(load(ByteSpan(bytes_).first(n)).code(), StatusCode::kCorrupt) << n;
  }
  int n_loaded = 0;
  for (std::size_t at = section_; at < section_ + 4 * kHeadBytes; at += 3) {
    std::vector<std::byte> bytes = bytes_;
    bytes[at] ^= static_cast<std::byte>(1U << (at * 5 + at / 64) % 8);
    const Status status = load(bytes);
    ASSERT_EQ(status.code(), StatusCode::kCorrupt) << at;
    ASSERT_THAT(status.message(), AllOf(HasSubstr("section h2o_state"), HasSubstr("CRC"))) << at;
    if (!load(bytes, {.verify_crc = false}).ok()) continue;
    // What could have come from attention can be gone on with.
    ++n_loaded;
    into_.sparse_prefill().mark_scored(0, 160);
    ASSERT_TRUE(into_.sparse_prefill().close_chunk(0).ok());
  }
  EXPECT_GT(n_loaded, 0);
}

TEST_F(SessionSparsePrefillDamageTest, MembersAreWhatTheyCanBe) {
  const std::size_t second_head = section_ + kHeadBytes;
  const std::size_t members = second_head + kIndices;
  const auto member = [&](std::size_t m) { return load_le<std::int32_t>(bytes_, members + 4 * m); };
  expect_refused(members, 1, "layer 0, head 1: member 0 is position 1, expected 0 to 0");
  expect_refused(members + 4, -1, "layer 0, head 1: member 1 is position -1, expected 1 to 1");
  expect_refused(members + 4 * 4, member(3), "layer 0, head 1: member 4 is position");
  expect_refused(members + 4 * 5, -1, "layer 0, head 1: member 5 is position -1");
  expect_refused(members + 4 * 5, 75, "layer 0, head 1: member 5 is position 75, expected");
  expect_refused(members + 4 * 5, std::numeric_limits<std::int32_t>::max(), "layer 0, head 1");
  expect_refused(members + 4 * 6, 76,
                 "layer 0, head 1: member 6 is position 76, expected 75 to 75");
  expect_refused(members + 4 * 10, 80, "layer 0, head 1: member 10 is position 80, expected 79");
  expect_refused(members + 4 * 10, 150, "layer 0, head 1: member 10 is position 150");
}

TEST_F(SessionSparsePrefillDamageTest, SumsAreNumbersFromZeroOn) {
  const std::size_t second_layer = section_ + 2 * kHeadBytes;
  for (const float value :
       {-1.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::size_t part : {kTotals, kChunkSums, kMemorySums, kStripSums, kHeadBytes - 44}) {
      expect_refused(second_layer + part + 4 * 10, value, "layer 1, head 0: ");
    }
    expect_refused(second_layer + 2 * 79, to_bf16(value), "layer 1, head 0: ");
  }
  // The score of a member is its sum, rounded.
  const float total = load_le<float>(bytes_, second_layer + kTotals + 4 * 10);
  expect_refused(second_layer + kTotals + 4 * 10, total + 1.0F,
                 "layer 1, head 0: position 79 has the score");
}

TEST_F(SessionSparsePrefillDamageTest, SectionsComeTogetherOrNotAtAll) {
  const std::size_t attention = index_of(bytes_, "attention");
  const auto without = [&](const char* name) {
    std::vector<std::byte> bytes = bytes_;
    const std::size_t index = index_of(bytes, name);
    const auto at = [&](std::size_t offset) {
      return bytes.begin() + static_cast<std::ptrdiff_t>(offset);
    };
    bytes.erase(at(section_at(bytes, index)), at(section_at(bytes, index + 1)));
    bytes.erase(at(entry_at(index)), at(entry_at(index + 1)));
    store_le(MutableByteSpan(bytes), session_layout::header_at::kSections,
             testing_support::n_sections_of(bytes) - 1);
    store_le(MutableByteSpan(bytes), session_layout::header_at::kFileBytes,
             std::uint64_t{bytes.size()});
    repair(bytes);
    return bytes;
  };
  EXPECT_THAT(load(without("attention")).message(), HasSubstr("section attention: is missing"));
  EXPECT_THAT(load(without("h2o_state")).message(), HasSubstr("section h2o_state: is missing"));
  // A state that nothing asks for.
  BareSession full;
  SessionText text;
  const auto into_full = [&](ByteSpan bytes) {
    MemoryFileOps ops(bytes);
    const File file = File::open("s.session", ops).value();
    return read_session_file(file, full.identity(), full.place(), {}, text);
  };
  EXPECT_THAT(into_full(bytes_).message(), HasSubstr("expected full"));
  const Status status = into_full(without("attention"));
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("sections, expected"));
  // Another number of positions means other sizes.
  const std::size_t tokens = section_at(bytes_, index_of(bytes_, "tokens"));
  EXPECT_THAT(load_with(tokens, kRows + 1).message(), HasSubstr("section h2o_state: "));
  const std::size_t at = section_at(bytes_, attention);
  EXPECT_THAT(load_with(at + session_layout::kNameBytes, std::uint64_t{0}).message(),
              HasSubstr("section attention: no name"));
  EXPECT_THAT(load_with(at, std::uint64_t{'x'}).message(),
              HasSubstr("section attention: x (local 5, heavy 6, chunk 80, sinks 2, score sum), "
                        "expected h2o (local 5"));
}

}  // namespace
}  // namespace qsf
