// SPDX-License-Identifier: MIT
//
// The metrics of the H2O state's design, on the real structure: each with ranking by sum and no
// sinks, and again with the defaults. Speeds are benchmarks (qsf-bench --kernels h2o).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "kv/sparse_prefill_state.h"
#include "kv/testing/sparse_prefill_owner.h"

namespace qsf {
namespace {

constexpr std::uint32_t kChunk = 1024;  // S
constexpr std::uint32_t kQueryHeads = 4;

struct Variant {
  const char* name;
  std::uint32_t sinks;
  H2oRanking ranking;
};

class H2oMetricsTest : public testing::TestWithParam<Variant> {
 protected:
  static SparsePrefillShape shape(std::uint32_t kv_size, std::uint32_t n_layers = 2,
                                  std::uint32_t n_kv_heads = kQueryHeads) {
    return {.n_layers = n_layers,
            .n_kv_heads = n_kv_heads,
            .kv_size = kv_size,
            .options = {.sinks = GetParam().sinks, .ranking = GetParam().ranking}};
  }
  // What a position's sum is divided by before it is ranked.
  static double divisor(std::uint32_t position, std::uint32_t end) {
    return GetParam().ranking == H2oRanking::kSum ? 1.0 : std::max(32U, end - position);
  }
};

INSTANTIATE_TEST_SUITE_P(, H2oMetricsTest,
                         testing::Values(Variant{"mean", 0, H2oRanking::kMean},
                                         Variant{"defaults", 4, H2oRanking::kSum}),
                         [](const auto& variant) { return std::string(variant.param.name); });

// Every index is -1 or a position, ascending, and the unused ones stand at the end.
void expect_indices_in_bounds(SparsePrefillOwner& state) {
  const std::uint32_t memory = state->shape().memory_size();
  for (std::uint32_t layer = 0; layer < state->shape().n_layers; ++layer) {
    for (std::uint32_t h = 0; h < state->shape().n_kv_heads; ++h) {
      const auto indices = state->memory_indices(layer).subspan(std::size_t{h} * memory, memory);
      const auto used = state->members(layer, h);
      for (std::size_t m = 0; m < memory; ++m) {
        if (m >= used.size()) {
          EXPECT_EQ(indices[m], -1);
          continue;
        }
        EXPECT_GE(indices[m], 0);
        EXPECT_LT(indices[m], static_cast<std::int32_t>(state->shape().kv_size));
        EXPECT_TRUE(m == 0 || indices[m] > indices[m - 1]);
      }
    }
  }
}

TEST_P(H2oMetricsTest, M01ArraysAreContiguousWithTheExpectedStrides) {
  SparsePrefillOwner state(shape(4096, 3));
  const std::size_t memory = state->shape().memory_size();
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(state->scores(layer).size(), std::size_t{kQueryHeads} * 4096);
    EXPECT_EQ(state->scores(layer).size_bytes(), std::size_t{kQueryHeads} * 4096 * 2);
    EXPECT_EQ(state->memory_indices(layer).size(), kQueryHeads * memory);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(state->scores(layer).data()) % 64, 0U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(state->memory_indices(layer).data()) % 64, 0U);
  }
  ASSERT_TRUE(state->build_memory_set(1, kChunk).ok());
  EXPECT_EQ(state->members(1, 2).data(), state->memory_indices(1).data() + 2 * memory);
}

TEST_P(H2oMetricsTest, M02AScoreLiesAtHeadTimesSizePlusPosition) {
  SparsePrefillOwner state(shape(4096));
  std::vector<float> sums(std::size_t{kQueryHeads} * kChunk);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = static_cast<float>(i % 251);
  ASSERT_TRUE(state->init_chunk_scores(0, 0, kChunk, sums).ok());
  Rng rng(1);
  for (int i = 0; i < 1000; ++i) {
    const std::uint32_t h = rng.below(kQueryHeads);
    const std::uint32_t position = rng.below(kChunk);
    EXPECT_EQ(to_f32(state->scores(0)[h * 4096 + position]), sums[h * kChunk + position]);
  }
}

