// SPDX-License-Identifier: MIT
//
// Holds attention over chunk and memory set to its definition in f64, with the memory sets that the
// backend chose; those to the column sums of the definition; and its bits to the promise that they
// depend on no cut of a prompt.

#include "ops/cpu_sparse_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/f16.h"
#include "ops/testing/attention_text.h"
#include "ops/testing/bench.h"
#include "ops/testing/choice_check.h"
#include "ops/testing/naive_sparse_attention.h"
#include "ops/testing/stored_rows.h"

namespace qsf {
namespace {

using testing_support::as_stored;
using testing_support::AttentionText;
using testing_support::backend_tiers;
using testing_support::BackendTier;
using testing_support::Bench;
using testing_support::Choice;
using testing_support::expect_outputs;
using testing_support::expect_sums;
using testing_support::expect_well_chosen;
using testing_support::for_passes;
using testing_support::host_tiers;
using testing_support::MemorySets;
using testing_support::naive_sparse_attention;
using testing_support::NaiveSparseInput;
using testing_support::random_rows;

constexpr std::uint32_t kSparseLayer = 1;

struct SparseCase {
  std::uint32_t n_heads = 2;
  std::uint32_t n_kv_heads = 2;
  std::uint32_t head_dim = 16;
  KvType type = KvType::kF32;
  SparsePrefillOptions sparse = {.local = 24, .heavy = 16, .chunk = 128, .sinks = 2};
  float soft_cap = 0.0F;
  std::vector<float> slopes = {};
  bool bf16_biases = false;
  bool exact = true;      // f32 on matrix units too
  double rounding = 0.0;  // relative, of probabilities, beyond that of f32
};

NaiveSparseInput random_input(const SparseCase& c, std::uint32_t n, std::uint64_t seed) {
  return random_rows({c.n_heads, c.n_kv_heads, c.head_dim}, n, seed);
}

struct SparseOutcome {
  std::vector<std::vector<float>> out;
  MemorySets sets;                                    // as far as passes ended with chunks
  std::vector<std::vector<std::vector<float>>> sums;  // accumulators of those sets, as `sets`
  std::vector<BF16> scores;                           // [n_kv_heads][positions]
  std::vector<float> open_sums;                       // of the chunk that is open at the end
};

bool operator==(const SparseOutcome& a, const SparseOutcome& b) {
  const auto bits = [](const std::vector<BF16>& x) { return std::as_bytes(std::span(x)); };
  return a.out == b.out && a.open_sums == b.open_sums &&
         std::ranges::equal(bits(a.scores), bits(b.scores)) && a.sets.back() == b.sets.back() &&
         a.sums.back() == b.sums.back();
}

// Runs a prompt in passes that end at `ends`, of the roles given or prompt rows alone.
class Prompt {
 public:
  Prompt(const SparseCase& c, const NaiveSparseInput& in, unsigned n_threads,
         const BackendTier& tier, bool sparse = true)
      : case_(c),
        in_(in),
        bench_(n_threads, limits(sparse), c.type, tier, c.exact),
        text_(bench_, {c.n_heads, c.n_kv_heads, c.head_dim}, in) {
    if (sparse) {
      const SparsePrefillShape shape = {
          .n_layers = 2, .n_kv_heads = c.n_kv_heads, .kv_size = n_positions(), .options = c.sparse};
      states_.push_back(
          SparsePrefillState::create(shape, bench_.memory(SparsePrefillState::region_bytes(shape)))
              .value());
      bench_.backend().attach_sparse_prefill(states_);
    }
  }

  void pass(std::uint32_t n, RowRole role = RowRole::kPrompt) {
    text_.pass(n, role,
               {.layer = kSparseLayer,
                .scale = scale(),
                .soft_cap = case_.soft_cap,
                .slopes = case_.slopes,
                .bf16_biases = case_.bf16_biases},
               outcome_.out);
    if (!states_.empty() && text_.n_done() % case_.sparse.chunk == 0) keep_sets();
  }

