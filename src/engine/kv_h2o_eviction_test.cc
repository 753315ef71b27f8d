// SPDX-License-Identifier: MIT
//
// Engines that keep heavy hitters and a window of keys and values, on small random models: logits
// against the definition, layer by layer, the promise that neither calls nor passes nor threads nor
// places nor what was cancelled or forgotten show in them, and memory that no text makes larger.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_impl.h"
#include "engine/testing/naive_model_test.h"
#include "ops/operator_observer.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing_support::AppendLogits;
using testing_support::CancelAtAttention;
using testing_support::largest_difference;
using testing_support::Logits;
using testing_support::naive_llama;
using testing_support::NaiveModelTest;

constexpr KvPolicyOptions kPolicy = {
    .policy = KvPolicy::kH2o, .window = 40, .sinks = 2, .heavy = 20};
constexpr std::size_t kEvictedTokens = 290;  // four blocks and a part of one
constexpr std::size_t kBlock = kEvictionBlock;

// Other logits, and numbers.
const auto kFarAway = testing::AllOf(testing::Gt(1e-2), testing::Lt(10.0));

class KvH2oEvictionTest : public NaiveModelTest {
 protected:
  void make_model(const ModelSpec& spec) { NaiveModelTest::make_model(spec, 1990); }
  static ModelSpec small_spec(std::uint32_t n_layers) { return naive_llama(n_layers, 2000); }
  static EngineOptions options(const KvPolicyOptions& policy = kPolicy) {
    EngineOptions options = exact_options(300);
    options.kv_policy = policy;
    return options;
  }
  Logits run(const EngineOptions& options, const std::vector<std::size_t>& sizes,
             std::size_t n = kEvictedTokens) const {
    return NaiveModelTest::run(options, sizes, n);
  }
};

// Behind one, two and three layers: hidden states are those of attention over window and heavy
// hitters in every layer, with those that the engine chose. Prompt rows, then generated ones.
TEST_F(KvH2oEvictionTest, EveryLayerAttendsToWindowAndHeavyHitters) {
  for (const std::uint32_t n_layers : {1U, 2U, 3U}) {
    make_model(small_spec(n_layers));
    const auto engine = open(options());
    const auto session = engine->create_session().value();
    std::map<std::tuple<std::size_t, std::uint32_t, std::uint32_t>, std::vector<std::int32_t>> sets;
    Logits got;
    for (std::size_t first = 0; first < kEvictedTokens; first += kBlock) {
      const std::size_t last = std::min(kEvictedTokens, first + kBlock);
      if (first < 3 * kBlock) {
        prefill(*session, first, last, got);
      } else {
        for (std::size_t i = first; i < last; ++i) step(*session, i, got);
      }
      for (std::uint32_t layer = 0; layer < n_layers; ++layer) {
        for (std::uint32_t head = 0; head < 2; ++head) {
          const auto members = engine->impl().h2o_eviction[0].members(layer, head);
          sets[{first / kBlock + 1, layer, head}] = {members.begin(), members.end()};
        }
      }
    }
    const auto sees = [&](std::uint32_t layer, std::uint32_t head, std::size_t i, std::size_t j) {
      const std::size_t block = i / kBlock;
      if (j + kPolicy.window >= block * kBlock) return true;
      const auto& set = sets[{block, layer, head}];
      return std::ranges::find(set, static_cast<std::int32_t>(j)) != set.end();
    };
    const auto want =
        model_->logits({tokens_.begin(), tokens_.begin() + kEvictedTokens}, 300, {}, sees);
    ASSERT_EQ(got.size(), want.size());
    EXPECT_LE(largest_difference(got, want), 1e-4) << n_layers << " layers";
    // The sets matter: without them the same logits are far away.
    sets.clear();
    const auto without =
        model_->logits({tokens_.begin(), tokens_.begin() + kEvictedTokens}, 300, {}, sees);
    EXPECT_THAT(largest_difference(got, without), kFarAway);
  }
}

TEST_F(KvH2oEvictionTest, CallsPassesAndThreadsDoNotShow) {
  make_model(small_spec(2));
  const Logits want = run(options(), {kBlock});
  for (const std::uint32_t rows_per_pass : {64U, 100U, 7U, 0U}) {
    for (const unsigned n_threads : {1U, 3U}) {
      EngineOptions changed = options();
      changed.rows_per_pass = rows_per_pass;
      changed.n_threads = n_threads;
      EXPECT_EQ(run(changed, {kEvictedTokens}), want) << rows_per_pass << " rows";
      EXPECT_EQ(run(changed, {1, 70, 3, 131}), want) << rows_per_pass << " rows";
    }
  }
  EngineOptions spilled = options();
  spilled.kv_spill_path = path_ + ".kv";
  spilled.rows_per_pass = 50;
  EXPECT_EQ(run(spilled, {kEvictedTokens}), want);
}

