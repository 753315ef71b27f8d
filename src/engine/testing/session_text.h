// SPDX-License-Identifier: MIT
//
// For tests of session files: a text that is cut in two against one that never stopped.

#ifndef QSF_ENGINE_TESTING_SESSION_TEXT_H_
#define QSF_ENGINE_TESTING_SESSION_TEXT_H_

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/temporary_path.h"
#include "engine/engine.h"
#include "engine/testing/logits_log.h"
#include "engine/testing/session_bytes.h"
#include "engine/testing/streamed_model.h"

namespace qsf::testing_support {

inline constexpr std::uint32_t kIds = 400;  // tokens of these texts are among as many

// A file of the running test alone.
inline std::string path(const std::string& name) {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  return temporary_path(std::string(info->test_suite_name()) + "." + info->name() + "." + name);
}

inline std::unique_ptr<Engine> open(const StreamedModel& model, const EngineOptions& options) {
  auto engine = Engine::open(model.path(), options);
  EXPECT_TRUE(engine.has_value()) << engine.error().message();
  return std::move(engine).value();
}

// A prompt and three generated rows.
inline void begin_text(Session& session, std::size_t n_rows) {
  ASSERT_TRUE(session.prefill(random_tokens(n_rows - 3, 1, kIds), nullptr).ok());
  for (TokenId token = 20; token < 23; ++token) ASSERT_TRUE(session.step(token, nullptr).ok());
}
// Long enough that what is attended to is chosen anew from what was loaded.
inline std::vector<float> go_on(Session& session) {
  LogitsLog keep;
  EXPECT_TRUE(session.step(30, &keep).ok());
  EXPECT_TRUE(session.prefill_rows(random_tokens(200, 2, kIds), keep).ok());
  EXPECT_TRUE(session.step(31, &keep).ok());
  return keep.values;
}
inline void expect_bits(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0);
}

// A text that is saved after n_rows and goes on in other engines, in memory and in a file, has the
// bits of never having stopped; how a text was computed does not show in its file.
inline void expect_same_text(const StreamedModel& model, const EngineOptions& wanted,
                             std::size_t n_rows) {
  SCOPED_TRACE(std::string(kv_type_name(wanted.k_type)) + " keys, " + std::to_string(n_rows));
  std::vector<float> expected;
  {
    const auto engine = open(model, wanted);
    const auto session = engine->create_session().value();
    begin_text(*session, n_rows);
    const Status saved = session->save(path("a"));
    ASSERT_TRUE(saved.ok()) << saved.message();
    expected = go_on(*session);
    ASSERT_TRUE(session->save(path("end")).ok());
  }
  EngineOptions other = wanted;  // of which the numbers do not depend
  other.n_threads = 1;
  other.rows_per_pass = 33;
  other.max_context = 600;
  {
    const auto engine = open(model, other);
    const auto never_stopped = engine->create_session().value();
    begin_text(*never_stopped, n_rows);
    ASSERT_TRUE(never_stopped->save(path("b")).ok());
    EXPECT_EQ(bytes_of_file(path("a")), bytes_of_file(path("b")));
    expect_bits(go_on(*never_stopped), expected);
  }
  EngineOptions spilled = other;
  spilled.kv_spill_path = path("spill");
  for (const EngineOptions& target : {wanted, other, spilled}) {
    const auto engine = open(model, target);
    const auto session = engine->create_session().value();
    const Status loaded = session->load(path("a"));
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    EXPECT_EQ(session->length(), n_rows);
    ASSERT_TRUE(session->save(path("b")).ok());
    EXPECT_EQ(bytes_of_file(path("a")), bytes_of_file(path("b")));
    expect_bits(go_on(*session), expected);
    ASSERT_TRUE(session->save(path("b")).ok());
    EXPECT_EQ(bytes_of_file(path("end")), bytes_of_file(path("b")));
  }
}

// The same for every type of keys and values, and of keys alone.
inline void expect_same_text_of_every_type(const StreamedModel& model, EngineOptions wanted,
                                           std::size_t n_rows) {
  constexpr std::pair<KvType, KvType> kTypes[] = {{KvType::kF32, KvType::kF32},
                                                  {KvType::k8Bit, KvType::k8Bit},
                                                  {KvType::k4Bit, KvType::k4Bit},
                                                  {KvType::k2Bit, KvType::k2Bit},
                                                  {KvType::k8Bit, KvType::k4Bit}};
  for (const auto& [k_type, v_type] : kTypes) {
    wanted.k_type = k_type;
    wanted.v_type = v_type;
    expect_same_text(model, wanted, n_rows);
  }
}

// Rows that were forgotten together with those behind them are computed before they are saved: of
// 250 rows the first n, for each n of `kept`.
inline void expect_truncation_leaves_no_trace(const StreamedModel& model, EngineOptions wanted,
                                              const std::vector<std::size_t>& kept) {
  wanted.n_sequences = 2;
  const auto engine = open(model, wanted);
  const std::vector<TokenId> tokens = random_tokens(400, 1, kIds);
  const auto first = [&](std::size_t n) { return std::span(tokens).first(n); };
  for (const std::size_t n : kept) {
    const auto plain = engine->create_session().value();
    ASSERT_TRUE(plain->prefill(first(n), nullptr).ok());
    ASSERT_TRUE(plain->save(path("plain")).ok());
    const auto cut = engine->create_session().value();
    ASSERT_TRUE(cut->prefill(first(250), nullptr).ok());
    ASSERT_TRUE(cut->truncate(n).ok());
    const Status saved = cut->save(path("cut"));
    ASSERT_TRUE(saved.ok()) << saved.message();
    EXPECT_EQ(cut->length(), n);
    EXPECT_EQ(bytes_of_file(path("plain")), bytes_of_file(path("cut")));
    EXPECT_EQ(go_on(*cut), go_on(*plain));
  }
}

}  // namespace qsf::testing_support

#endif  // QSF_ENGINE_TESTING_SESSION_TEXT_H_