  const SparseOutcome& finish() {
    if (states_.empty()) return outcome_;
    keep_sets();
    const auto scores = states_[0].scores(kSparseLayer);
    outcome_.scores.assign(scores.begin(), scores.end());
    for (const auto sums :
         {states_[0].chunk_sums(kSparseLayer), states_[0].memory_sums(kSparseLayer)}) {
      outcome_.open_sums.insert(outcome_.open_sums.end(), sums.begin(), sums.end());
    }
    return outcome_;
  }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(case_.head_dim)); }

 private:
  std::uint32_t n_positions() const { return static_cast<std::uint32_t>(in_.q.size()); }
  PassLimits limits(bool sparse) const {
    PassLimits limits = {.max_rows = n_positions(),
                         .max_decode_rows = 1,
                         .max_context = n_positions(),
                         .n_heads = case_.n_heads,
                         .n_kv_heads = case_.n_kv_heads,
                         .head_dim = case_.head_dim,
                         .max_cols = 16};
    if (sparse) limits.sparse_prefill = {case_.sparse, case_.type, case_.type};
    return limits;
  }
  void keep_sets() {
    outcome_.sets.emplace_back();
    outcome_.sums.emplace_back();
    for (std::uint32_t head = 0; head < case_.n_kv_heads; ++head) {
      const auto members = states_[0].members(kSparseLayer, head);
      outcome_.sets.back().emplace_back(members.begin(), members.end());
      const float* sums = states_[0].accumulators(kSparseLayer).data() +
                          std::size_t{head} * memory_set_size(case_.sparse);
      outcome_.sums.back().emplace_back(sums, sums + members.size());
    }
  }

  const SparseCase& case_;
  const NaiveSparseInput& in_;
  Bench bench_;
  AttentionText text_;
  std::vector<SparsePrefillState> states_;
  SparseOutcome outcome_;
};

SparseOutcome run_in_passes(const SparseCase& c, const NaiveSparseInput& in, unsigned n_threads,
                            const std::vector<std::uint32_t>& sizes, const BackendTier& tier) {
  Prompt run(c, in, n_threads, tier);
  for_passes(in.q.size(), sizes, [&](std::uint32_t n) { run.pass(n); });
  return run.finish();
}

// Passes that end with each chunk, so that every memory set is seen.
SparseOutcome run_by_chunks(const SparseCase& c, const NaiveSparseInput& in,
                            const BackendTier& tier) {
  return run_in_passes(c, in, 2, {c.sparse.chunk}, tier);
}

// What the memory set that serves from `end` on is chosen of.
Choice choice_of(const SparseCase& c, std::vector<std::int32_t> candidates, std::uint32_t end) {
  for (std::uint32_t j = end - c.sparse.chunk; j < end; ++j) {
    candidates.push_back(static_cast<std::int32_t>(j));
  }
  return {.candidates = std::move(candidates),
          .end = end,
          .most = memory_set_size(c.sparse),
          .sinks = c.sparse.sinks,
          .first_local = end - c.sparse.local,
          .ranking = c.sparse.ranking,
          .slack = 0x1p-7 + c.rounding};  // scores are rounded to 8 bits when a chunk ends
}

void expect_sparse_as_defined(const SparseCase& c, std::uint32_t n, const BackendTier& tier) {
  const NaiveSparseInput in = random_input(c, n, 7 + n);
  const SparseOutcome got = run_by_chunks(c, in, tier);
  testing_support::NaiveSparseShape shape = {.n_heads = c.n_heads,
                                             .n_kv_heads = c.n_kv_heads,
                                             .head_dim = c.head_dim,
                                             .chunk = c.sparse.chunk,
                                             .scale = 1 / std::sqrt(1.0 * c.head_dim),
                                             .soft_cap = static_cast<double>(c.soft_cap),
                                             .slopes = {c.slopes.begin(), c.slopes.end()},
                                             .bf16_biases = c.bf16_biases};
  MemorySets sets = got.sets;
  sets.insert(sets.begin(), std::vector<std::vector<std::int32_t>>(c.n_kv_heads));
  const auto want = naive_sparse_attention(shape, as_stored(in, c.type, c.head_dim), sets);
  SCOPED_TRACE(std::string(kv_type_name(c.type)) + ", n " + std::to_string(n));
  expect_outputs(got.out, want.out, 1e-4 + c.rounding);
  for (std::uint32_t head = 0; head < c.n_kv_heads; ++head) {
    std::vector<double> sums(n);
    for (std::uint32_t end = c.sparse.chunk, chunk = 0; end <= n; end += c.sparse.chunk, ++chunk) {
      for (std::uint32_t j = 0; j < n; ++j) sums[j] += want.paid[chunk][head][j];
      const std::vector<std::int32_t>& set = sets[chunk + 1][head];
      expect_well_chosen(choice_of(c, sets[chunk][head], end), set, sums);
      expect_sums(got.sums[chunk][head], set, sums, 0x1p-7 + c.rounding);
    }
  }
}

