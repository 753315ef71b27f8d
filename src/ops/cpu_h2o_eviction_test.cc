// SPDX-License-Identifier: MIT
//
// Holds attention to heavy hitters and a window to its definition in f64, with the heavy hitters
// that the backend chose; those to the column sums of the definition; and its bits to the promise
// that they depend neither on the cut of a text nor on roles of rows nor on threads.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "kv/h2o_eviction.h"
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
using testing_support::MemorySets;
using testing_support::naive_sparse_attention;
using testing_support::NaiveSparseInput;
using testing_support::random_rows;

constexpr std::uint32_t kEvictedLayer = 1;
constexpr std::uint32_t kBlock = kEvictionBlock;

struct EvictionCase {
  std::uint32_t n_heads = 2;
  std::uint32_t n_kv_heads = 2;
  std::uint32_t head_dim = 16;
  KvType type = KvType::kF32;
  std::uint32_t window = 64;
  std::uint32_t heavy = 40;
  std::uint32_t sinks = 2;
  float soft_cap = 0.0F;
  std::vector<float> slopes = {};
};

NaiveSparseInput random_input(const EvictionCase& c, std::uint32_t n, std::uint64_t seed) {
  return random_rows({c.n_heads, c.n_kv_heads, c.head_dim}, n, seed);
}

struct EvictionOutcome {
  std::vector<std::vector<float>> out;
  MemorySets sets;                                      // after each pass, sorted
  std::vector<std::vector<std::vector<float>>> totals;  // of those, as `sets`
  std::vector<std::byte> contents;

  friend bool operator==(const EvictionOutcome& a, const EvictionOutcome& b) {
    return a.out == b.out && a.contents == b.contents;
  }
};

// Runs a text pass by pass.
class Text {
 public:
  Text(const EvictionCase& c, const NaiveSparseInput& in, unsigned n_threads,
       const BackendTier& tier, bool heavy = true)
      : case_(c),
        in_(in),
        bench_(n_threads, limits(heavy), c.type, tier, /*exact=*/true),
        text_(bench_, {c.n_heads, c.n_kv_heads, c.head_dim}, in) {
    if (heavy) {
      heavy_.push_back(
          H2oEviction::create(shape(), bench_.memory(H2oEviction::region_bytes(shape()))).value());
      bench_.backend().attach_h2o_eviction(heavy_);
    }
  }

  void pass(std::uint32_t n, RowRole role = RowRole::kPrompt) {
    text_.pass(n, role,
               {.layer = kEvictedLayer,
                .scale = 1.0F / std::sqrt(static_cast<float>(case_.head_dim)),
                .soft_cap = case_.soft_cap,
                .slopes = case_.slopes},
               outcome_.out);
    if (!heavy_.empty()) keep_sets();
  }
  const EvictionOutcome& finish() {
    if (heavy_.empty()) return outcome_;
    for (std::uint32_t head = 0; head < case_.n_kv_heads; ++head) {
      for (const MutableByteSpan part : heavy_[0].saved_parts(kEvictedLayer, head)) {
        outcome_.contents.insert(outcome_.contents.end(), part.begin(), part.end());
      }
    }
    return outcome_;
  }

 private:
  std::uint32_t n_positions() const { return static_cast<std::uint32_t>(in_.q.size()); }
  H2oEvictionShape shape() const {
    return {.kv = {.n_layers = 2,
                   .n_kv_heads = case_.n_kv_heads,
                   .head_dim = case_.head_dim,
                   .k_type = case_.type,
                   .v_type = case_.type},
            .kv_size = n_positions(),
            .options = {.policy = KvPolicy::kH2o,
                        .window = case_.window,
                        .sinks = case_.sinks,
                        .heavy = case_.heavy}};
  }
  PassLimits limits(bool heavy) const {
    PassLimits limits = {.max_rows = n_positions(),
                         .max_decode_rows = 1,
                         .max_context = n_positions(),
                         .n_heads = case_.n_heads,
                         .n_kv_heads = case_.n_kv_heads,
                         .head_dim = case_.head_dim,
                         .max_cols = 16};
    if (heavy) {
      limits.window = shape().n_recent();
      limits.h2o_eviction = {shape().n_slots(), shape().n_recent(), case_.type, case_.type};
    }
    return limits;
  }
  void keep_sets() {
    const H2oEviction& heavy = heavy_[0];
    outcome_.sets.emplace_back();
    outcome_.totals.emplace_back();
    for (std::uint32_t head = 0; head < case_.n_kv_heads; ++head) {
      std::vector<std::pair<std::int32_t, float>> members;
      for (std::uint32_t m = 0; m < heavy.n_members(kEvictedLayer); ++m) {
        members.emplace_back(heavy.members(kEvictedLayer, head)[m],
                             heavy.totals(kEvictedLayer, head)[m]);
      }
      std::ranges::sort(members);
      outcome_.sets.back().emplace_back();
      outcome_.totals.back().emplace_back();
      for (const auto& [position, total] : members) {
        outcome_.sets.back().back().push_back(position);
        outcome_.totals.back().back().push_back(total);
      }
    }
  }

