// SPDX-License-Identifier: MIT
//
// Saved sessions go on bit for bit as those that never stopped, for every type of keys and values,
// in memory and in a file; files that do not fit or are damaged are refused.

#include "engine/session_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_impl.h"
#include "engine/session_layout.h"
#include "engine/testing/bare_session.h"
#include "engine/testing/bundled_path.h"
#include "engine/testing/logits_log.h"
#include "engine/testing/session_bytes.h"
#include "engine/testing/session_text.h"
#include "engine/testing/streamed_model.h"
#include "io/testing/faulty_file.h"

namespace qsf {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::BareSession;
using testing_support::bytes_of_file;
using testing_support::entry_at;
using testing_support::kBareShape;
using testing_support::kBundled;
using testing_support::kIds;
using testing_support::LogitsLog;
using testing_support::path;
using testing_support::random_tokens;
using testing_support::repair;
using testing_support::section_at;
using testing_support::StreamedModel;

namespace layout = session_layout;

// What is done before a session is saved, and after.
void begin_saved_text(Session& session, std::size_t n_prompt) {
  ASSERT_TRUE(session.prefill(random_tokens(n_prompt, 1, kIds), nullptr).ok());
  for (TokenId token = 20; token < 23; ++token) ASSERT_TRUE(session.step(token, nullptr).ok());
}
std::vector<float> go_on_shortly(Session& session) {
  LogitsLog keep;
  EXPECT_TRUE(session.step(30, &keep).ok());
  EXPECT_TRUE(session.prefill_rows(random_tokens(70, 2, kIds), keep).ok());
  EXPECT_TRUE(session.step(31, &keep).ok());
  return keep.values;
}

class SessionFileTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = new StreamedModel("session", {}); }
  static void TearDownTestSuite() { delete model_; }
  static EngineOptions options(KvType k_type, KvType v_type) {
    EngineOptions options;
    options.n_threads = 2;
    options.max_context = 320;
    options.rows_per_pass = 64;
    options.k_type = k_type;
    options.v_type = v_type;
    return options;
  }
  static EngineOptions spilled(EngineOptions options) {
    options.kv_spill_path = path("spill");
    return options;
  }
  static std::unique_ptr<Engine> open(const EngineOptions& options) {
    auto engine = Engine::open(model_->path(), options);
    EXPECT_TRUE(engine.has_value()) << engine.error().message();
    return std::move(engine).value();
  }
  static StreamedModel* model_;
};
StreamedModel* SessionFileTest::model_ = nullptr;

TEST_F(SessionFileTest, GoesOnAsIfItHadNeverStopped) {
  const std::pair<KvType, KvType> types[] = {
      {KvType::kF32, KvType::kF32},   {KvType::kF16, KvType::kF16},
      {KvType::k8Bit, KvType::k8Bit}, {KvType::k4Bit, KvType::k4Bit},
      {KvType::k2Bit, KvType::k2Bit}, {KvType::k8Bit, KvType::k4Bit}};
  for (const auto& [k_type, v_type] : types) {
    for (const std::size_t n_prompt : {std::size_t{125}, std::size_t{186}}) {  // whole pages, not
      SCOPED_TRACE(std::string(kv_type_name(k_type)) + "/" + std::string(kv_type_name(v_type)));
      const EngineOptions resident = options(k_type, v_type);
      std::vector<float> expected;
      {
        const auto engine = open(resident);
        const auto session = engine->create_session().value();
        begin_saved_text(*session, n_prompt);
        const Status saved = session->save(path("a"));
        ASSERT_TRUE(saved.ok()) << saved.message();
        expected = go_on_shortly(*session);
        ASSERT_GT(expected.size(), 70U * 400);
      }
      {
        const auto engine = open(spilled(resident));
        const auto session = engine->create_session().value();
        begin_saved_text(*session, n_prompt);
        ASSERT_TRUE(session->save(path("b")).ok());
        // Saving changes nothing.
        EXPECT_EQ(go_on_shortly(*session), expected);
      }
      EXPECT_EQ(bytes_of_file(path("a")), bytes_of_file(path("b")));

      EngineOptions other = resident;  // of which the numbers do not depend
      other.n_threads = 1;
      other.rows_per_pass = 33;
      other.max_context = 400;
      for (const EngineOptions& target : {resident, other, spilled(other)}) {
        const auto engine = open(target);
        const auto session = engine->create_session().value();
        const Status loaded = session->load(path("a"));
        ASSERT_TRUE(loaded.ok()) << loaded.message();
        EXPECT_EQ(session->length(), n_prompt + 3);
        ASSERT_TRUE(session->save(path("c")).ok());
        EXPECT_EQ(bytes_of_file(path("a")), bytes_of_file(path("c")));
        const std::vector<float> got = go_on_shortly(*session);
        ASSERT_EQ(got.size(), expected.size());
        EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0);
      }
    }
  }
}