class CpuSparseAttentionTest : public testing::TestWithParam<BackendTier> {};

TEST_P(CpuSparseAttentionTest, LengthsMatchTheDefinition) {
  const SparseCase c;
  for (const std::uint32_t n : {1U, 127U, 128U, 129U, 255U, 256U, 5 * 128U + 3U}) {
    expect_sparse_as_defined(c, n, GetParam());
  }
}

TEST_P(CpuSparseAttentionTest, ShapesMatchTheDefinition) {
  for (const auto& [n_heads, n_kv_heads, head_dim] :
       {std::tuple{2U, 1U, 64U}, {4U, 1U, 80U}, {8U, 1U, 128U}, {4U, 2U, 40U}}) {
    for (const KvType type : kAllKvTypes) {
      expect_sparse_as_defined(
          {.n_heads = n_heads, .n_kv_heads = n_kv_heads, .head_dim = head_dim, .type = type}, 300,
          GetParam());
    }
  }
}

// Chunks that begin and end inside pages and tiles, memory sets of less and more than a page, of
// local positions or heavy ones alone, and a last chunk shorter than the local window.
TEST_P(CpuSparseAttentionTest, OptionsMatchTheDefinition) {
  const SparsePrefillOptions options[] = {
      {.local = 30, .heavy = 30, .chunk = 100, .sinks = 4},
      {.local = 0, .heavy = 70, .chunk = 96, .sinks = 0},
      {.local = 90, .heavy = 0, .chunk = 101, .sinks = 0},
      {.local = 3, .heavy = 5, .chunk = 9, .sinks = 5},
      {.local = 64, .heavy = 100, .chunk = 190, .sinks = 4, .ranking = H2oRanking::kSum},
  };
  for (const SparsePrefillOptions& sparse : options) {
    expect_sparse_as_defined({.n_heads = 4, .sparse = sparse}, 3 * sparse.chunk + 7, GetParam());
  }
}

TEST_P(CpuSparseAttentionTest, CapsAndSlopesMatchTheDefinition) {
  expect_sparse_as_defined({.soft_cap = 1.5F}, 300, GetParam());
  expect_sparse_as_defined({.slopes = {0.0625F, 0.001953125F}}, 300, GetParam());
  // A memory set of two pages, whose positions are the members' own.
  expect_sparse_as_defined(
      {.sparse = {.local = 40, .heavy = 60, .chunk = 128}, .slopes = {0.01F, 0.001953125F}}, 300,
      GetParam());
  expect_sparse_as_defined({.slopes = {0.0625F, 0.5F}, .bf16_biases = true}, 300, GetParam());
  expect_sparse_as_defined({.type = KvType::k4Bit, .soft_cap = 2.0F, .slopes = {0.01F, 0.02F}}, 300,
                           GetParam());
}

TEST_P(CpuSparseAttentionTest, BitsDependNeitherOnPassesNorOnThreads) {
  for (const SparseCase& c : {SparseCase{.n_heads = 4}, SparseCase{.n_heads = 4, .exact = false},
                              SparseCase{.n_heads = 4, .type = KvType::k8Bit},
                              SparseCase{.n_heads = 6,
                              .type = KvType::kF16,
                              .sparse = {.local = 30, .heavy = 30, .chunk = 100}}}) {
    const std::uint32_t chunk = c.sparse.chunk;
    const NaiveSparseInput in = random_input(c, 4 * chunk + 33, 3);
    const SparseOutcome want = run_in_passes(c, in, 1, {chunk}, GetParam());
    for (const unsigned n_threads : {1U, 2U, 3U}) {
      for (const std::vector<std::uint32_t>& sizes :
           {std::vector<std::uint32_t>{2 * chunk}, {4 * chunk + 33}, {75}, {1, 200, 3, 61}}) {
        EXPECT_TRUE(run_in_passes(c, in, n_threads, sizes, GetParam()) == want)
            << n_threads << " threads, passes of " << sizes[0];
      }
    }
  }
}

