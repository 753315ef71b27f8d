// SPDX-License-Identifier: MIT
//
// Tests of SparsePrefillState: what is refused, selection against a plain sort, chunks in parts,
// layers that differ, and truncation. The metrics of its design are in h2o_metrics_test.cc.

#include "kv/sparse_prefill_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kv/h2o_common.h"
#include "kv/testing/sparse_prefill_owner.h"

namespace qsf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr SparsePrefillOptions kSmall{
    .local = 3, .heavy = 4, .chunk = 16, .sinks = 0, .ranking = H2oRanking::kSum};
constexpr SparsePrefillShape kPrefillShape{
    .n_layers = 2, .n_kv_heads = 3, .kv_size = 100, .options = kSmall};

void expect_invalid(const Status& status, const char* text) {
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(text));
}

TEST(H2oRankingTest, KeysOrderByRankThenBySmallerPosition) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float ascending[] = {-inf, -1.0F, -1e-30F, 0.0F, 1e-40F, 1e-30F, 1.0F, 3e38F, inf};
  for (std::size_t i = 0; i + 1 < std::size(ascending); ++i) {
    EXPECT_LT(h2o_rank_key(ascending[i], 0), h2o_rank_key(ascending[i + 1], 0x7FFFFFFF)) << i;
  }
  EXPECT_GT(h2o_rank_key(1.0F, 7), h2o_rank_key(1.0F, 8));
  EXPECT_GT(h2o_rank_key(-0.0F, 7), h2o_rank_key(0.0F, 8));
  EXPECT_GT(h2o_rank_key(0.0F, 7), h2o_rank_key(-0.0F, 8));
  for (const float not_a_number : {nan, -nan}) {
    EXPECT_LT(h2o_rank_key(not_a_number, 0), h2o_rank_key(-inf, 0x7FFFFFFF));
    EXPECT_GT(h2o_rank_key(not_a_number, 3), h2o_rank_key(not_a_number, 4));
  }
  EXPECT_GT(h2o_sink_key(0x7FFFFFFF), h2o_rank_key(inf, 0));
}

TEST(H2oRankingTest, TheMeanCountsQueriesAndNeverFewerThan32) {
  EXPECT_EQ(h2o_rank(H2oRanking::kSum, 6.0F, 10, 74), 6.0F);
  EXPECT_EQ(h2o_rank(H2oRanking::kMean, 6.0F, 10, 74), 6.0F / 64);
  EXPECT_EQ(h2o_rank(H2oRanking::kMean, 6.0F, 10, 42), 6.0F / 32);
  EXPECT_EQ(h2o_rank(H2oRanking::kMean, 6.0F, 41, 42), 6.0F / 32);
}

TEST(SparsePrefillStateTest, StartsWithZerosAndWithoutMembers) {
  SparsePrefillOwner state(kPrefillShape);
  EXPECT_TRUE(state->is_on());
  EXPECT_EQ(state->chunk_index(), 0U);
  EXPECT_EQ(state->total_tokens(), 0U);
  EXPECT_FALSE(state->is_memory_initialized());
  EXPECT_THAT(state->chunk_state().boundaries, ElementsAre(0U));
  for (std::uint32_t layer = 0; layer < kPrefillShape.n_layers; ++layer) {
    EXPECT_THAT(state->memory_indices(layer), testing::Each(-1));
    EXPECT_THAT(state->scores(layer), testing::Each(BF16{0}));
    EXPECT_THAT(state->accumulators(layer), testing::Each(0.0F));
    EXPECT_THAT(state->chunk_sums(layer), testing::Each(0.0F));
    EXPECT_THAT(state->memory_sums(layer), testing::Each(0.0F));
    EXPECT_THAT(state->tile_sums(layer), testing::Each(0.0F));
    EXPECT_EQ(state->scored_end(layer), 0U);
    EXPECT_TRUE(state->members(layer, 2).empty());
  }
}

TEST(SparsePrefillStateTest, BuffersAreNamedAndDisjoint) {
  SparsePrefillOwner state(kPrefillShape);
  const auto buffers = state->buffers();
  ASSERT_EQ(buffers.size(), 12U);
  EXPECT_EQ(buffers[0].name, "h2o_scores_l0");
  EXPECT_EQ(buffers[0].bytes.size(), 3U * 100 * 2);
  EXPECT_EQ(buffers[1].name, "h2o_mem_idx_l0");
  EXPECT_EQ(buffers[1].bytes.size(), 3U * 7 * 4);
  EXPECT_EQ(buffers[6].name, "h2o_scores_l1");
  std::uint64_t n_bytes = 0;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    n_bytes += buffers[i].bytes.size();
    if (i == 0) continue;
    EXPECT_GE(buffers[i].bytes.data(), buffers[i - 1].bytes.data() + buffers[i - 1].bytes.size());
  }
  EXPECT_LE(n_bytes, SparsePrefillState::region_bytes(kPrefillShape));
}