  const EvictionCase& case_;
  const NaiveSparseInput& in_;
  Bench bench_;
  AttentionText text_;
  std::vector<H2oEviction> heavy_;
  EvictionOutcome outcome_;
};

EvictionOutcome run_in_passes(const EvictionCase& c, const NaiveSparseInput& in, unsigned n_threads,
                              const std::vector<std::uint32_t>& sizes, const BackendTier& tier,
                              RowRole role = RowRole::kPrompt) {
  Text text(c, in, n_threads, tier);
  for_passes(in.q.size(), sizes, [&](std::uint32_t n) { text.pass(n, role); });
  return text.finish();
}

// What the heavy hitters from `end` on are chosen of.
Choice choice_of(const EvictionCase& c, std::vector<std::int32_t> candidates, std::uint32_t end) {
  const std::uint32_t start = end - kBlock;
  const std::uint32_t first_recent = end - std::min(end, c.window);
  for (std::uint32_t j = start - std::min(start, c.window); j < first_recent; ++j) {
    candidates.push_back(static_cast<std::int32_t>(j));
  }
  return {.candidates = std::move(candidates),
          .end = end,
          .most = c.heavy,
          .sinks = c.sinks,
          .first_local = first_recent,
          .ranking = H2oRanking::kMean,
          .slack = 1e-5};
}

void expect_eviction_as_defined(const EvictionCase& c, std::uint32_t n, const BackendTier& tier) {
  const NaiveSparseInput in = random_input(c, n, 7 + n);
  const EvictionOutcome got = run_in_passes(c, in, 2, {kBlock}, tier);
  const testing_support::NaiveSparseShape shape = {.n_heads = c.n_heads,
                                                   .n_kv_heads = c.n_kv_heads,
                                                   .head_dim = c.head_dim,
                                                   .chunk = kBlock,
                                                   .window = c.window,
                                                   .scale = 1 / std::sqrt(1.0 * c.head_dim),
                                                   .soft_cap = static_cast<double>(c.soft_cap),
                                                   .slopes = {c.slopes.begin(), c.slopes.end()}};
  MemorySets sets = got.sets;
  sets.insert(sets.begin(), std::vector<std::vector<std::int32_t>>(c.n_kv_heads));
  const auto want = naive_sparse_attention(shape, as_stored(in, c.type, c.head_dim), sets);
  SCOPED_TRACE(std::string(kv_type_name(c.type)) + ", n " + std::to_string(n));
  expect_outputs(got.out, want.out, 1e-4);
  for (std::uint32_t head = 0; head < c.n_kv_heads; ++head) {
    std::vector<double> sums(n);
    for (std::uint32_t end = kBlock, block = 0; end <= n; end += kBlock, ++block) {
      for (std::uint32_t j = 0; j < n; ++j) sums[j] += want.paid[block][head][j];
      const std::vector<std::int32_t>& set = sets[block + 1][head];
      expect_well_chosen(choice_of(c, sets[block][head], end), set, sums);
      expect_sums(got.totals[block][head], set, sums, 1e-5);
    }
  }
}

class CpuH2oEvictionTest : public testing::TestWithParam<BackendTier> {};

TEST_P(CpuH2oEvictionTest, LengthsMatchTheDefinition) {
  const EvictionCase c;
  for (const std::uint32_t n : {1U, 63U, 64U, 65U, 128U, 191U, 192U, 9 * 64U + 3U}) {
    expect_eviction_as_defined(c, n, GetParam());
  }
}