TEST_P(H2oMetricsTest, M03TheStateIsBelow5PercentOfTheCache) {
  constexpr std::uint32_t kPositions = 4096;
  struct Model {
    std::uint32_t n_layers, n_kv_heads, head_dim;
  };
  for (const Model& model : {Model{32, 32, 128}, Model{22, 4, 64}, Model{32, 8, 128}}) {
    const std::uint64_t cache =
        KvShape{model.n_layers, model.n_kv_heads, model.head_dim, KvType::kF16, KvType::kF16}
            .page_bytes() *
        kv_pages_for(kPositions);
    const SparsePrefillShape sparse = shape(kPositions, model.n_layers, model.n_kv_heads);
    ASSERT_EQ(sparse.memory_size(), 512U);
    const std::uint64_t state = SparsePrefillState::region_bytes(sparse);
    EXPECT_GT(state, std::uint64_t{model.n_layers} * model.n_kv_heads * (2 * kPositions + 4 * 512));
    EXPECT_LT(static_cast<double>(state), 0.05 * static_cast<double>(cache))
        << state << " of " << cache;
  }
}

TEST_P(H2oMetricsTest, M04IndicesStayInBoundsAtTheEdges) {
  {
    SparsePrefillOwner state(shape(kChunk));  // N = S
    ASSERT_TRUE(state->build_memory_set(0, kChunk).ok());
    EXPECT_EQ(state->members(0, 0).size(), 512U);
    expect_indices_in_bounds(state);
  }
  {
    SparsePrefillOwner state(shape(2 * kChunk - 1));  // N = 2 S - 1
    ASSERT_TRUE(state->build_memory_set(0, kChunk).ok());
    ASSERT_TRUE(state->next_chunk(kChunk).ok());
    ASSERT_TRUE(state->build_memory_set(0, 2 * kChunk - 1).ok());
    ASSERT_TRUE(state->next_chunk(kChunk - 1).ok());
    EXPECT_EQ(state->members(0, 3).back(), 2046);
    expect_indices_in_bounds(state);
  }
  for (const std::uint32_t n : {1U, 100U, 255U, 256U, 257U, 511U, 513U}) {  // N < L, and around M
    SparsePrefillOwner state(shape(kChunk));
    ASSERT_TRUE(state->build_memory_set(0, n).ok());
    EXPECT_EQ(state->members(0, 1).size(), std::min(n, 512U));
    expect_indices_in_bounds(state);
  }
  {
    SparsePrefillOwner state(shape(kChunk + 100));  // the last chunk shorter than L
    ASSERT_TRUE(state->build_memory_set(0, kChunk).ok());
    ASSERT_TRUE(state->build_memory_set(0, kChunk + 100).ok());
    for (std::int32_t position = kChunk + 100 - 256; position < 1124; ++position) {
      EXPECT_EQ(state.member_set(0, 0).count(position), 1U);
    }
    expect_indices_in_bounds(state);
  }
}

TEST_P(H2oMetricsTest, M05ScoresAreTheColumnSumsRoundedToBf16) {
  constexpr std::uint32_t kRows = 256;
  SparsePrefillOwner state(shape(kChunk));
  Rng rng(5);
  std::vector<double> expected(std::size_t{kQueryHeads} * kRows);
  std::vector<float> sums(expected.size());
  for (std::uint32_t h = 0; h < kQueryHeads; ++h) {
    for (std::uint32_t row = 0; row < kRows; ++row) {  // a causal softmax
      std::vector<double> weights(row + 1);
      double total = 0.0;
      for (double& weight : weights) total += weight = std::exp(2.0 * rng.next_normal());
      for (std::uint32_t j = 0; j <= row; ++j) {
        expected[h * kRows + j] += weights[j] / total;
        sums[h * kRows + j] += static_cast<float>(weights[j] / total);
      }
    }
  }
  ASSERT_TRUE(state->init_chunk_scores(0, 0, kRows, sums).ok());
  for (std::uint32_t h = 0; h < kQueryHeads; ++h) {
    double total = 0.0;
    for (std::uint32_t j = 0; j < kRows; ++j) {
      const double want = expected[h * kRows + j];
      EXPECT_NEAR(state.score(0, h, j), want, want * 0x1.0p-8 + 1e-6);
      total += state.score(0, h, j);
    }
    EXPECT_NEAR(total, kRows, kRows * 0x1.0p-8);  // every row pays 1
  }
}