TEST(SparsePrefillStateTest, WithoutLocalAndHeavyItIsOff) {
  SparsePrefillShape shape = kPrefillShape;
  shape.options.local = shape.options.heavy = 0;
  EXPECT_EQ(SparsePrefillState::region_bytes(shape), 0U);
  SparsePrefillOwner state(shape);
  EXPECT_FALSE(state->is_on());
  EXPECT_FALSE(state->is_memory_initialized());
  EXPECT_TRUE(state->scores(0).empty());
  EXPECT_TRUE(state->memory_indices(0).empty());
  EXPECT_TRUE(state->members(0, 0).empty());
  EXPECT_TRUE(state->buffers().empty());
  EXPECT_EQ(state->truncate(7), 7U);
  expect_invalid(state->init_chunk_scores(0, 0, 1, {}), "local and heavy are 0");
  expect_invalid(state->accumulate_memory_scores(0, {}), "local and heavy are 0");
  expect_invalid(state->build_memory_set(0, 1), "local and heavy are 0");
  expect_invalid(state->close_chunk(0), "local and heavy are 0");
  expect_invalid(state->next_chunk(1), "local and heavy are 0");
}

TEST(SparsePrefillStateTest, ShapesThatMakeNoSenseAreRefused) {
  const auto error_of = [](auto change) {
    SparsePrefillShape shape = kPrefillShape;
    change(shape);
    return SparsePrefillState::create(shape, {}).error();
  };
  expect_invalid(error_of([](SparsePrefillShape& s) { s.n_layers = 0; }), "0 layers");
  expect_invalid(error_of([](SparsePrefillShape& s) { s.n_kv_heads = 0; }), "0 heads");
  expect_invalid(error_of([](SparsePrefillShape& s) { s.kv_size = 0; }), "0 positions");
  expect_invalid(error_of([](SparsePrefillShape& s) { s.kv_size = 0x80000000U; }),
                 "2147483648 positions");
  expect_invalid(error_of([](SparsePrefillShape& s) { s.n_layers = s.n_kv_heads = UINT32_MAX; }),
                 "fit");
  expect_invalid(error_of([](SparsePrefillShape& s) { s.options.heavy = 13; }),
                 "local 3 and heavy 13");
  expect_invalid(error_of([](SparsePrefillShape& s) { s.options.sinks = 5; }),
                 "heavy 4 with 5 sinks");
}

TEST(SparsePrefillStateTest, WrongArgumentsAreRefusedAndChangeNothing) {
  SparsePrefillOwner state(kPrefillShape);
  const std::vector<float> sums(3 * 17, 1.0F);
  const auto chunk = std::span(sums).first(3 * 16);
  const auto memory = std::span(sums).first(3 * 7);
  expect_invalid(state->accumulate_memory_scores(0, memory), "no memory set");
  ASSERT_TRUE(state->init_chunk_scores(0, 0, 16, chunk).ok());
  ASSERT_TRUE(state->build_memory_set(0, 16).ok());
  const auto before = state.bytes();

  expect_invalid(state->init_chunk_scores(2, 16, 16, chunk), "layer 2: expected one below 2");
  expect_invalid(state->init_chunk_scores(0, 0, 16, chunk), "from 0: layer 0 expects 1 to 16 from");
  expect_invalid(state->init_chunk_scores(0, 17, 16, chunk), "from 17");
  expect_invalid(state->init_chunk_scores(0, 16, 0, {}), "0 positions");
  expect_invalid(state->init_chunk_scores(0, 16, 17, sums), "17 positions");
  expect_invalid(state->init_chunk_scores(0, 16, 16, sums),
                 "51 column sums: expected 3 heads x 16");
  expect_invalid(state->accumulate_memory_scores(2, memory), "layer 2");
  expect_invalid(state->accumulate_memory_scores(1, memory), "layer 1 has no memory set");
  expect_invalid(state->accumulate_memory_scores(0, chunk), "48 column sums: expected 3 heads x 7");
  expect_invalid(state->build_memory_set(2, 32), "layer 2");
  expect_invalid(state->build_memory_set(0, 16), "ends at 16");
  expect_invalid(state->build_memory_set(0, 3), "ends at 3");
  expect_invalid(state->build_memory_set(0, 33), "ends at 33");
  expect_invalid(state->close_chunk(0), "no query of the chunk at 16");
  expect_invalid(state->close_chunk(9), "layer 9");
  EXPECT_EQ(state.bytes(), before);

  for (std::uint32_t end = 32; end <= 96; end += 16) {
    ASSERT_TRUE(state->build_memory_set(0, end).ok());
  }
  expect_invalid(state->init_chunk_scores(0, 96, 5, std::span(sums).first(15)), "of 100 in all");
  expect_invalid(state->build_memory_set(0, 101), "of 100 in all");
  EXPECT_TRUE(state->init_chunk_scores(0, 96, 4, std::span(sums).first(12)).ok());
  EXPECT_TRUE(state->build_memory_set(0, 100).ok());
}