// A file has the sinks and the window, whatever the rows of a pass make a cache hold beside them.
TEST_F(SessionFileTest, AWindowGoesOnWithWhatItSees) {
  for (const std::size_t n_prompt : {std::size_t{90}, std::size_t{300}, std::size_t{317}}) {
    EngineOptions wanted = options(KvType::kF16, KvType::k8Bit);
    wanted.max_context = 600;
    wanted.kv_policy = {.policy = KvPolicy::kWindow, .window = 100, .sinks = 4};
    std::vector<float> expected;
    {
      const auto engine = open(wanted);
      const auto session = engine->create_session().value();
      begin_saved_text(*session, n_prompt);
      const Status saved = session->save(path("w"));
      ASSERT_TRUE(saved.ok()) << saved.message();
      expected = go_on_shortly(*session);
    }
    for (const std::uint32_t rows : {1U, 33U, 200U}) {
      EngineOptions other = rows == 33 ? spilled(wanted) : wanted;
      other.rows_per_pass = rows;
      const auto engine = open(other);
      {
        const auto same = engine->create_session().value();
        begin_saved_text(*same, n_prompt);
        ASSERT_TRUE(same->save(path("w2")).ok());
        EXPECT_EQ(bytes_of_file(path("w")), bytes_of_file(path("w2"))) << rows;
      }
      const auto session = engine->create_session().value();
      const Status loaded = session->load(path("w"));
      ASSERT_TRUE(loaded.ok()) << loaded.message();
      ASSERT_TRUE(session->save(path("w2")).ok());
      EXPECT_EQ(bytes_of_file(path("w")), bytes_of_file(path("w2"))) << rows;
      // The last row can be computed again; what was evicted does not come back.
      EXPECT_EQ(session->longest_kept(n_prompt + 2), n_prompt + 2);
      EXPECT_LT(session->longest_kept(200 < n_prompt ? 200 : n_prompt), 100U);
      EXPECT_EQ(go_on_shortly(*session), expected) << rows;
    }
    for (const KvPolicyOptions& policy :
         {KvPolicyOptions(),
          KvPolicyOptions{.policy = KvPolicy::kWindow, .window = 101, .sinks = 4},
          KvPolicyOptions{.policy = KvPolicy::kWindow, .window = 100, .sinks = 5}}) {
      EngineOptions other = wanted;
      other.kv_policy = policy;
      const auto engine = open(other);
      const Status status = engine->create_session().value()->load(path("w"));
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(status.message(), HasSubstr("section policy: window (window 100, sinks 4"));
    }
  }
}

TEST_F(SessionFileTest, SeveralSequencesAndForgottenRowsLeaveNoTrace) {
  EngineOptions wanted = options(KvType::kF16, KvType::k4Bit);
  wanted.n_sequences = 2;
  const auto engine = open(wanted);
  {
    const auto plain = engine->create_session().value();
    ASSERT_TRUE(plain->prefill(random_tokens(70, 1, kIds), nullptr).ok());
    ASSERT_TRUE(plain->save(path("plain")).ok());
  }
  const auto other = engine->create_session().value();
  ASSERT_TRUE(other->prefill(random_tokens(40, 7, kIds), nullptr).ok());
  const auto cut = engine->create_session().value();
  ASSERT_TRUE(cut->prefill(random_tokens(70, 1, kIds), nullptr).ok());
  ASSERT_TRUE(other->prefill(random_tokens(70, 8, kIds), nullptr).ok());
  ASSERT_TRUE(cut->prefill(random_tokens(90, 9, kIds), nullptr).ok());
  ASSERT_TRUE(cut->truncate(70).ok());
  ASSERT_TRUE(cut->save(path("cut")).ok());
  EXPECT_EQ(bytes_of_file(path("plain")), bytes_of_file(path("cut")));
}