TEST_P(CpuH2oEvictionTest, ShapesAndTypesMatchTheDefinition) {
  for (const auto& [n_heads, n_kv_heads, head_dim] :
       {std::tuple{2U, 2U, 64U}, {2U, 1U, 80U}, {4U, 1U, 128U}, {8U, 1U, 64U}, {6U, 2U, 40U}}) {
    for (const KvType type : kAllKvTypes) {
      expect_eviction_as_defined(
          {.n_heads = n_heads, .n_kv_heads = n_kv_heads, .head_dim = head_dim, .type = type}, 300,
          GetParam());
    }
  }
}

// Windows that begin inside pages and are shorter than a block, slots of less and more than a page,
// none, and no more than sinks.
TEST_P(CpuH2oEvictionTest, OptionsMatchTheDefinition) {
  const EvictionCase cases[] = {{.window = 100, .heavy = 70, .sinks = 4},
                                {.window = 1, .heavy = 130, .sinks = 0},
                                {.window = 33, .heavy = 5, .sinks = 5},
                                {.window = 64, .heavy = 0, .sinks = 0},
                                {.window = 130, .heavy = 64, .sinks = 1}};
  for (const EvictionCase& c : cases) expect_eviction_as_defined(c, 520, GetParam());
}

TEST_P(CpuH2oEvictionTest, CapsAndSlopesMatchTheDefinition) {
  expect_eviction_as_defined({.soft_cap = 1.5F}, 300, GetParam());
  // Two pages of slots, whose positions are the members' own.
  expect_eviction_as_defined({.window = 30, .heavy = 100, .slopes = {0.01F, 0.001953125F}}, 400,
                             GetParam());
  expect_eviction_as_defined({.type = KvType::k4Bit, .soft_cap = 2.0F, .slopes = {0.01F, 0.02F}},
                             300, GetParam());
}

// The store's bytes too, whose sums are those of open blocks and tiles.
TEST_P(CpuH2oEvictionTest, BitsDependNeitherOnPassesNorOnRolesNorOnThreads) {
  for (const EvictionCase& c :
       {EvictionCase{.n_heads = 8, .window = 100},
        EvictionCase{.n_heads = 6, .n_kv_heads = 2, .type = KvType::k8Bit, .heavy = 70},
        EvictionCase{.n_heads = 2, .type = KvType::kF16, .window = 30}}) {
    const NaiveSparseInput in = random_input(c, 6 * kBlock + 33, 3);
    const EvictionOutcome want = run_in_passes(c, in, 1, {kBlock}, GetParam());
    for (const unsigned n_threads : {1U, 2U, 3U}) {
      for (const std::vector<std::uint32_t>& sizes :
           {std::vector<std::uint32_t>{512}, {100}, {1, 200, 3, 61, 7}}) {
        EXPECT_TRUE(run_in_passes(c, in, n_threads, sizes, GetParam()) == want)
            << n_threads << " threads, passes of " << sizes[0];
      }
    }
    EXPECT_TRUE(run_in_passes(c, in, 2, {1}, GetParam(), RowRole::kGenerated) == want);
  }
}

TEST_P(CpuH2oEvictionTest, WhatIsAllKeptIsPlainAttention) {
  const std::uint32_t n = 300;
  for (const EvictionCase& c :
       {EvictionCase{.n_heads = 4, .window = 300}, EvictionCase{.window = 64, .heavy = 236},
        EvictionCase{.type = KvType::kF16, .window = 100, .heavy = 1000}}) {
    const NaiveSparseInput in = random_input(c, n, 5);
    const EvictionOutcome got = run_in_passes(c, in, 2, {70}, GetParam());
    Text plain(c, in, 2, GetParam(), /*heavy=*/false);
    plain.pass(n);
    const EvictionOutcome& full = plain.finish();
    for (std::uint32_t i = 0; i < n; ++i) {
      for (std::size_t d = 0; d < full.out[i].size(); ++d) {
        ASSERT_NEAR(got.out[i][d], full.out[i][d], 1e-5) << "row " << i << " column " << d;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiers, CpuH2oEvictionTest, testing::ValuesIn(backend_tiers()),
                         [](const auto& tier) { return tier.param.name(); });

}  // namespace
}  // namespace qsf
