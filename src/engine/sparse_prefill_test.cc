// SPDX-License-Identifier: MIT
//
// Engines whose prompts attend to chunks and memory sets, on small random models: logits against
// the definition, layer by layer, and the promise that neither calls nor passes nor threads nor
// what was cancelled or forgotten show in them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_impl.h"
#include "engine/testing/naive_model_test.h"
#include "ops/operator_observer.h"

namespace qsf {
namespace {

using testing::HasSubstr;
using testing_support::largest_difference;
using testing_support::Logits;
using testing_support::naive_llama;
using testing_support::NaiveModelTest;

constexpr SparsePrefillOptions kOptions = {.local = 5, .heavy = 6, .chunk = 16, .sinks = 2};
constexpr std::size_t kSparseTokens = 57;  // three chunks and a part of a tile

class SparsePrefillTest : public NaiveModelTest {
 protected:
  void make_model(const ModelSpec& spec) { NaiveModelTest::make_model(spec, kSparseTokens); }
  static ModelSpec small_spec(std::uint32_t n_layers) { return naive_llama(n_layers, 96); }
  static EngineOptions options(AttentionKind attention = AttentionKind::kSparsePrefill) {
    EngineOptions options = exact_options(80);
    options.attention = attention;
    options.sparse_prefill = kOptions;
    return options;
  }
  Logits run(const EngineOptions& options, const std::vector<std::size_t>& sizes) const {
    return NaiveModelTest::run(options, sizes, kSparseTokens);
  }
};

// Keeps the residual stream behind every layer, by layer and position.
class HiddenLog final : public OperatorObserver {
 public:
  void pass_began(std::span<const Row> rows) override {
    first_ = static_cast<std::size_t>(rows.front().position);
  }
  // The last product of a layer adds to the stream; its matrix may come in several products.
  void operator_ended(Backend& backend, const OperatorEvent& event) override {
    if (event.kind == OperatorKind::kAttend) layer_ = event.layer;
    if (event.kind != OperatorKind::kDown) return;
    if (hidden.size() <= layer_) hidden.resize(layer_ + 1, Logits(kSparseTokens));
    for (std::uint32_t row = 0; row < event.n_rows; ++row) {
      const std::span<const float> values = backend.read_row(event.product->epilogue.add_to, row);
      hidden[layer_][first_ + row].assign(values.begin(), values.end());
    }
  }
  std::vector<Logits> hidden;

 private:
  std::size_t first_ = 0;
  std::uint32_t layer_ = 0;
};

// Hidden states of later chunks are those of attention over the union, behind every layer and in
// the logits, with the memory sets that the engine chose.
TEST_F(SparsePrefillTest, EveryLayerAttendsToChunkAndMemorySet) {
  constexpr std::uint32_t kLayers = 3;
  make_model(small_spec(kLayers));
  HiddenLog log;
  EngineOptions observed = options();
  observed.observer = &log;
  const auto engine = open(observed);
  const auto session = engine->create_session().value();
  std::map<std::tuple<std::size_t, std::uint32_t, std::uint32_t>, std::vector<std::int32_t>> sets;
  Logits got;
  for (std::size_t first = 0; first < kSparseTokens; first += kOptions.chunk) {
    prefill(*session, first, std::min<std::size_t>(kSparseTokens, first + kOptions.chunk), got);
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      for (std::uint32_t head = 0; head < 2; ++head) {
        const auto members = engine->impl().sparse_prefill[0].members(layer, head);
        sets[{first / kOptions.chunk + 1, layer, head}] = {members.begin(), members.end()};
      }
    }
  }
  const auto sees = [&](std::uint32_t layer, std::uint32_t head, std::size_t i, std::size_t j) {
    const std::size_t chunk = i / kOptions.chunk;
    if (j / kOptions.chunk == chunk) return true;
    return std::ranges::binary_search(sets[{chunk, layer, head}], static_cast<std::int32_t>(j));
  };
  std::vector<std::vector<std::vector<double>>> hidden;
  const auto logits = model_->logits({tokens_.begin(), tokens_.end()}, 80, {}, sees, &hidden);
  ASSERT_EQ(log.hidden.size(), kLayers);
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_LE(largest_difference(log.hidden[layer], hidden[layer]), 1e-4) << "layer " << layer;
  }
  EXPECT_LE(largest_difference(got, logits), 1e-4);
}

