// SPDX-License-Identifier: MIT
//
// Engines that keep heavy hitters and a window of keys and values, on small random models: logits
// against the definition, layer by layer, the promise that neither calls nor passes nor threads nor
// places nor what was cancelled or forgotten show in them, and memory that no text makes larger.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_impl.h"
#include "model/testing/naive_model.h"
#include "ops/operator_observer.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing_support::NaiveModel;

constexpr KvPolicyOptions kPolicy = {
    .policy = KvPolicy::kH2o, .window = 40, .sinks = 2, .heavy = 20};
constexpr std::uint32_t kVocab = 90;
constexpr std::size_t kTokens = 290;  // four blocks and a part of one
constexpr std::size_t kBlock = kHeavyBlock;

ModelSpec small_spec(std::uint32_t n_layers) {
  ModelSpec s;
  s.architecture = "llama";
  s.n_layers = n_layers;
  s.hidden = 32;
  s.n_heads = 6;
  s.n_kv_heads = 2;
  s.head_dim = 8;
  s.n_vocab = kVocab;
  s.max_positions = 2000;
  s.ffn = 44;
  s.activation = Activation::kSilu;
  s.gated_ffn = true;
  s.norm = NormType::kRmsNorm;
  s.norm_epsilon = 0.01F;
  s.positions = PositionEncoding::kRope;
  return s;
}

using Logits = std::vector<std::vector<float>>;

class Collect final : public LogitsSink {
 public:
  explicit Collect(Logits& to) : to_(to), first_(to.size()) {}
  void consume(std::uint32_t row, std::uint32_t first_token,
               std::span<const float> logits) noexcept override {
    if (to_.size() <= first_ + row) to_.resize(first_ + row + 1, std::vector<float>(kVocab));
    std::copy(logits.begin(), logits.end(), to_[first_ + row].begin() + first_token);
  }

 private:
  Logits& to_;
  std::size_t first_;
};

// Cancels at the n-th attention.
class Canceller final : public OperatorObserver {
 public:
  void pass_began(std::span<const Row>) override {}
  void operator_ended(Backend&, const OperatorEvent& event) override {
    if (event.kind == OperatorKind::kAttend && n_left > 0 && --n_left == 0) engine->cancel();
  }
  int n_left = 0;
  Engine* engine = nullptr;
};

double largest_difference(const Logits& got, const std::vector<std::vector<double>>& want) {
  double largest = 0;
  double worst = 0;
  for (std::size_t row = 0; row < want.size(); ++row) {
    for (std::size_t i = 0; i < kVocab; ++i) {
      largest = std::max(largest, std::fabs(want[row][i]));
      worst = std::max(worst, std::fabs(static_cast<double>(got[row][i]) - want[row][i]));
    }
  }
  return worst / largest;
}

class KvHeavyTest : public testing::Test {
 protected:
  void make_model(const ModelSpec& spec) {
    path_ = testing::TempDir() + "qsf_kv_heavy_" +
            testing::UnitTest::GetInstance()->current_test_info()->name() + ".qsf";
    model_.emplace(spec, 5);
    ASSERT_TRUE(model_->write(path_).ok());
    tokens_.clear();
    for (std::size_t i = 0; i < 1990; ++i) {
      tokens_.push_back(static_cast<TokenId>((i * i * 31 + 7 * i + 3) % kVocab));
    }
  }
  void TearDown() override { std::filesystem::remove(path_); }

