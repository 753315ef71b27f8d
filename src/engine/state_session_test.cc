// SPDX-License-Identifier: MIT
//
// Sessions of a model of which some layers have a state: the definition's logits, the same bits in
// pieces, with other sessions, forked, saved and cancelled, and what such a model refuses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "engine/engine_impl.h"
#include "engine/testing/naive_model_test.h"
#include "engine/testing/session_bytes.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing_support::AppendLogits;
using testing_support::bytes_of_file;
using testing_support::index_of;
using testing_support::Logits;
using testing_support::naive_llama;
using testing_support::NaiveModelTest;
using testing_support::repair;
using testing_support::section_at;

constexpr std::uint32_t kStateContext = 200;
constexpr std::size_t kStateTokens = 150;

ModelSpec naive_lfm2() {
  ModelSpec spec = naive_llama(5, kStateContext);
  spec.architecture = "lfm2";
  spec.layer_mixers = {1, 0, 1, 1, 0};
  spec.conv_taps = 4;
  return spec;
}

ModelSpec naive_scans() {
  ModelSpec spec = naive_llama(5, kStateContext);
  spec.architecture = "granitehybrid";
  spec.layer_mixers = {2, 0, 2, 2, 0};
  spec.conv_taps = 4;
  spec.mixer_heads = 4;
  spec.mixer_head_dim = 8;
  spec.mixer_state = 16;
  spec.mixer_groups = 2;
  return spec;
}

void give_experts(ModelSpec& spec) {
  spec.n_experts = 6;
  spec.n_experts_used = 2;
  spec.expert_ffn = 24;
  spec.expert_renormalised = true;
}

ModelSpec naive_lfm2_moe() {
  ModelSpec spec = naive_lfm2();
  spec.architecture = "lfm2moe";
  give_experts(spec);
  spec.expert_scoring = ExpertScoring::kSigmoid;
  spec.expert_layers = {0, 1, 1, 1, 1};
  return spec;
}

ModelSpec naive_scans_experts() {
  ModelSpec spec = naive_scans();
  spec.architecture = "granitemoehybrid";
  give_experts(spec);
  spec.shared_ffn = 40;
  return spec;
}

ModelSpec naive_delta_rules() {
  ModelSpec spec = naive_llama(5, kStateContext);
  spec.architecture = "qwen35";
  spec.layer_mixers = {3, 0, 3, 3, 0};
  spec.conv_taps = 4;
  spec.mixer_heads = 4;
  spec.mixer_head_dim = 8;
  spec.mixer_state = 16;
  spec.mixer_groups = 2;
  return spec;
}

// Each layer scans, attends or is an FFN.
ModelSpec naive_single_sublayers() {
  ModelSpec spec = naive_llama(7, kStateContext);
  spec.architecture = "nemotron_h";
  spec.layer_mixers = {2, 4, 0, 2, 4, 0, 2};
  spec.ffn_layers = {0, 1, 0, 0, 1, 0, 0};
  spec.conv_taps = 4;
  spec.mixer_heads = 4;
  spec.mixer_head_dim = 8;
  spec.mixer_state = 16;
  spec.mixer_groups = 2;
  spec.gated_ffn = false;
  spec.activation = Activation::kReluSquared;
  return spec;
}

// Each layer scans and attends.
ModelSpec naive_both() {
  ModelSpec spec = naive_llama(3, kStateContext);
  spec.architecture = "falcon-h1";
  spec.layer_mixers = {5, 5, 5};
  spec.conv_taps = 4;
  spec.mixer_heads = 4;
  spec.mixer_head_dim = 8;
  spec.mixer_state = 16;
  spec.mixer_groups = 2;
  return spec;
}

class StateModelTest : public NaiveModelTest {
 protected:
  void TearDown() override {
    NaiveModelTest::TearDown();
    std::filesystem::remove(saved());
  }
  static std::string saved() {
    return testing::TempDir() + "state_session_test." + std::to_string(::getpid());
  }
  static EngineOptions fast_options() {
    EngineOptions options = exact_options(kStateContext);
    options.exact = false;
    options.k_type = options.v_type = KvType::k8Bit;
    return options;
  }
  // Generated rows from token `first` on, after a prompt of those before it.
  Logits generate(Session& session, std::size_t first, std::size_t last) const {
    Logits logits;
    for (std::size_t i = first; i < last; ++i) step(session, i, logits);
    return logits;
  }
};