TEST(SparsePrefillStateTest, MarksOutsideTheOpenChunkAreBugs) {
  SparsePrefillOwner state(kPrefillShape);
  state->mark_scored(0, 10);
  EXPECT_DEATH(state->mark_scored(0, 9), "check failed");
  EXPECT_DEATH(state->mark_scored(0, 17), "check failed");
  EXPECT_DEATH(state->mark_scored(2, 11), "check failed");
}

TEST(SparsePrefillStateTest, CountsChunksOfWhichOnlyTheLastIsShort) {
  SparsePrefillOwner state(kPrefillShape);
  expect_invalid(state->next_chunk(0), "0 positions after 0");
  expect_invalid(state->next_chunk(17), "17 positions after 0");
  for (std::uint32_t i = 1; i <= 6; ++i) ASSERT_TRUE(state->next_chunk(16).ok());
  expect_invalid(state->next_chunk(5), "5 positions after 96: expected 1 to 16, of 100");
  ASSERT_TRUE(state->next_chunk(3).ok());
  expect_invalid(state->next_chunk(1), "ended at 99");
  EXPECT_EQ(state->chunk_index(), 7U);
  EXPECT_EQ(state->total_tokens(), 99U);
  EXPECT_THAT(state->chunk_state().boundaries, ElementsAre(0, 16, 32, 48, 64, 80, 96, 99));
}

// What members a head should have, by sorting everything.
std::vector<std::int32_t> expected_members(SparsePrefillOwner& state, std::uint32_t layer,
                                           std::uint32_t kv_head, std::uint32_t chunk_end) {
  const SparsePrefillOptions& options = state->shape().options;
  const std::uint32_t n_members = static_cast<std::uint32_t>(state->members(layer, kv_head).size());
  struct Candidate {
    double rank;
    std::int32_t position;
  };
  std::vector<std::int32_t> kept;
  std::vector<Candidate> candidates;
  const auto offer = [&](std::uint32_t position, float sum) {
    const auto signed_position = static_cast<std::int32_t>(position);
    if (position + options.local >= chunk_end) {
      kept.push_back(signed_position);
    } else {
      const double n_queries = std::max(chunk_end - position, 32U);
      const float mean = static_cast<float>(sum / n_queries);
      const float rank = options.ranking == H2oRanking::kSum ? sum : mean;
      candidates.push_back({position < options.sinks ? 1e30 : rank, signed_position});
    }
  };
  for (std::uint32_t m = 0; m < n_members; ++m) {
    const std::size_t at = std::size_t{kv_head} * state->shape().memory_size() + m;
    offer(static_cast<std::uint32_t>(state->memory_indices(layer)[at]),
          state->accumulators(layer)[at]);
  }
  for (std::uint32_t position = state->chunk_start(layer); position < chunk_end; ++position) {
    offer(position, state.score(layer, kv_head, position));
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.rank > b.rank; });
  candidates.resize(std::min<std::size_t>(candidates.size(), options.heavy));
  for (const Candidate& candidate : candidates) kept.push_back(candidate.position);
  std::sort(kept.begin(), kept.end());
  return kept;
}