TEST_F(SessionFileTest, RefusesWhatDoesNotFit) {
  const EngineOptions f16 = options(KvType::kF16, KvType::kF16);
  const auto engine = open(f16);
  const auto session = engine->create_session().value();
  const Status empty = session->save(path("none"));
  EXPECT_EQ(empty.code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(path("none")));
  begin_saved_text(*session, 200);
  ASSERT_TRUE(session->save(path("a")).ok());
  const Status filled = session->load(path("a"));
  EXPECT_EQ(filled.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(filled.message(), HasSubstr("holds 203 tokens"));
  EXPECT_EQ(session->length(), 203U);

  const auto refuse = [](Engine& other, const std::string& file, StatusCode code,
                         const std::vector<std::string>& words) {
    const auto target = other.create_session().value();
    const Status status = target->load(file);
    EXPECT_EQ(status.code(), code) << status.message();
    for (const std::string& word : words) EXPECT_THAT(status.message(), HasSubstr(word));
    EXPECT_EQ(target->length(), 0U);
    // As if nothing had been tried.
    EXPECT_TRUE(target->prefill(random_tokens(5, 1, kIds), nullptr).ok());
  };
  EngineOptions small = f16;
  small.max_context = 202;
  refuse(*open(small), path("a"), StatusCode::kOutOfBudget,
         {path("a"), "203 positions", "the context 202", "203 or more"});
  small.max_context = 203;
  EXPECT_TRUE(open(small)->create_session().value()->load(path("a")).ok());
  refuse(*open(options(KvType::kF16, KvType::k8Bit)), path("a"), StatusCode::kInvalidArgument,
         {"values of type f16, expected 8"});
  refuse(*open(options(KvType::k4Bit, KvType::kF16)), path("a"), StatusCode::kInvalidArgument,
         {"keys of type f16, expected 4"});
  refuse(*open(f16), path("absent"), StatusCode::kNotFound, {path("absent")});
  refuse(*open(f16), model_->path(), StatusCode::kCorrupt, {"not a session file", "QSFS"});
  // The same weights in another form are another model.
  const StreamedModel packed("session_packed", {.compression = Compression::kLz4});
  refuse(*Engine::open(packed.path(), f16).value(), path("a"), StatusCode::kInvalidArgument,
         {"saved with another model", "llama of 500 tokens", "fingerprint"});
  std::filesystem::rename(packed.path(), packed.path() + ".renamed");
  std::filesystem::copy_file(model_->path(), packed.path());
  EXPECT_TRUE(
      Engine::open(packed.path(), f16).value()->create_session().value()->load(path("a")).ok());
  std::filesystem::remove(packed.path() + ".renamed");
}

TEST_F(SessionFileTest, ADiskThatFailsChangesNothing) {
  FaultyFileOps disk;
  EngineOptions wanted = options(KvType::kF32, KvType::kF32);
  wanted.file_ops = &disk;
  const auto engine = open(wanted);
  auto session = engine->create_session().value();
  begin_saved_text(*session, 100);
  ASSERT_TRUE(session->save(path("kept")).ok());
  const std::vector<std::byte> before = bytes_of_file(path("kept"));
  ASSERT_TRUE(session->step(5, nullptr).ok());
  disk.plan.write_error_at = before.size() / 2;
  EXPECT_EQ(session->save(path("kept")).code(), StatusCode::kIo);
  disk.plan = {};
  disk.plan.sync_errno = EIO;
  EXPECT_EQ(session->save(path("kept")).code(), StatusCode::kIo);
  disk.plan = {};
  EXPECT_EQ(bytes_of_file(path("kept")), before);
  EXPECT_EQ(session->save(path("no/such/folder")).code(), StatusCode::kIo);

  session.reset();
  session = engine->create_session().value();
  disk.plan.read_error_at = before.size() / 2;
  EXPECT_EQ(session->load(path("kept")).code(), StatusCode::kIo);
  EXPECT_EQ(session->length(), 0U);
  disk.plan = {.max_transfer_bytes = 1000, .interrupt_every = 3};
  ASSERT_TRUE(session->load(path("kept")).ok());
  EXPECT_EQ(session->length(), 103U);
}

TEST_F(SessionFileTest, CancellingEndsIt) {
  for (const EngineOptions& wanted :
       {options(KvType::kF16, KvType::kF16), spilled(options(KvType::kF16, KvType::kF16))}) {
    const auto engine = open(wanted);
    auto session = engine->create_session().value();
    begin_saved_text(*session, 100);
    engine->cancel();
    EXPECT_EQ(session->save(path("cancelled")).code(), StatusCode::kCancelled);
    EXPECT_FALSE(std::filesystem::exists(path("cancelled")));
    ASSERT_TRUE(session->save(path("c")).ok());
    const std::vector<float> expected = go_on_shortly(*session);
    session.reset();
    session = engine->create_session().value();
    engine->cancel();
    EXPECT_EQ(session->load(path("c")).code(), StatusCode::kCancelled);
    EXPECT_EQ(session->length(), 0U);
    ASSERT_TRUE(session->load(path("c")).ok());
    EXPECT_EQ(go_on_shortly(*session), expected);
  }
}

struct Told {
  std::string text;
  GenerateResult result;
};
Told tell(Session& session, const std::vector<TokenId>& prompt, std::uint32_t n_tokens) {
  Told told;
  GenerateOptions options;
  options.max_tokens = n_tokens;
  options.sampling.temperature = 0;
  options.on_token = [](TokenId, std::string_view piece, void* user) {
    static_cast<std::string*>(user)->append(piece);
  };
  options.user = &told.text;
  auto result = session.generate(prompt, options);
  EXPECT_TRUE(result.has_value()) << result.error().message();
  if (result.has_value()) told.result = *result;
  return told;
}

// A text cut in two, where its last token has no row yet, and where only the prompt was computed.
TEST_F(SessionFileTest, GeneratedTextGoesOn) {
  EngineOptions wanted;
  wanted.n_threads = 2;
  const auto engine = Engine::open(kBundled, wanted).value();
  std::vector<TokenId> prompt;
  ASSERT_TRUE(engine->tokenizer()->encode("There was a king and a queen", {}, prompt).ok());
  std::string whole = tell(*engine->create_session().value(), prompt, 40).text;
  for (const std::uint32_t n_first : {0U, 1U, 17U}) {
    std::string first;
    {
      const auto session = engine->create_session().value();
      first = tell(*session, prompt, n_first).text;
      EXPECT_EQ(session->length(), prompt.size() + n_first - (n_first > 0 ? 1 : 0));
      ASSERT_TRUE(session->save(path("told")).ok());
    }
    const auto session = engine->create_session().value();
    ASSERT_TRUE(session->load(path("told")).ok());
    EXPECT_EQ(first + tell(*session, {}, 40 - n_first).text, whole) << n_first;
    EXPECT_EQ(session->length(), prompt.size() + 39);
  }
  // A prompt comes after the token that had no row.
  const auto session = engine->create_session().value();
  ASSERT_TRUE(session->load(path("told")).ok());
  const std::size_t before = session->length();
  ASSERT_TRUE(session->prefill(prompt, nullptr).ok());
  EXPECT_EQ(session->length(), before + 1 + prompt.size());
  EXPECT_TRUE(
      std::equal(prompt.begin(), prompt.end(), session->tokens().last(prompt.size()).begin()));
}

TEST_F(SessionFileTest, ATextThatFilledTheContextGoesOnInALargerOne) {
  EngineOptions wanted;
  wanted.n_threads = 2;
  wanted.max_context = 64;
  std::vector<TokenId> prompt;
  std::string first;
  {
    const auto engine = Engine::open(kBundled, wanted).value();
    ASSERT_TRUE(engine->tokenizer()->encode("There was a king", {}, prompt).ok());
    const auto session = engine->create_session().value();
    const Told told = tell(*session, prompt, 100);
    EXPECT_EQ(told.result.reason, StopReason::kContextFull);
    first = told.text;
    ASSERT_TRUE(session->save(path("full")).ok());
    GenerateOptions more;
    EXPECT_EQ(session->generate({}, more).error().code(), StatusCode::kOutOfBudget);
  }
  wanted.max_context = 128;
  const auto engine = Engine::open(kBundled, wanted).value();
  const auto session = engine->create_session().value();
  ASSERT_TRUE(session->load(path("full")).ok());
  EXPECT_EQ(session->length(), 64U);
  const std::string rest = tell(*session, {}, 20).text;
  const auto whole = engine->create_session();
  EXPECT_FALSE(whole.has_value());  // one at a time
  ASSERT_TRUE(session->truncate(0).ok());
  const std::string all =
      tell(*session, prompt, 64 - static_cast<std::uint32_t>(prompt.size()) + 21).text;
  EXPECT_EQ(first + rest, all);
}

// A file of a bare session, in memory.
class SessionDamageTest : public testing::Test {
 protected:
  void SetUp() override {
    BareSession session;
    const std::vector<TokenId> tokens = session.fill(70);
    ASSERT_TRUE(write_session_file(path("bare"), system_file_ops(), session.identity(),
                                   session.place(), tokens, 7, {})
                    .ok());
    bytes_ = bytes_of_file(path("bare"));
  }

  // Loads what is a file no more; the sequence stays empty and its pages can be computed with.
  Status load(ByteSpan bytes, BareSession& into, SessionReadOptions options = {}) {
    MemoryFileOps ops(bytes);
    const File file = File::open("s.session", ops).value();
    SessionText text;
    Status status = read_session_file(file, into.identity(), into.place(), options, text);
    if (status.ok()) return status;
    EXPECT_THAT(status.message(), testing::StartsWith("s.session: "));
    EXPECT_EQ(into.kv().n_slots(into.sequence()), 0U);
    EXPECT_EQ(into.kv().n_free_pages(), into.kv().limits().n_pages);
    EXPECT_TRUE(text.rows.empty() && text.chat.empty() && text.pending_token == kNoToken);
    return status;
  }
  void expect_refused(ByteSpan bytes, StatusCode code, const std::string& word) {
    const Status status = load(bytes, into_);
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(word));
  }

  template <typename T>
  std::vector<std::byte> with(std::size_t at, T value, bool repaired = true) const {
    std::vector<std::byte> bytes = bytes_;
    store_le(MutableByteSpan(bytes), at, value);
    if (repaired) repair(bytes);
    return bytes;
  }

  std::vector<std::byte> bytes_;
  BareSession into_;
};