  EngineOptions options(const KvPolicyOptions& policy = kPolicy) const {
    EngineOptions options;
    options.n_threads = 2;
    options.max_context = 300;
    options.k_type = KvType::kF32;
    options.v_type = KvType::kF32;
    options.exact = true;
    options.kv_policy = policy;
    return options;
  }
  std::unique_ptr<Engine> open(const EngineOptions& options) const {
    auto engine = Engine::open(path_, options);
    EXPECT_TRUE(engine.has_value()) << engine.error().message();
    return std::move(*engine);
  }
  std::span<const TokenId> tokens(std::size_t first, std::size_t last) const {
    return std::span(tokens_).subspan(first, last - first);
  }
  void prefill(Session& session, std::size_t first, std::size_t last, Logits& logits) const {
    Collect sink(logits);
    const Status status = session.prefill_rows(tokens(first, last), sink);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  void step(Session& session, std::size_t token, Logits& logits) const {
    Collect sink(logits);
    const Status status = session.step(tokens_[token], &sink);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  // The logits of every row, in calls of `sizes` in turns.
  Logits run(const EngineOptions& options, const std::vector<std::size_t>& sizes,
             std::size_t n = kTokens) const {
    const auto engine = open(options);
    const auto session = engine->create_session().value();
    Logits logits;
    for (std::size_t done = 0, call = 0; done < n; ++call) {
      const std::size_t size = std::min(sizes[call % sizes.size()], n - done);
      prefill(*session, done, done + size, logits);
      done += size;
    }
    return logits;
  }

  std::string path_;
  std::optional<NaiveModel> model_;
  std::vector<TokenId> tokens_;
};

// Behind one, two and three layers: hidden states are those of attention over window and heavy
// hitters in every layer, with those that the engine chose. Prompt rows, then generated ones.
TEST_F(KvHeavyTest, EveryLayerAttendsToWindowAndHeavyHitters) {
  for (const std::uint32_t n_layers : {1U, 2U, 3U}) {
    make_model(small_spec(n_layers));
    const auto engine = open(options());
    const auto session = engine->create_session().value();
    std::map<std::tuple<std::size_t, std::uint32_t, std::uint32_t>, std::vector<std::int32_t>> sets;
    Logits got;
    for (std::size_t first = 0; first < kTokens; first += kBlock) {
      const std::size_t last = std::min(kTokens, first + kBlock);
      if (first < 3 * kBlock) {
        prefill(*session, first, last, got);
      } else {
        for (std::size_t i = first; i < last; ++i) step(*session, i, got);
      }
      for (std::uint32_t layer = 0; layer < n_layers; ++layer) {
        for (std::uint32_t head = 0; head < 2; ++head) {
          const auto members = engine->impl().heavy[0].members(layer, head);
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
    const auto want = model_->logits({tokens_.begin(), tokens_.begin() + kTokens}, 300, {}, sees);
    ASSERT_EQ(got.size(), want.size());
    EXPECT_LE(largest_difference(got, want), 1e-4) << n_layers << " layers";
    // The sets matter: without them the same logits are far away.
    sets.clear();
    EXPECT_GT(largest_difference(
                  got, model_->logits({tokens_.begin(), tokens_.begin() + kTokens}, 300, {}, sees)),
              1e-2);
  }
}

TEST_F(KvHeavyTest, CallsPassesAndThreadsDoNotShow) {
  make_model(small_spec(2));
  const Logits want = run(options(), {kBlock});
  for (const std::uint32_t rows_per_pass : {64U, 100U, 7U, 0U}) {
    for (const unsigned n_threads : {1U, 3U}) {
      EngineOptions changed = options();
      changed.rows_per_pass = rows_per_pass;
      changed.n_threads = n_threads;
      EXPECT_EQ(run(changed, {kTokens}), want) << rows_per_pass << " rows";
      EXPECT_EQ(run(changed, {1, 70, 3, 131}), want) << rows_per_pass << " rows";
    }
  }
  EngineOptions spilled = options();
  spilled.kv_spill_path = path_ + ".kv";
  spilled.rows_per_pass = 50;
  EXPECT_EQ(run(spilled, {kTokens}), want);
}

TEST_F(KvHeavyTest, WhatIsAllKeptIsFullAttention) {
  make_model(small_spec(2));
  const Logits full = run(options({}), {kTokens});
  std::vector<std::vector<double>> want;
  for (const auto& row : full) want.emplace_back(row.begin(), row.end());
  for (const KvPolicyOptions& policy :
       {KvPolicyOptions{.policy = KvPolicy::kH2o, .window = 300, .sinks = 2, .heavy = 20},
        KvPolicyOptions{.policy = KvPolicy::kH2o, .window = 40, .sinks = 2, .heavy = 260}}) {
    EXPECT_LE(largest_difference(run(options(policy), {kTokens}), want), 1e-5);
  }
  EXPECT_GT(largest_difference(run(options(), {kTokens}), want), 1e-2);
}

// Planned, and so taken: the arena of an engine never grows.
TEST_F(KvHeavyTest, MemoryDoesNotGrowWithTheText) {
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
  for (const char* region : {"heavy_hitters", "kv_cache", "kv_tables", "scratch"}) {
    EXPECT_EQ(bytes_of(1000, region), bytes_of(2000, region)) << region;
  }
  // 1,990 positions through 5 pages and 20 slots.
  changed.max_context = 2000;
  const auto engine = open(changed);
  EXPECT_EQ(engine->impl().kv->limits().n_pages, 4U);
  const Logits logits = run(changed, {500}, tokens_.size());
  for (const float logit : logits.back()) EXPECT_TRUE(std::isfinite(logit));
}

TEST_F(KvHeavyTest, ForgottenRowsAreComputedAgain) {
  make_model(small_spec(2));
  const Logits want = run(options(), {kTokens});
  EngineOptions changed = options();
  changed.rows_per_pass = 48;  // far less is held than what is forgotten
  const auto engine = open(changed);
  const auto session = engine->create_session().value();
  for (const std::size_t keep : {289U, 260U, 256U, 255U, 70U, 3U, 0U}) {
    Logits all;
    prefill(*session, session->length(), kTokens, all);
    ASSERT_EQ(session->longest_kept(keep), keep);
    ASSERT_TRUE(session->truncate(keep).ok());
    ASSERT_EQ(session->length(), keep);
    Logits rest;
    prefill(*session, keep, kTokens, rest);
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), want.begin() + static_cast<long>(keep)))
        << "kept " << keep;
    ASSERT_TRUE(session->truncate(0).ok());
  }
}

TEST_F(KvHeavyTest, CancelledCallsLeaveNoTrace) {
  make_model(small_spec(3));
  const Logits want = run(options(), {kTokens});
  Canceller canceller;
  EngineOptions observed = options();
  observed.observer = &canceller;
  observed.rows_per_pass = 50;
  const auto engine = open(observed);
  canceller.engine = engine.get();
  for (const std::size_t before : {0U, 30U, 128U, 200U}) {
    for (const int n : {1, 2, 5}) {
      const auto session = engine->create_session().value();
      Logits got;
      if (before > 0) prefill(*session, 0, before, got);
      canceller.n_left = n;
      Logits ignored;
      Collect sink(ignored);
      EXPECT_EQ(session->prefill_rows(tokens(before, kTokens), sink).code(),
                StatusCode::kCancelled);
      EXPECT_EQ(session->length(), before);
      prefill(*session, before, kTokens, got);
      EXPECT_EQ(got, want) << before << " rows before, cancelled at attention " << n;
    }
  }
}

// A generated row that is cancelled is taken back with its block, whose rows are prompt rows then.
TEST_F(KvHeavyTest, GeneratedRowsAreScoredAndCanBeCancelled) {
  make_model(small_spec(2));
  const auto turns = [&](std::uint32_t rows_per_pass, int cancel_at) {
    Canceller canceller;
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
    prefill(*session, 200, kTokens, got);
    EXPECT_EQ(engine->impl().heavy[0].scored_end(1), kTokens);
    return got;
  };
  const Logits want = turns(64, 0);
  EXPECT_EQ(turns(30, 0), want);
  EXPECT_EQ(turns(30, 1), want);
  EXPECT_EQ(turns(64, 2), want);
}

TEST_F(KvHeavyTest, SessionsKeepTheirOwn) {
  make_model(small_spec(2));
  const Logits want = run(options(), {kTokens});
  EngineOptions two = options();
  two.n_sequences = 2;
  const auto engine = open(two);
  const auto first = engine->create_session().value();
  const auto second = engine->create_session().value();
  Logits got;
  Logits other;
  for (std::size_t at = 0; at < kTokens; at += 29) {
    prefill(*first, at, at + 29, got);
    Collect sink(other);
    ASSERT_TRUE(second->prefill_rows(tokens(at + 300, at + 329), sink).ok());
  }
  EXPECT_EQ(got, want);
  EXPECT_NE(other, want);
}

TEST_F(KvHeavyTest, TellsWhichPositionsAreVisible) {
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
    const auto member = static_cast<std::uint32_t>(engine->impl().heavy[0].members(1, 1)[m]);
    EXPECT_TRUE(std::ranges::binary_search(visible, member));
  }
}

TEST_F(KvHeavyTest, RefusesByName) {
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
  EXPECT_THAT(refusal([](EngineOptions& o) { o.attention = AttentionKind::kH2o; }),
              HasSubstr("attention h2o with kv policy h2o"));
  EXPECT_EQ(refusal([](EngineOptions& o) { o.kv_policy.heavy = 2; }), "opened");
  EXPECT_EQ(refusal([](EngineOptions& o) { o.kv_policy.heavy = o.kv_policy.sinks = 0; }), "opened");
}

TEST_F(KvHeavyTest, RefusesModelsWithWindows) {
  ModelSpec spec = small_spec(2);
  spec.architecture = "mistral";
  spec.sliding_window = {0, 100};
  make_model(spec);
  const auto engine = Engine::open(path_, options());
  ASSERT_FALSE(engine.has_value());
  EXPECT_EQ(engine.error().code(), StatusCode::kUnsupported);
  EXPECT_THAT(engine.error().message(),
              HasSubstr("kv policy h2o: layer 1 of this model sees the last 100 of 300"));
}

}  // namespace
}  // namespace qsf