TEST(SparsePrefillStateTest, SelectsWhatASortSelects) {
  Rng rng(7);
  struct Case {
    std::uint32_t local, heavy, chunk, sinks;
  };
  const Case cases[] = {{3, 4, 16, 0}, {3, 4, 16, 4}, {0, 5, 16, 2}, {5, 0, 16, 0},
                        {1, 1, 3, 1},  {8, 7, 16, 3}, {0, 1, 2, 0},  {16, 24, 64, 4}};
  for (const Case& c : cases) {
    for (const H2oRanking ranking : {H2oRanking::kSum, H2oRanking::kMean}) {
      SparsePrefillOwner state({.n_layers = 1,
                                .n_kv_heads = 3,
                                .kv_size = 5 * c.chunk,
                                .options = {c.local, c.heavy, c.chunk, c.sinks, ranking}});
      for (std::uint32_t end = c.chunk; end <= 5 * c.chunk; end += c.chunk) {
        // Few distinct sums: most ranks are equal.
        const float steps = end % (2 * c.chunk) == 0 ? 3.0F : 1e6F;
        auto sums = uniform_floats(rng, 3 * std::size_t{c.chunk}, 0.0F, steps);
        for (float& sum : sums) sum = std::floor(sum);
        if (state->is_memory_initialized()) {
          const auto more =
              uniform_floats(rng, 3 * std::size_t{state->shape().memory_size()}, 0.0F, 2e5F);
          ASSERT_TRUE(state->accumulate_memory_scores(0, more).ok());
        }
        ASSERT_TRUE(state->init_chunk_scores(0, end - c.chunk, c.chunk, sums).ok());
        std::vector<std::vector<std::int32_t>> expected;
        for (std::uint32_t h = 0; h < 3; ++h) {
          expected.push_back(expected_members(state, 0, h, end));
        }
        ASSERT_TRUE(state->build_memory_set(0, end).ok());
        for (std::uint32_t h = 0; h < 3; ++h) {
          EXPECT_THAT(state->members(0, h), testing::ElementsAreArray(expected[h]))
              << c.local << ' ' << c.heavy << ' ' << c.sinks << " end " << end;
        }
      }
    }
  }
}

TEST(SparsePrefillStateTest, EqualScoresKeepTheSmallestPositions) {
  SparsePrefillOwner state(kPrefillShape);
  ASSERT_TRUE(state->init_chunk_scores(0, 0, 16, std::vector<float>(48, 0.25F)).ok());
  ASSERT_TRUE(state->build_memory_set(0, 16).ok());
  for (std::uint32_t h = 0; h < 3; ++h) {
    EXPECT_THAT(state->members(0, h), ElementsAre(0, 1, 2, 3, 13, 14, 15));
  }
}

TEST(SparsePrefillStateTest, SinksStayWhateverTheirScoresAndTakeHeavySlots) {
  SparsePrefillShape shape = kPrefillShape;
  shape.options.sinks = 2;
  SparsePrefillOwner state(shape);
  for (std::uint32_t end = 16; end <= 96; end += 16) {
    std::vector<float> sums(48, 1.0F + static_cast<float>(end));
    if (end == 16) sums[0] = sums[1] = sums[16] = sums[17] = 0.0F;
    ASSERT_TRUE(state->init_chunk_scores(0, end - 16, 16, sums).ok());
    ASSERT_TRUE(state->build_memory_set(0, end).ok());
    const auto first = static_cast<std::int32_t>(end) - 16 + (end == 16 ? 2 : 0);
    const auto last = static_cast<std::int32_t>(end);
    EXPECT_THAT(state->members(0, 0),
                ElementsAre(0, 1, first, first + 1, last - 3, last - 2, last - 1));
  }
}

TEST(SparsePrefillStateTest, NotANumberIsKeptLastAndBreaksNoOrder) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  SparsePrefillShape shape = kPrefillShape;
  shape.options.sinks = 1;
  SparsePrefillOwner state(shape);
  std::vector<float> sums(48, nan);
  for (const std::size_t at : {4, 9, 11}) sums[at] = 0.5F;  // of head 0
  sums[16 + 5] = std::numeric_limits<float>::infinity();    // of head 1
  ASSERT_TRUE(state->init_chunk_scores(0, 0, 16, sums).ok());
  ASSERT_TRUE(state->build_memory_set(0, 16).ok());
  EXPECT_THAT(state->members(0, 0), ElementsAre(0, 4, 9, 11, 13, 14, 15));
  EXPECT_THAT(state->members(0, 1), ElementsAre(0, 1, 2, 5, 13, 14, 15));
  EXPECT_THAT(state->members(0, 2), ElementsAre(0, 1, 2, 3, 13, 14, 15));
  EXPECT_TRUE(std::isnan(state.score(0, 0, 0)));  // said, not hidden
  const float all_ones =
      std::bit_cast<float>(0x7FFFFFFFU);  // a NaN that rounding would carry to -0
  ASSERT_TRUE(state->accumulate_memory_scores(0, std::vector<float>(21, all_ones)).ok());
  EXPECT_TRUE(std::isnan(state.score(0, 0, 4)));
  ASSERT_TRUE(state->init_chunk_scores(0, 16, 16, std::vector<float>(48, 0.0F)).ok());
  ASSERT_TRUE(state->build_memory_set(0, 32).ok());
  EXPECT_THAT(state->members(0, 1), ElementsAre(0, 16, 17, 18, 29, 30, 31));
}