TEST_P(H2oMetricsTest, M06AccumulationNeverDecreasesAScore) {
  SparsePrefillOwner state(shape(4096));
  Rng rng(6);
  const std::uint32_t memory = state->shape().memory_size();
  ASSERT_TRUE(
      state->init_chunk_scores(0, 0, kChunk, uniform_floats(rng, kQueryHeads * kChunk, 0.1F, 1.0F))
          .ok());
  ASSERT_TRUE(state->build_memory_set(0, kChunk).ok());
  const auto before = std::vector<BF16>(state->scores(0).begin(), state->scores(0).end());
  const auto sums = uniform_floats(rng, std::size_t{kQueryHeads} * memory, 0.05F, 0.5F);
  ASSERT_TRUE(state->accumulate_memory_scores(0, sums).ok());
  for (std::uint32_t h = 0; h < kQueryHeads; ++h) {
    const auto members = state.member_set(0, h);
    for (std::uint32_t position = 0; position < 4096; ++position) {
      const float old_score = to_f32(before[h * 4096 + position]);
      const float score = state.score(0, h, position);
      EXPECT_TRUE(std::isfinite(score));
      EXPECT_EQ(score > old_score, members.count(static_cast<std::int32_t>(position)) == 1);
      EXPECT_GE(score, old_score);
    }
    for (std::uint32_t m = 0; m < memory; ++m) {
      const auto position = static_cast<std::uint32_t>(state->members(0, h)[m]);
      const float want = to_f32(before[h * 4096 + position]) + sums[h * memory + m];
      EXPECT_EQ(state->accumulators(0)[h * memory + m], want);
      EXPECT_EQ(state.score(0, h, position), to_f32(to_bf16(want)));
    }
  }
}

TEST_P(H2oMetricsTest, M07HeavyMembersAreTheTopOfASort) {
  SparsePrefillOwner state(shape(kChunk));
  Rng rng(7);
  for (std::uint32_t h = 0; h < kQueryHeads; ++h) {
    for (std::uint32_t position = 0; position < kChunk; ++position) {
      state.set_score(0, h, position, rng.next_f32());
    }
  }
  ASSERT_TRUE(state->build_memory_set(0, kChunk).ok());
  const std::uint32_t n_sinks = GetParam().sinks;
  for (std::uint32_t h = 0; h < kQueryHeads; ++h) {
    std::vector<std::pair<double, std::int32_t>> ranked;
    for (std::uint32_t position = n_sinks; position < kChunk - 256; ++position) {
      const double rank = state.score(0, h, position) / divisor(position, kChunk);
      ranked.emplace_back(-static_cast<float>(rank), static_cast<std::int32_t>(position));
    }
    std::sort(ranked.begin(), ranked.end());
    std::set<std::int32_t> expected;
    for (std::uint32_t i = 0; i < 256 - n_sinks; ++i) expected.insert(ranked[i].second);
    for (std::uint32_t i = 0; i < n_sinks; ++i) expected.insert(static_cast<std::int32_t>(i));
    std::set<std::int32_t> heavy;
    for (const std::int32_t position : state->members(0, h)) {
      if (position < static_cast<std::int32_t>(kChunk) - 256) heavy.insert(position);
    }
    EXPECT_EQ(heavy, expected);
  }
}