TEST_F(SessionDamageTest, TheFileItselfIsReadAsItWasWritten) {
  BareSession written;
  const std::vector<TokenId> tokens = written.fill(70);
  MemoryFileOps ops(bytes_);
  SessionText text;
  const File file = File::open("s.session", ops).value();
  ASSERT_TRUE(read_session_file(file, into_.identity(), into_.place(), {}, text).ok());
  EXPECT_EQ(text.rows, tokens);
  EXPECT_EQ(text.pending_token, 7U);
  EXPECT_EQ(into_.kv().n_slots(into_.sequence()), 70U);
  // The first page is full, so it is there to the byte.
  const auto page_bytes = static_cast<std::size_t>(kBareShape.page_bytes());
  EXPECT_EQ(std::memcmp(into_.pages().data(), written.pages().data(), page_bytes), 0);
}

TEST_F(SessionDamageTest, EveryPrefixIsRefused) {
  for (std::size_t n = 0; n < bytes_.size(); ++n) {
    const Status status = load(ByteSpan(bytes_).first(n), into_);
    ASSERT_EQ(status.code(), StatusCode::kCorrupt) << n;
  }
  std::vector<std::byte> longer = bytes_;
  longer.push_back(std::byte{0});
  expect_refused(longer, StatusCode::kCorrupt, "truncated or has bytes added");
}