TEST(SparsePrefillStateTest, LayersAreAsFarAsTheyAre) {
  SparsePrefillOwner state(kPrefillShape);
  Rng rng(3);
  const auto first = uniform_floats(rng, 48, 0.0F, 1.0F);
  const auto second = uniform_floats(rng, 48, 0.0F, 1.0F);
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    ASSERT_TRUE(state->init_chunk_scores(layer, 0, 16, first).ok());
    ASSERT_TRUE(state->build_memory_set(layer, 16).ok());
    EXPECT_EQ(state->is_memory_initialized(), layer == 1);
    ASSERT_TRUE(state->init_chunk_scores(layer, 16, 16, second).ok());
    ASSERT_TRUE(state->build_memory_set(layer, 32).ok());
    EXPECT_TRUE(state->is_memory_initialized(layer));
  }
  EXPECT_THAT(state->memory_indices(0), testing::ElementsAreArray(state->memory_indices(1)));
}

// Adds what the queries of positions [begin, end) pay to the open chunk of a layer.
void pay(SparsePrefillOwner& state, std::uint32_t layer, std::uint32_t begin, std::uint32_t end) {
  const SparsePrefillShape& shape = state->shape();
  const std::uint32_t memory = shape.memory_size();
  for (std::uint32_t query = begin; query < end; ++query) {
    for (std::uint32_t h = 0; h < shape.n_kv_heads; ++h) {
      Rng rng(std::uint64_t{query} * 64 + h * 8 + layer);
      const std::uint32_t n_members = static_cast<std::uint32_t>(state->members(layer, h).size());
      for (std::uint32_t m = 0; m < n_members; ++m) {
        state->memory_sums(layer)[h * memory + m] += rng.next_f32();
      }
      for (std::uint32_t column = 0; column <= query - state->chunk_start(layer); ++column) {
        state->chunk_sums(layer)[h * shape.options.chunk + column] += rng.next_f32();
      }
    }
  }
  state->mark_scored(layer, end);
}

// The rows [begin, end) of every layer, as a pass would.
void run_pass(SparsePrefillOwner& state, std::uint32_t begin, std::uint32_t end) {
  const std::uint32_t chunk = state->shape().options.chunk;
  for (std::uint32_t layer = 0; layer < state->shape().n_layers; ++layer) {
    for (std::uint32_t at = begin; at < end;) {
      const std::uint32_t chunk_end = state->chunk_start(layer) + chunk;
      const std::uint32_t stop = std::min(end, chunk_end);
      pay(state, layer, at, stop);
      if (stop == chunk_end) {
        ASSERT_TRUE(state->close_chunk(layer).ok());
      }
      at = stop;
    }
  }
  for (std::uint32_t at = begin / chunk; at < end / chunk; ++at) {
    ASSERT_TRUE(state->next_chunk(chunk).ok());
  }
}

TEST(SparsePrefillStateTest, BytesDoNotDependOnHowAPromptIsCut) {
  SparsePrefillOwner whole(kPrefillShape);
  run_pass(whole, 0, 77);
  EXPECT_EQ(whole->chunk_index(), 4U);
  for (const std::uint32_t rows : {1U, 5U, 16U, 17U, 40U}) {
    SparsePrefillOwner parts(kPrefillShape);
    for (std::uint32_t at = 0; at < 77; at += rows) run_pass(parts, at, std::min(77U, at + rows));
    for (std::size_t i = 0; i < whole->buffers().size(); ++i) {
      const auto expected = whole->buffers()[i];
      const auto got = parts->buffers()[i];
      EXPECT_TRUE(std::equal(expected.bytes.begin(), expected.bytes.end(), got.bytes.begin()))
          << expected.name << ", " << rows << " rows a pass";
    }
  }
}