TEST_P(H2oMetricsTest, M08ATokenSurvivesThreeChunks) {
  constexpr std::int32_t kToken = 42;
  SparsePrefillOwner state(shape(4 * kChunk, 1));
  Rng rng(8);
  std::vector<float> sums(std::size_t{kQueryHeads} * kChunk, 0.5F);
  for (std::uint32_t h = 0; h < kQueryHeads; ++h) sums[h * kChunk + kToken] = 10.0F;
  for (std::uint32_t chunk = 0; chunk < 4; ++chunk) {
    if (chunk > 0) {
      auto paid = uniform_floats(rng, std::size_t{kQueryHeads} * 512, 0.0F, 0.5F);
      for (std::uint32_t h = 0; h < kQueryHeads; ++h) {
        const auto members = state->members(0, h);
        const auto at = std::lower_bound(members.begin(), members.end(), kToken) - members.begin();
        // A sum stands for good; a mean has to be earned from every chunk's queries.
        const bool earns = GetParam().ranking == H2oRanking::kMean;
        if (earns) paid[h * 512 + static_cast<std::size_t>(at)] = 10.0F;
      }
      ASSERT_TRUE(state->accumulate_memory_scores(0, paid).ok());
      sums = uniform_floats(rng, sums.size(), 0.0F, 2.0F);
    }
    ASSERT_TRUE(state->init_chunk_scores(0, chunk * kChunk, kChunk, sums).ok());
    ASSERT_TRUE(state->build_memory_set(0, (chunk + 1) * kChunk).ok());
    ASSERT_TRUE(state->next_chunk(kChunk).ok());
    for (std::uint32_t h = 0; h < kQueryHeads; ++h) {
      ASSERT_EQ(state.member_set(0, h).count(kToken), 1U) << "chunk " << chunk << " head " << h;
    }
  }
}

TEST_P(H2oMetricsTest, M09HeadsChooseForThemselves) {
  constexpr std::uint32_t kManyHeads = 32;
  SparsePrefillOwner state(shape(kChunk, 1, kManyHeads));
  for (std::uint32_t h = 0; h < kManyHeads; ++h) {
    for (std::uint32_t position = 0; position < kChunk; ++position) {
      const float score = static_cast<float>((position * 7 + h * 11) % 100) / 100.0F;
      state.set_score(0, h, position, score);
    }
  }
  ASSERT_TRUE(state->build_memory_set(0, kChunk).ok());
  std::uint32_t n_different = 0;
  for (std::uint32_t h = 0; h + 1 < kManyHeads; ++h) {
    if (state.member_set(0, h) != state.member_set(0, h + 1)) ++n_different;
  }
  EXPECT_GT(n_different, kManyHeads / 2);
}

// One chunk of every layer, with what its queries paid drawn at random.
void run_chunk(SparsePrefillOwner& state, Rng& rng) {
  const SparsePrefillShape& shape = state->shape();
  for (std::uint32_t layer = 0; layer < shape.n_layers; ++layer) {
    const std::size_t n_memory = std::size_t{shape.n_kv_heads} * shape.memory_size();
    if (state->is_memory_initialized(layer)) {
      ASSERT_TRUE(
          state->accumulate_memory_scores(layer, uniform_floats(rng, n_memory, 0.0F, 0.5F)).ok());
    }
    const std::uint32_t start = state->chunk_start(layer);
    const auto sums = uniform_floats(rng, std::size_t{shape.n_kv_heads} * kChunk, 0.0F, 2.0F);
    ASSERT_TRUE(state->init_chunk_scores(layer, start, kChunk, sums).ok());
    ASSERT_TRUE(state->build_memory_set(layer, start + kChunk).ok());
  }
  ASSERT_TRUE(state->next_chunk(kChunk).ok());
}