TEST_P(CpuSparseAttentionTest, TheFirstChunkIsPlainAttentionBitForBit) {
  const SparseCase c = {.n_heads = 4, .type = KvType::kF16};
  const NaiveSparseInput in = random_input(c, 300, 5);
  const SparseOutcome sparse = run_in_passes(c, in, 2, {70}, GetParam());
  Prompt plain(c, in, 2, GetParam(), false);
  plain.pass(300);
  const SparseOutcome& full = plain.finish();
  for (std::uint32_t i = 0; i < c.sparse.chunk; ++i) EXPECT_EQ(sparse.out[i], full.out[i]) << i;
  EXPECT_NE(sparse.out[c.sparse.chunk + 60], full.out[c.sparse.chunk + 60]);
}

// Generated rows see everything, and what they pay to their chunk and its memory set counts: the
// sets of a second prompt are those of one prompt over the same rows.
TEST_P(CpuSparseAttentionTest, GeneratedRowsSeeAllAndAreScored) {
  const SparseCase c = {.n_heads = 4};
  const NaiveSparseInput in = random_input(c, 400, 6);
  const SparseOutcome prompt = run_by_chunks(c, in, GetParam());
  Prompt turns(c, in, 2, GetParam());
  turns.pass(150);
  for (int i = 0; i < 30; ++i) turns.pass(1, RowRole::kGenerated);
  turns.pass(100);
  turns.pass(120);
  const SparseOutcome got = turns.finish();
  Prompt plain(c, in, 2, GetParam(), false);
  plain.pass(400);
  const SparseOutcome full = plain.finish();
  for (std::uint32_t i = 0; i < 400; ++i) {
    const bool sees_all = i < 128 || (i >= 150 && i < 180);
    const std::vector<float>& want = (sees_all ? full : prompt).out[i];
    for (std::size_t d = 0; d < want.size(); ++d) ASSERT_NEAR(got.out[i][d], want[d], 1e-5) << i;
  }
  EXPECT_EQ(got.sets.back(), prompt.sets.back());
  EXPECT_EQ(got.open_sums, prompt.open_sums);
}

// Queries, keys, values and weights are rounded to 2^-9 of their size there. Scores are sums of up
// to 64 products that rarely pass 4 together.
TEST(MatrixUnitsSparseAttentionTest, StayWithinTheirRounding) {
  if (std::ranges::count(host_tiers(), kernels::Isa::kAmx) == 0) {
    GTEST_SKIP() << "the CPU has neither matrix units nor what emulates them";
  }
  for (const KvType type : {KvType::kF32, KvType::k4Bit}) {
    SparseCase c = {.n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .type = type};
    const NaiveSparseInput in = random_input(c, 400, 407);
    const SparseOutcome exact = run_by_chunks(c, in, kernels::Isa::kAmx);
    c.exact = false;
    c.rounding = 4 * 4 * 0x1p-9;
    expect_sparse_as_defined(c, 400, kernels::Isa::kAmx);
    // Prompt rows take the tiles, those of the first chunk and of the next ones, and nothing else
    // does.
    const SparseOutcome tiles = run_by_chunks(c, in, kernels::Isa::kAmx);
    EXPECT_NE(tiles.out[3], exact.out[3]);
    EXPECT_NE(tiles.out[300], exact.out[300]);
    EXPECT_EQ(run_by_chunks(c, in, kernels::Isa::kAvx512Vnni).out, exact.out);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiers, CpuSparseAttentionTest, testing::ValuesIn(backend_tiers()),
                         [](const auto& tier) { return tier.param.name(); });

}  // namespace
}  // namespace qsf