TEST(SparsePrefillStateTest, ClosingAChunkIsWhatTheThreeMethodsDo) {
  SparsePrefillOwner closed(kPrefillShape);
  SparsePrefillOwner steps(kPrefillShape);
  run_pass(closed, 0, 16);
  run_pass(steps, 0, 16);
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    pay(closed, layer, 16, 32);
    pay(steps, layer, 16, 32);
    const auto chunk =
        std::vector<float>(steps->chunk_sums(layer).begin(), steps->chunk_sums(layer).end());
    ASSERT_TRUE(closed->close_chunk(layer).ok());
    ASSERT_TRUE(steps->accumulate_memory_scores(layer, steps->memory_sums(layer)).ok());
    ASSERT_TRUE(steps->init_chunk_scores(layer, 16, 16, chunk).ok());
    ASSERT_TRUE(steps->build_memory_set(layer, 32).ok());
    EXPECT_THAT(closed->chunk_sums(layer), testing::Each(0.0F));
    EXPECT_THAT(closed->memory_sums(layer), testing::Each(0.0F));
  }
  for (std::size_t i = 0; i < closed->buffers().size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(closed->buffers()[i].bytes, steps->buffers()[i].bytes)) << i;
  }
}

TEST(SparsePrefillStateTest, TruncatingWhatNoQueryWasSummedForKeepsAll) {
  SparsePrefillOwner state(kPrefillShape);
  EXPECT_EQ(state->truncate(5), 5U);
  run_pass(state, 0, 40);
  const auto before = state.bytes();
  EXPECT_EQ(state->truncate(40), 40U);
  EXPECT_EQ(state->truncate(90), 90U);
  EXPECT_EQ(state.bytes(), before);
}

TEST(SparsePrefillStateTest, TruncatingTheOpenChunkGoesBackToItsStart) {
  SparsePrefillOwner state(kPrefillShape);
  run_pass(state, 0, 48);
  SparsePrefillOwner fresh(kPrefillShape);
  run_pass(fresh, 0, 48);
  run_pass(state, 48, 60);
  EXPECT_EQ(state->truncate(55), 48U);
  EXPECT_EQ(state->scored_end(1), 48U);
  EXPECT_EQ(state->chunk_index(), 3U);
  run_pass(state, 48, 77);
  run_pass(fresh, 48, 77);
  for (std::size_t i = 0; i < state->buffers().size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(state->buffers()[i].bytes, fresh->buffers()[i].bytes)) << i;
  }
}

TEST(SparsePrefillStateTest, TruncatingAClosedChunkForgetsEverything) {
  for (const std::uint32_t n : {0U, 1U, 31U}) {
    SparsePrefillOwner state(kPrefillShape);
    run_pass(state, 0, 40);
    EXPECT_EQ(state->truncate(n), 0U);
    EXPECT_EQ(state->chunk_index(), 0U);
    EXPECT_EQ(state->total_tokens(), 0U);
    EXPECT_FALSE(state->is_memory_initialized());
    SparsePrefillOwner fresh(kPrefillShape);
    run_pass(state, 0, 40);
    run_pass(fresh, 0, 40);
    for (std::size_t i = 0; i < state->buffers().size(); ++i) {
      EXPECT_TRUE(std::ranges::equal(state->buffers()[i].bytes, fresh->buffers()[i].bytes)) << i;
    }
  }
}

TEST(SparsePrefillStateTest, TruncatingAfterABrokenPassBringsLayersTogether) {
  {
    SparsePrefillOwner state(
        kPrefillShape);  // layer 0 has seen rows of the open chunk that layer 1 has not
    run_pass(state, 0, 32);
    pay(state, 0, 32, 40);
    EXPECT_EQ(state->truncate(32), 32U);
    EXPECT_EQ(state->scored_end(0), 32U);
    EXPECT_THAT(state->chunk_sums(0), testing::Each(0.0F));
  }
  {
    SparsePrefillOwner state(
        kPrefillShape);  // the same, with rows of the open chunk from earlier passes
    run_pass(state, 0, 36);
    pay(state, 0, 36, 40);
    EXPECT_EQ(state->truncate(40), 32U);
    EXPECT_EQ(state->scored_end(0), 32U);
    EXPECT_EQ(state->scored_end(1), 32U);
  }
  {
    SparsePrefillOwner state(kPrefillShape);  // layer 0 has a newer memory set than layer 1
    run_pass(state, 0, 32);
    pay(state, 0, 32, 48);
    ASSERT_TRUE(state->close_chunk(0).ok());
    EXPECT_EQ(state->truncate(32), 0U);
    EXPECT_FALSE(state->is_memory_initialized());
  }
}

}  // namespace
}  // namespace qsf