TEST_F(SessionDamageTest, EveryFlippedBitIsFoundWhereItIs) {
  const std::vector<std::string> names = {"section model",  "section cache",     "section policy",
                                          "section tokens", "section positions", "section layer_0",
                                          "section layer_1"};
  std::size_t section = 0;
  for (std::size_t at = 0; at < bytes_.size(); ++at) {
    while (section < names.size() && at >= section_at(bytes_, section + 1)) ++section;
    const unsigned bit = static_cast<unsigned>(at * 5 + at / 64) % 8;
    std::vector<std::byte> bytes = bytes_;
    bytes[at] ^= static_cast<std::byte>(1U << bit);
    const Status status = load(bytes, into_);
    ASSERT_FALSE(status.ok()) << at;
    ASSERT_TRUE(status.code() == StatusCode::kCorrupt || status.code() == StatusCode::kUnsupported)
        << at << ": " << status.message();
    if (at >= section_at(bytes_, 0)) {
      ASSERT_THAT(status.message(), AllOf(HasSubstr(names[section]), HasSubstr("CRC"))) << at;
    }
  }
}

TEST_F(SessionDamageTest, WhatAFileClaimsIsNotBelieved) {
  expect_refused(with(layout::header_at::kByteOrder, __builtin_bswap32(layout::kByteOrder)),
                 StatusCode::kUnsupported, "big-endian");
  expect_refused(with(layout::header_at::kVersion, 2U), StatusCode::kUnsupported,
                 "version 2; this program reads version 1");
  expect_refused(with(layout::header_at::kVersion, 0x01000000U, false), StatusCode::kUnsupported,
                 "version");
  for (const std::uint32_t n : {0U, 1U, 6U, 8U, 500U, 4161U, 0xFFFFFFFFU}) {
    std::vector<std::byte> bytes = bytes_;
    store_le(MutableByteSpan(bytes), layout::header_at::kSections, n);
    if (n < 100) repair(bytes);
    EXPECT_FALSE(load(bytes, into_).ok()) << n;
    EXPECT_FALSE(load(bytes, into_, {.verify_crc = false}).ok()) << n;
  }
  const std::size_t tokens = section_at(bytes_, 3);
  expect_refused(with(tokens, 0xFFFFFFFFU), StatusCode::kCorrupt, "section tokens");
  expect_refused(with(tokens, std::uint64_t{0x7FFFFFFF7FFFFFFFU}), StatusCode::kCorrupt,
                 "section tokens: 292 bytes, expected");
  expect_refused(with(tokens, std::uint64_t{0}), StatusCode::kCorrupt, "section tokens");
  expect_refused(with(tokens + 8, 100U), StatusCode::kCorrupt, "token 100 at index 0");
  const std::size_t positions = section_at(bytes_, 4);
  expect_refused(with(positions, 0xFFFFFFFFU), StatusCode::kCorrupt,
                 "4294967295 pages, expected 2");
  expect_refused(with(positions + 4, 64U), StatusCode::kCorrupt, "from slot 64, expected slot 0");
  expect_refused(with(positions + 12, 9U), StatusCode::kCorrupt,
                 "slot 1 holds position 9, expected 1");
  const std::size_t cache = section_at(bytes_, 1);
  expect_refused(with(cache, 3U), StatusCode::kCorrupt, "3 layers x 2 heads");
  expect_refused(with(cache + 16, 1U), StatusCode::kInvalidArgument, "for a long context");
  expect_refused(with(cache + 16, 2U), StatusCode::kCorrupt, "rotation 2");
  expect_refused(with(cache + 20, std::uint64_t{'6'}), StatusCode::kInvalidArgument,
                 "keys of type 6, expected 8");
  const std::size_t policy = section_at(bytes_, 2);
  std::vector<std::byte> bytes = bytes_;
  std::memcpy(bytes.data() + policy, "rings", 5);
  store_le(MutableByteSpan(bytes), policy + layout::kNameBytes, 128U);
  repair(bytes);
  expect_refused(bytes, StatusCode::kInvalidArgument, "rings (window 128, sinks 0, heavy 0)");
}