TEST_F(KvH2oEvictionTest, WhatIsAllKeptIsFullAttention) {
  make_model(small_spec(2));
  const Logits full = run(options({}), {kEvictedTokens});
  std::vector<std::vector<double>> want;
  for (const auto& row : full) want.emplace_back(row.begin(), row.end());
  for (const KvPolicyOptions& policy :
       {KvPolicyOptions{.policy = KvPolicy::kH2o, .window = 300, .sinks = 2, .heavy = 20},
        KvPolicyOptions{.policy = KvPolicy::kH2o, .window = 40, .sinks = 2, .heavy = 260}}) {
    EXPECT_LE(largest_difference(run(options(policy), {kEvictedTokens}), want), 1e-5);
  }
  EXPECT_THAT(largest_difference(run(options(), {kEvictedTokens}), want), kFarAway);
}

// Planned, and so taken: the arena of an engine never grows.
TEST_F(KvH2oEvictionTest, MemoryDoesNotGrowWithTheText) {
  make_model(small_spec(2));
  EngineOptions changed = options();
  changed.rows_per_pass = 64;
  const auto bytes_of = [&](std::uint32_t context, const char* region) {
    changed.max_context = context;
    const EnginePlan plan = Engine::plan_file(path_, changed).value();
    const Region* found = plan.memory.find(region);
    EXPECT_NE(found, nullptr) << region;
    return found == nullptr ? 0 : found->bytes;
  };
  for (const char* region : {"h2o_eviction", "kv_cache", "kv_tables", "scratch"}) {
    EXPECT_EQ(bytes_of(1000, region), bytes_of(2000, region)) << region;
  }
  // 1,990 positions through 4 pages and 20 slots.
  changed.max_context = 2000;
  const auto engine = open(changed);
  EXPECT_EQ(engine->impl().kv->limits().n_pages, 4U);
  const Logits logits = run(changed, {500}, tokens_.size());
  for (const float logit : logits.back()) EXPECT_TRUE(std::isfinite(logit));
}

TEST_F(KvH2oEvictionTest, ForgottenRowsAreComputedAgain) {
  make_model(small_spec(2));
  EngineOptions changed = options();
  changed.rows_per_pass = 48;  // far less is held than what is forgotten
  expect_truncation_leaves_no_trace(changed, {289, 260, 256, 255, 70, 3, 0},
                                    run(options(), {kEvictedTokens}));
}

TEST_F(KvH2oEvictionTest, CancelledCallsLeaveNoTrace) {
  make_model(small_spec(3));
  EngineOptions changed = options();
  changed.rows_per_pass = 50;
  expect_no_trace_of_cancelling(changed, {0, 30, 128, 200}, {1, 2, 5},
                                run(options(), {kEvictedTokens}));
}

// A generated row that is cancelled is taken back with its block, whose rows are prompt rows then.
TEST_F(KvH2oEvictionTest, GeneratedRowsAreScoredAndCanBeCancelled) {
  make_model(small_spec(2));
  const auto turns = [&](std::uint32_t rows_per_pass, int cancel_at) {
    CancelAtAttention canceller;
    EngineOptions changed = options();
    changed.observer = &canceller;
    changed.rows_per_pass = rows_per_pass;
    const auto engine = open(changed);
    canceller.engine = engine.get();
    const auto session = engine->create_session().value();
    Logits got;
    prefill(*session, 0, 128, got);
    if (cancel_at > 0) {
      canceller.n_left = cancel_at;
      EXPECT_EQ(session->step(tokens_[128], nullptr).code(), StatusCode::kCancelled);
      EXPECT_EQ(session->length(), 128U);
    }
    for (std::size_t i = 128; i < 200; ++i) step(*session, i, got);
    prefill(*session, 200, kEvictedTokens, got);
    EXPECT_EQ(engine->impl().h2o_eviction[0].scored_end(1), kEvictedTokens);
    return got;
  };
  const Logits want = turns(64, 0);
  EXPECT_EQ(turns(30, 0), want);
  EXPECT_EQ(turns(30, 1), want);
  EXPECT_EQ(turns(64, 2), want);
}