class StateSessionTest : public StateModelTest {
 protected:
  void SetUp() override { make_model(naive_lfm2(), kStateTokens); }
};

struct StateModel {
  const char* name;
  ModelSpec (*spec)();
  std::size_t n_values;        // of a layer's state, of which there are three
  std::size_t n_attending{2};  // layers
};

// Three rows of 32 columns; three of 32 + 2 * 2 * 16 and 4 heads of 8 columns of 16 values.
constexpr std::size_t kConvolutionValues = 3U * 32U;
constexpr std::size_t kScanValues = 3U * 96U + 4U * 8U * 16U;

void PrintTo(const StateModel& model, std::ostream* out) {
  *out << model.name;
}

class EveryStateTest : public StateModelTest, public testing::WithParamInterface<StateModel> {
 protected:
  void SetUp() override { make_model(GetParam().spec(), kStateTokens); }
};

INSTANTIATE_TEST_SUITE_P(
    All, EveryStateTest,
    testing::Values(StateModel{"convolutions", naive_lfm2, kConvolutionValues},
                    StateModel{"scans", naive_scans, kScanValues},
                    StateModel{"lfm2_experts", naive_lfm2_moe, kConvolutionValues},
                    StateModel{"scans_experts", naive_scans_experts, kScanValues},
                    StateModel{"delta_rules", naive_delta_rules, kScanValues},
                    StateModel{"single_sublayers", naive_single_sublayers, kScanValues},
                    StateModel{"scans_and_attention", naive_both, kScanValues, 3}),
    [](const auto& model) { return std::string(model.param.name); });

TEST_P(EveryStateTest, MatchesTheDefinition) {
  std::vector<std::vector<double>> want;
  const std::vector<std::uint32_t> text(tokens_.begin(), tokens_.end());
  want = model_->logits(text, kStateContext, {});
  EXPECT_LE(testing_support::largest_difference(
                run(exact_options(kStateContext), {70, 1, 33}, kStateTokens), want),
            1e-4);
}

TEST_P(EveryStateTest, APromptInPiecesGivesTheBitsOfTheWhole) {
  for (EngineOptions options : {exact_options(kStateContext), fast_options()}) {
    const Logits whole = run(options, {kStateTokens}, kStateTokens);
    for (const std::vector<std::size_t>& sizes :
         {std::vector<std::size_t>{1}, {2, 3}, {64}, {7, 1, 90}}) {
      EXPECT_EQ(run(options, sizes, kStateTokens), whole);
    }
    for (const std::uint32_t rows : {1U, 3U, 16U, 100U}) {
      options.rows_per_pass = rows;
      EXPECT_EQ(run(options, {kStateTokens}, kStateTokens), whole) << rows;
    }
    options.kv_spill_path = saved();
    EXPECT_EQ(run(options, {40, 9}, kStateTokens), whole);
  }
}

TEST_P(EveryStateTest, OtherSessionsAndForksDoNotShow) {
  EngineOptions options = fast_options();
  options.n_sequences = 4;
  const auto engine = open(options);
  const auto alone = engine->create_session().value();
  ASSERT_TRUE(alone->prefill(tokens(0, 20), nullptr).ok());
  const Logits want = generate(*alone, 20, 40);
  const auto other = engine->create_session().value();
  const auto first = engine->create_session().value();
  ASSERT_TRUE(other->prefill(tokens(60, 63), nullptr).ok());
  ASSERT_TRUE(first->prefill(tokens(0, 20), nullptr).ok());
  std::vector<std::unique_ptr<Session>> forks;
  Logits got[2];
  for (std::size_t i = 20; i < 40; ++i) {
    if (i == 30) {
      got[1] = got[0];
      forks.push_back(first->fork().value());
    }
    AppendLogits of_first(got[0]);
    AppendLogits of_fork(got[1]);
    std::vector<SessionToken> row = {{first.get(), tokens_[i], &of_first},
                                     {other.get(), tokens_[i + 50], nullptr}};
    if (!forks.empty()) row.push_back({forks[0].get(), tokens_[i], &of_fork});
    ASSERT_TRUE(engine->step_sessions(row).ok());
  }
  EXPECT_EQ(got[0], want);
  EXPECT_EQ(got[1], want);
}