TEST_F(SessionDamageTest, SectionsOfTomorrowAreRefusedByName) {
  std::vector<std::byte> bytes = bytes_;
  std::memcpy(bytes.data() + entry_at(4), "treatment", 10);
  repair(bytes);
  expect_refused(bytes, StatusCode::kUnsupported, "section treatment, version 1: not known");
  bytes = with(entry_at(6) + layout::entry_at::kVersion, 2U);
  expect_refused(bytes, StatusCode::kUnsupported, "section layer_1, version 2: not known");
  bytes = bytes_;
  std::memcpy(bytes.data() + entry_at(5), "layer_1", 7);
  repair(bytes);
  expect_refused(bytes, StatusCode::kCorrupt, "section layer_1: appears twice");
  std::memcpy(bytes.data() + entry_at(5), "layer_9", 7);
  repair(bytes);
  expect_refused(bytes, StatusCode::kCorrupt, "section layer_0: is missing");
}

// A layer that is refused leaves no value behind that is no number.
TEST_F(SessionDamageTest, ValuesThatAreNoNumbersAreRefused) {
  const KvShape f32 = {.n_layers = 2,
                       .n_kv_heads = 1,
                       .head_dim = 16,
                       .k_type = KvType::kF32,
                       .v_type = KvType::kF32};
  BareSession from(f32);
  const std::vector<TokenId> tokens = from.fill(64);
  ASSERT_TRUE(write_session_file(path("f32"), system_file_ops(), from.identity(), from.place(),
                                 tokens, kNoToken, {})
                  .ok());
  std::vector<std::byte> bytes = bytes_of_file(path("f32"));
  store_le(MutableByteSpan(bytes), bytes.size() - 4, 0x7FC00000U);
  repair(bytes);
  BareSession into(f32);
  const Status status = load(bytes, into);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("section layer_1: page 0: values that are not finite"));
  for (std::size_t at = 0; at < into.pages().size(); at += 4) {
    ASSERT_NE(load_le<std::uint32_t>(into.pages(), at) & 0x7F800000U, 0x7F800000U) << at;
  }
}

}  // namespace
}  // namespace qsf