// A session says what a row appended next would see: the memory set, then the open chunk.
TEST_F(SparsePrefillTest, TellsWhichPositionsAreVisible) {
  make_model(small_spec(2));
  const auto engine = open(options());
  const auto session = engine->create_session().value();
  Logits ignored;
  std::vector<std::uint32_t> visible;
  prefill(*session, 0, 10, ignored);
  ASSERT_TRUE(session->visible_positions(1, 0, visible).ok());
  EXPECT_THAT(visible, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  prefill(*session, 10, 35, ignored);
  const auto members = engine->impl().sparse_prefill[0].members(1, 1);
  ASSERT_EQ(members.size(), kOptions.local + kOptions.heavy);
  std::vector<std::uint32_t> want(members.begin(), members.end());
  for (const std::uint32_t own : {32U, 33U, 34U}) want.push_back(own);
  ASSERT_TRUE(session->visible_positions(1, 1, visible).ok());
  EXPECT_EQ(visible, want);
  // What a truncation took along is computed again first.
  ASSERT_TRUE(session->truncate(20).ok());
  ASSERT_TRUE(session->visible_positions(1, 1, visible).ok());
  ASSERT_EQ(visible.size(), kOptions.local + kOptions.heavy + 4);
  EXPECT_EQ(visible.back(), 19U);
}

TEST_F(SparsePrefillTest, CallsPassesAndThreadsDoNotShow) {
  make_model(small_spec(2));
  const Logits want = run(options(), {kOptions.chunk});
  for (const std::uint32_t rows_per_pass : {16U, 32U, 7U, 0U}) {
    for (const unsigned n_threads : {1U, 2U, 3U}) {
      EngineOptions changed = options();
      changed.rows_per_pass = rows_per_pass;
      changed.n_threads = n_threads;
      EXPECT_EQ(run(changed, {kSparseTokens}), want) << rows_per_pass << " rows";
      EXPECT_EQ(run(changed, {1, 20, 3, 11}), want) << rows_per_pass << " rows";
    }
  }
}

TEST_F(SparsePrefillTest, OneChunkIsFullAttentionBitForBit) {
  make_model(small_spec(2));
  const Logits sparse = run(options(), {kSparseTokens});
  const Logits full = run(options(AttentionKind::kStandard), {kSparseTokens});
  const auto chunk = static_cast<std::ptrdiff_t>(kOptions.chunk);
  EXPECT_TRUE(std::equal(full.begin(), full.begin() + chunk, sparse.begin()));
  EXPECT_NE(full.back(), sparse.back());
  // A context of one chunk needs no state.
  EngineOptions small = options();
  small.max_context = kOptions.chunk;
  EXPECT_TRUE(open(small)->impl().sparse_prefill.empty());
}

TEST_F(SparsePrefillTest, ForgottenRowsAreComputedAgain) {
  make_model(small_spec(2));
  expect_truncation_leaves_no_trace(options(), {56, 50, 48, 47, 20, 3, 0},
                                    run(options(), {kSparseTokens}));
}

TEST_F(SparsePrefillTest, CancelledCallsLeaveNoTrace) {
  make_model(small_spec(3));
  EngineOptions changed = options();
  changed.rows_per_pass = 10;
  expect_no_trace_of_cancelling(changed, {0, 9, 16, 30}, {1, 2, 4, 8},
                                run(options(), {kSparseTokens}));
}

TEST_F(SparsePrefillTest, GeneratedRowsAreFollowedByAnotherTurn) {
  make_model(small_spec(2));
  const auto engine = open(options());
  const auto session = engine->create_session().value();
  Logits got;
  prefill(*session, 0, 20, got);
  for (std::size_t i = 20; i < 36; ++i) step(*session, i, got);
  EXPECT_EQ(engine->impl().sparse_prefill[0].chunk_index(), 2U);
  EXPECT_EQ(engine->impl().sparse_prefill[0].scored_end(0), 36U);
  prefill(*session, 36, kSparseTokens, got);
  EXPECT_EQ(engine->impl().sparse_prefill[0].chunk_index(), 3U);
  for (const float logit : got.back()) EXPECT_TRUE(std::isfinite(logit));
}

TEST_F(SparsePrefillTest, RefusesByName) {
  make_model(small_spec(1));
  const auto refusal = [&](const std::function<void(EngineOptions&)>& change) {
    EngineOptions changed = options();
    change(changed);
    const auto engine = Engine::open(path_, changed);
    return engine.has_value() ? std::string("opened") : engine.error().message();
  };
  const std::string sizes = refusal([](EngineOptions& o) { o.sparse_prefill.heavy = 11; });
  EXPECT_THAT(sizes, HasSubstr("5"));
  EXPECT_THAT(sizes, HasSubstr("11"));
  EXPECT_THAT(sizes, HasSubstr("16"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.sparse_prefill.sinks = 7; }), HasSubstr("sinks"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.attention = AttentionKind::kNone; }),
              HasSubstr("none"));
  EXPECT_EQ(refusal([](EngineOptions& o) { o.sparse_prefill = {.local = 0, .heavy = 0}; }),
            "opened");
}

TEST_F(SparsePrefillTest, RefusesModelsWithWindows) {
  ModelSpec spec = small_spec(2);
  spec.architecture = "mistral";
  spec.sliding_window = {0, 40};
  make_model(spec);
  const auto engine = Engine::open(path_, options());
  ASSERT_FALSE(engine.has_value());
  EXPECT_EQ(engine.error().code(), StatusCode::kUnsupported);
  EXPECT_THAT(engine.error().message(),
              HasSubstr("layer 1 of this model attends to the last 40 of 80"));
}

TEST(LargestDifferenceTest, SeesEveryKindOfDifference) {
  const float nan = std::nanf("");
  EXPECT_EQ(largest_difference({{0, -4}}, {{0, -4}}), 0);
  EXPECT_EQ(largest_difference({{0, 0}}, {{0, 0}}), 0);
  EXPECT_EQ(largest_difference({{1, -3}}, {{1, -4}}), 0.25);
  EXPECT_TRUE(std::isinf(largest_difference({{1}}, {{0}})));
  EXPECT_TRUE(std::isinf(largest_difference({{nan}}, {{1}})));
  EXPECT_TRUE(std::isinf(largest_difference({{1}}, {{static_cast<double>(nan)}})));
  EXPECT_TRUE(std::isinf(largest_difference({{1}, {1}}, {{1}})));
  EXPECT_TRUE(std::isinf(largest_difference({{1}}, {{1, 1}})));
}

}  // namespace
}  // namespace qsf