TEST_P(EveryStateTest, AFreedSequenceLeavesNothing) {
  const auto engine = open(exact_options(kStateContext));
  Logits want;
  prefill(*engine->create_session().value(), 0, 30, want);
  Logits got;
  prefill(*engine->create_session().value(), 0, 30, got);
  EXPECT_EQ(got, want);
}

TEST_P(EveryStateTest, CancellingLeavesNoTrace) {
  EngineOptions options = exact_options(kStateContext);
  const Logits want = run(options, {kStateTokens}, kStateTokens);
  options.rows_per_pass = 16;
  expect_no_trace_of_cancelling(options, {0, 1, 50}, {1, 2, 3, 9}, want);
}

TEST_F(StateSessionTest, ReturnsToKeptPointsAlone) {
  EngineOptions options = exact_options(kStateContext);
  const Logits want = run(options, {kStateTokens}, kStateTokens);
  const auto engine = open(options);
  const auto session = engine->create_session().value();
  Logits ignored;
  prefill(*session, 0, 20, ignored);
  const Logits generated = generate(*session, 20, 28);
  EXPECT_EQ(session->longest_kept(28), 28U);
  EXPECT_EQ(session->longest_kept(27), 27U) << "before the last pass";
  EXPECT_EQ(session->longest_kept(26), 20U) << "the prompt's end";
  EXPECT_EQ(session->longest_kept(19), 0U);
  const Status refused = session->truncate(24);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(),
            "cannot keep 24 tokens of 28: layers of this model have a state, which returns to kept "
            "points alone; keep 20 and recompute the others, or fork the session where it should "
            "return to");
  EXPECT_EQ(session->length(), 28U);
  ASSERT_TRUE(session->truncate(20).ok());
  EXPECT_EQ(generate(*session, 20, 28), generated);
  ASSERT_TRUE(session->truncate(20).ok());
  Logits rest;
  prefill(*session, 20, kStateTokens, rest);
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), want.begin() + 20, want.end()));
  EXPECT_EQ(session->longest_kept(kStateTokens - 1), 20U);
  expect_truncation_leaves_no_trace(options, {0}, want);
}

TEST_P(EveryStateTest, ASavedSessionGoesOnAsIfItHadNeverStopped) {
  for (const EngineOptions& options : {exact_options(kStateContext), fast_options()}) {
    Logits want;
    {
      const auto engine = open(options);
      const auto session = engine->create_session().value();
      prefill(*session, 0, 70, want);
      want = generate(*session, 70, 75);
      ASSERT_TRUE(session->save(saved()).ok());
      want = generate(*session, 75, 80);
      prefill(*session, 80, 100, want);
    }
    const auto engine = open(options);
    const auto session = engine->create_session().value();
    const Status loaded = session->load(saved());
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    EXPECT_EQ(session->longest_kept(74), 0U);
    Logits got = generate(*session, 75, 80);
    prefill(*session, 80, 100, got);
    EXPECT_EQ(got, want);
  }
}