TEST_P(H2oMetricsTest, M10IndicesAscend) {
  SparsePrefillOwner state(shape(4 * kChunk));
  Rng rng(10);
  for (int chunk = 0; chunk < 4; ++chunk) {
    run_chunk(state, rng);
    expect_indices_in_bounds(state);
    EXPECT_EQ(state->members(1, 3).size(), 512U);
  }
}

TEST_P(H2oMetricsTest, M11SixteenChunksOverflowNothing) {
  SparsePrefillOwner state(shape(16 * kChunk, 1));
  const std::vector<float> chunk_sums(std::size_t{kQueryHeads} * kChunk, 0.5F);
  const std::vector<float> memory_sums(std::size_t{kQueryHeads} * 512, 0.5F);
  for (std::uint32_t chunk = 0; chunk < 16; ++chunk) {
    if (chunk > 0) {
      ASSERT_TRUE(state->accumulate_memory_scores(0, memory_sums).ok());
    }
    ASSERT_TRUE(state->init_chunk_scores(0, chunk * kChunk, kChunk, chunk_sums).ok());
    ASSERT_TRUE(state->build_memory_set(0, (chunk + 1) * kChunk).ok());
    ASSERT_TRUE(state->next_chunk(kChunk).ok());
  }
  EXPECT_EQ(state->chunk_index(), 16U);
  EXPECT_EQ(state->total_tokens(), 16 * kChunk);
  for (const BF16 bits : state->scores(0)) {
    const float score = to_f32(bits);
    EXPECT_TRUE(score >= 0.5F && score < 1e6F) << score;
  }
}

TEST_P(H2oMetricsTest, ManySmallAdditionsDoNotStall) {
  SparsePrefillOwner state(shape(kChunk, 1));
  ASSERT_TRUE(state->build_memory_set(0, kChunk).ok());
  const std::vector<float> half(std::size_t{kQueryHeads} * 512, 0.5F);
  for (int i = 0; i < 4096; ++i) ASSERT_TRUE(state->accumulate_memory_scores(0, half).ok());
  for (std::uint32_t h = 0; h < kQueryHeads; ++h) {
    for (const std::int32_t position : state->members(0, h)) {
      EXPECT_EQ(state.score(0, h, static_cast<std::uint32_t>(position)), 2048.0F);
    }
  }
}

TEST_P(H2oMetricsTest, KvHeadsOfEveryNumberAreIndependent) {
  Rng rng(12);
  for (const std::uint32_t n_kv_heads : {1U, 2U, 5U, 8U, 32U}) {
    SparsePrefillOwner all(shape(2 * kChunk, 1, n_kv_heads));
    const auto first = uniform_floats(rng, std::size_t{n_kv_heads} * kChunk, 0.0F, 9.0F);
    const auto paid = uniform_floats(rng, std::size_t{n_kv_heads} * 512, 0.0F, 9.0F);
    ASSERT_TRUE(all->init_chunk_scores(0, 0, kChunk, first).ok());
    ASSERT_TRUE(all->build_memory_set(0, kChunk).ok());
    ASSERT_TRUE(all->accumulate_memory_scores(0, paid).ok());
    ASSERT_TRUE(all->build_memory_set(0, 2 * kChunk).ok());
    for (std::uint32_t h = 0; h < n_kv_heads; ++h) {
      SparsePrefillOwner one(shape(2 * kChunk, 1, 1));
      const auto first_of = std::span(first).subspan(std::size_t{h} * kChunk, kChunk);
      const auto paid_of = std::span(paid).subspan(std::size_t{h} * 512, 512);
      ASSERT_TRUE(one->init_chunk_scores(0, 0, kChunk, first_of).ok());
      ASSERT_TRUE(one->build_memory_set(0, kChunk).ok());
      ASSERT_TRUE(one->accumulate_memory_scores(0, paid_of).ok());
      ASSERT_TRUE(one->build_memory_set(0, 2 * kChunk).ok());
      EXPECT_THAT(all->members(0, h), testing::ElementsAreArray(one->members(0, 0)));
    }
  }
}

}  // namespace
}  // namespace qsf