TEST_F(KvH2oEvictionTest, SessionsKeepTheirOwn) {
  make_model(small_spec(2));
  const Logits want = run(options(), {kEvictedTokens});
  EngineOptions two = options();
  two.n_sequences = 2;
  const auto engine = open(two);
  const auto first = engine->create_session().value();
  const auto second = engine->create_session().value();
  Logits got;
  Logits other;
  for (std::size_t at = 0; at < kEvictedTokens; at += 29) {
    prefill(*first, at, at + 29, got);
    AppendLogits sink(other);
    ASSERT_TRUE(second->prefill_rows(tokens(at + 300, at + 329), sink).ok());
  }
  EXPECT_EQ(got, want);
  EXPECT_NE(other, want);
}

TEST_F(KvH2oEvictionTest, TellsWhichPositionsAreVisible) {
  make_model(small_spec(2));
  const auto engine = open(options());
  const auto session = engine->create_session().value();
  Logits logits;
  prefill(*session, 0, 200, logits);
  std::vector<std::uint32_t> visible;
  ASSERT_TRUE(session->visible_positions(1, 1, visible).ok());
  // Twenty heavy ones before 192 - 40, then all; the sinks are the first.
  ASSERT_EQ(visible.size(), kPolicy.heavy + 48);
  EXPECT_TRUE(std::ranges::is_sorted(visible));
  EXPECT_EQ(visible[1], 1U);
  EXPECT_LT(visible[kPolicy.heavy - 1], 152U);
  EXPECT_EQ(visible[kPolicy.heavy], 152U);
  EXPECT_EQ(visible.back(), 199U);
  for (std::uint32_t m = 0; m < kPolicy.heavy; ++m) {
    const auto member = static_cast<std::uint32_t>(engine->impl().h2o_eviction[0].members(1, 1)[m]);
    EXPECT_TRUE(std::ranges::binary_search(visible, member));
  }
}

// Of attention, by the roles that passes began with.
class KernelNames final : public OperatorObserver {
 public:
  void pass_began(std::span<const Row> rows) override {
    generated_ = rows[0].role == RowRole::kGenerated;
  }
  void operator_ended(Backend&, const OperatorEvent& event) override {
    if (event.kind == OperatorKind::kAttend) names[generated_ ? 1 : 0].emplace(event.kernel);
  }
  std::set<std::string> names[2];

 private:
  bool generated_ = false;
};

TEST_F(KvH2oEvictionTest, RowsOfAnyRoleTakeTheTileKernels) {
  make_model(small_spec(1));
  KernelNames kernels;
  EngineOptions observed = options();
  observed.observer = &kernels;
  const auto engine = open(observed);
  const auto session = engine->create_session().value();
  Logits logits;
  prefill(*session, 0, 100, logits);
  step(*session, 100, logits);
  for (const auto& names : kernels.names) {
    ASSERT_EQ(names.size(), 1U);
    EXPECT_THAT(*names.begin(), HasSubstr("query_tile"));
  }
}

TEST_F(KvH2oEvictionTest, RefusesByName) {
  make_model(small_spec(1));
  const auto refusal = [&](const std::function<void(EngineOptions&)>& change) {
    EngineOptions changed = options();
    change(changed);
    const auto engine = Engine::open(path_, changed);
    return engine.has_value() ? std::string("opened") : std::string(engine.error().message());
  };
  EXPECT_THAT(refusal([](EngineOptions& o) { o.kv_policy.heavy = 1; }),
              HasSubstr("1 heavy positions for 2 sinks (window 40)"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.kv_policy.window = 0; }), HasSubstr("window of 0"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.attention = AttentionKind::kSparsePrefill; }),
              HasSubstr("attention h2o with kv policy h2o"));
  EXPECT_EQ(refusal([](EngineOptions& o) { o.kv_policy.heavy = 2; }), "opened");
  EXPECT_EQ(refusal([](EngineOptions& o) { o.kv_policy.heavy = o.kv_policy.sinks = 0; }), "opened");
}

TEST_F(KvH2oEvictionTest, RefusesModelsWithWindows) {
  ModelSpec spec = small_spec(2);
  spec.architecture = "mistral";
  spec.sliding_window = {0, 100};
  make_model(spec);
  const auto engine = Engine::open(path_, options());
  ASSERT_FALSE(engine.has_value());
  EXPECT_EQ(engine.error().code(), StatusCode::kUnsupported);
  EXPECT_THAT(engine.error().message(),
              HasSubstr("kv policy h2o: layer 1 of this model attends to the last 100 of 300"));
}

}  // namespace
}  // namespace qsf