TEST_F(StateSessionTest, DamagedStatesAreRefused) {
  const auto engine = open(exact_options(kStateContext));
  {
    const auto session = engine->create_session().value();
    ASSERT_TRUE(session->prefill(tokens(0, 9), nullptr).ok());
    ASSERT_TRUE(session->save(saved()).ok());
  }
  const std::vector<std::byte> good = bytes_of_file(saved());
  const std::size_t index = index_of(good, "states");
  const std::size_t at = section_at(good, index);
  const std::size_t n_bytes = section_at(good, index + 1) - at;
  EXPECT_EQ(n_bytes, 3U * 3U * 32U * sizeof(float)) << "three layers, three rows of 32 columns";
  const struct {
    std::function<void(std::vector<std::byte>&)> damage;
    const char* message;
  } cases[] = {
      {[&](std::vector<std::byte>& b) { b[at + 5] ^= std::byte{1}; }, "section states at offset"},
      {[&](std::vector<std::byte>& b) {
         store_le(b, at + 8, std::numeric_limits<float>::infinity());
         repair(b);
       },
       "section states: value 2 is not finite"},
      {[&](std::vector<std::byte>& b) {
         b[testing_support::entry_at(index)] = std::byte{'x'};  // "xtates"
         repair(b);
       },
       "section xtates, version 1: not known to this program"},
      {[&](std::vector<std::byte>& b) {
         const std::size_t bytes_at =
             testing_support::entry_at(index) + session_layout::entry_at::kBytes;
         store_le(b, bytes_at, std::uint64_t{n_bytes - 4});
         store_le(b, bytes_at + session_layout::kEntryBytes,
                  load_le<std::uint64_t>(b, bytes_at + session_layout::kEntryBytes) + 4);
         repair(b);
       },
       "section states: 1148 bytes, expected 1152"},
  };
  for (const auto& c : cases) {
    std::vector<std::byte> bytes = good;
    c.damage(bytes);
    std::ofstream(saved(), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    const auto session = engine->create_session().value();
    const Status status = session->load(saved());
    EXPECT_THAT(status.message(), HasSubstr(c.message));
    EXPECT_EQ(session->length(), 0U);
    // Nothing is left behind.
    Logits got;
    prefill(*session, 0, 9, got);
    EXPECT_EQ(got, run(exact_options(kStateContext), {9}, 9));
  }
}

TEST_P(EveryStateTest, StatesArePlanned) {
  EngineOptions options = exact_options(kStateContext);
  options.n_sequences = 3;
  const auto engine = open(options);
  const MemoryPlan& memory = engine->plan().memory;
  ASSERT_NE(memory.find("states"), nullptr);
  // Three layers, and three buffers of each sequence.
  EXPECT_EQ(memory.find("states")->bytes, 3U * 3U * (3U * GetParam().n_values) * sizeof(float));
  // Some layers have keys and values: of f32, 2 heads of 8 columns each.
  const std::uint64_t n_slots = std::uint64_t{engine->plan().n_kv_pages} * kKvPageSlots;
  EXPECT_EQ(memory.find("kv_cache")->bytes,
            n_slots * GetParam().n_attending * 2 * (2 * 8) * sizeof(float));
}

TEST_F(StateSessionTest, RefusesWhatAStateCannotDo) {
  const struct {
    std::function<void(EngineOptions&)> change;
    const char* message;
  } cases[] = {
      {[](EngineOptions& o) { o.kv_policy = {.policy = KvPolicy::kWindow, .window = 30}; },
       "kv policy window: this model has layers with a state, which holds every token; use full"},
      {[](EngineOptions& o) {
         o.kv_policy = {.policy = KvPolicy::kH2o, .window = 64, .heavy = 64};
       },
       "kv policy h2o: this model has layers with a state"},
      {[](EngineOptions& o) {
         o.attention = AttentionKind::kChunked;
         o.prompt_mask.chunk = 16;
       },
       "attention chunked: this model has layers with a state"},
      {[](EngineOptions& o) { o.attention = AttentionKind::kSymmetric; },
       "attention symmetric: this model has layers with a state"},
      {[](EngineOptions& o) { o.attention = AttentionKind::kSparsePrefill; },
       "attention h2o: this model has layers with a state"},
      {[](EngineOptions& o) { o.max_drafts = 2; },
       "speculation: this model has layers with a state that holds every token, rejected ones too; "
       "turn it off"},
  };
  for (const auto& c : cases) {
    EngineOptions options = exact_options(kStateContext);
    c.change(options);
    const auto engine = Engine::open(path_, options);
    ASSERT_FALSE(engine.has_value()) << c.message;
    EXPECT_EQ(engine.error().code(), StatusCode::kUnsupported) << engine.error().message();
    EXPECT_THAT(engine.error().message(), HasSubstr(c.message));
  }
  const auto engine = open(exact_options(kStateContext));
  const auto session = engine->create_session().value();
  std::vector<std::uint32_t> positions;
  EXPECT_TRUE(session->visible_positions(1, 0, positions).ok());
  EXPECT_THAT(session->visible_positions(2, 0, positions).message(),
              HasSubstr("layer 2 has no attention"));
}

TEST_F(StateSessionTest, AWindowOfLayersRunsAlone) {
  EngineOptions options = exact_options(kStateContext);
  options.rows_per_pass = 16;
  const auto engine = open(options);
  const std::size_t n = 40;
  std::vector<float> whole(n * 32);
  ASSERT_TRUE(engine->run_layers(tokens(0, n), 0, 5, whole).ok());
  std::vector<float> parts(n * 32);
  ASSERT_TRUE(engine->run_layers(tokens(0, n), 0, 1, parts).ok());
  ASSERT_TRUE(engine->run_layers(tokens(0, n), 1, 3, parts).ok());
  ASSERT_TRUE(engine->run_layers(tokens(0, n), 3, 5, parts).ok());
  EXPECT_EQ(parts, whole);
}

}  // namespace
}  // namespace qsf
