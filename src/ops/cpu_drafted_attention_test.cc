// SPDX-License-Identifier: MIT
//
// Generated and drafted rows of a sequence in one pass: each has the bits that it has alone, in a
// chain and in a tree, where a row sees its own branch only; and trees match the definition in f64.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ops/testing/bench.h"
#include "ops/testing/stored_rows.h"

namespace qsf {
namespace {

using testing_support::as_stored;
using testing_support::backend_tiers;
using testing_support::BackendTier;
using testing_support::Bench;
using testing_support::is_emulated;
using testing_support::NaiveSparseInput;
using testing_support::random_rows;

constexpr std::uint32_t kDraftedHeads = 4;
constexpr std::uint32_t kDraftedKvHeads = 2;
constexpr std::uint32_t kDraftedHeadDim = 16;
constexpr std::uint32_t kDraftedContext = 700;
constexpr std::uint32_t kDraftedLayer = 1;
constexpr float kScale = 0.3F;

struct DraftedCase {
  KvType type = KvType::kF32;
  std::uint32_t window = 0;  // of the model
  float soft_cap = 0.0F;
  std::vector<float> slopes = {};
  std::uint32_t kept = 0;  // by the KV policy, behind the sinks; 0: all
  std::uint32_t sinks = 0;
};

const std::vector<float> kSlopes = {0.5F, 0.0625F, 0.015625F, 0.001953125F};
const DraftedCase kCases[] = {
    {},
    {.type = KvType::kF16, .window = 100},
    {.type = KvType::k8Bit, .soft_cap = 1.5F, .slopes = kSlopes},
    {.type = KvType::k4Bit, .kept = 90, .sinks = 4},
    {.type = KvType::k2Bit, .window = 40, .kept = 100, .sinks = 4},
    {.type = KvType::kF32, .slopes = kSlopes, .kept = 5, .sinks = 2},
};

using Outputs = std::vector<std::vector<float>>;

// Rows of one layer in passes; row i of a text is row i of `rows`.
class Attention {
 public:
  Attention(const DraftedCase& c, const NaiveSparseInput& rows, std::uint32_t max_drafts,
            const BackendTier& tier, unsigned n_threads = 2)
      : case_(c), rows_(rows), bench_(n_threads, limits(c, max_drafts), c.type, tier) {
    q_ = bench_.buffer(kDraftedContext, kDraftedHeads * kDraftedHeadDim);
    k_ = bench_.buffer(kDraftedContext, kDraftedKvHeads * kDraftedHeadDim);
    v_ = bench_.buffer(kDraftedContext, kDraftedKvHeads * kDraftedHeadDim);
    out_ = bench_.buffer(kDraftedContext, kDraftedHeads * kDraftedHeadDim);
  }

  // The next rows of a text are `list`.
  Outputs pass(std::span<const std::uint32_t> list, RowRole role) {
    bench_.begin(static_cast<std::uint32_t>(list.size()), role);
    return run(list);
  }
  Outputs tree(std::span<const std::uint32_t> list, std::span<const std::uint64_t> ancestors) {
    bench_.begin_tree(ancestors);
    return run(list);
  }
  Bench& bench() { return bench_; }

 private:
  static PassLimits limits(const DraftedCase& c, std::uint32_t max_drafts) {
    PassLimits limits = {.max_rows = kDraftedContext,
                         .max_decode_rows = max_drafts + 1,
                         .max_context = kDraftedContext,
                         .window = c.kept,
                         .sinks = c.sinks,
                         .n_heads = kDraftedHeads,
                         .n_kv_heads = kDraftedKvHeads,
                         .head_dim = kDraftedHeadDim,
                         .max_cols = 64};
    if (max_drafts > 0) limits.drafts = {max_drafts, c.type, c.type};
    return limits;
  }
  Outputs run(std::span<const std::uint32_t> list) {
    Backend& backend = bench_.backend();
    const auto n = static_cast<std::uint32_t>(list.size());
    for (std::uint32_t i = 0; i < n; ++i) {
      backend.upload_row(q_, i, rows_.q[list[i]]);
      backend.upload_row(k_, i, rows_.k[list[i]]);
      backend.upload_row(v_, i, rows_.v[list[i]]);
    }
    backend.store_kv(kDraftedLayer, k_, v_);
    backend.attend({.layer = kDraftedLayer,
                    .q = q_,
                    .out = out_,
                    .scale = kScale,
                    .window = case_.window,
                    .soft_cap = case_.soft_cap,
                    .slopes = case_.slopes});
    EXPECT_TRUE(backend.wait().ok());
    Outputs outputs;
    for (std::uint32_t i = 0; i < n; ++i) {
      const auto row = backend.read_row(out_, i);
      outputs.emplace_back(row.begin(), row.end());
    }
    return outputs;
  }

  const DraftedCase& case_;
  const NaiveSparseInput& rows_;
  Bench bench_;
  Buffer q_, k_, v_, out_;
};

NaiveSparseInput text_rows(std::uint64_t seed) {
  return random_rows({kDraftedHeads, kDraftedKvHeads, kDraftedHeadDim}, kDraftedContext, seed);
}

std::vector<std::uint32_t> count_from(std::uint32_t first, std::uint32_t n) {
  std::vector<std::uint32_t> list;
  for (std::uint32_t i = 0; i < n; ++i) list.push_back(first + i);
  return list;
}

// The output of the last row of a path by the definition.
std::vector<double> naive_output(const DraftedCase& c, const NaiveSparseInput& rows,
                                 std::span<const std::uint32_t> path) {
  std::vector<double> out(std::size_t{kDraftedHeads} * kDraftedHeadDim);
  const std::size_t last = path.size() - 1;
  for (std::uint32_t head = 0; head < kDraftedHeads; ++head) {
    const std::size_t kv = std::size_t{head} / (kDraftedHeads / kDraftedKvHeads) * kDraftedHeadDim;
    std::vector<double> weights;
    double total = 0;
    for (std::size_t j = 0; j <= last; ++j) {
      const bool kept = c.kept == 0 || j < c.sinks || last - j < c.kept;
      const bool seen = kept && (c.window == 0 || last - j < c.window);
      double score = 0;
      for (std::size_t d = 0; d < kDraftedHeadDim; ++d) {
        score += static_cast<double>(rows.q[path[last]][head * kDraftedHeadDim + d]) *
                 static_cast<double>(rows.k[path[j]][kv + d]);
      }
      score *= static_cast<double>(kScale);
      const double cap = c.soft_cap;
      if (cap != 0.0) score = cap * std::tanh(score / cap);
      if (!c.slopes.empty()) {
        score += static_cast<double>(c.slopes[head]) *
                 (static_cast<double>(j) - static_cast<double>(last));
      }
      weights.push_back(seen ? std::exp(score) : 0.0);
      total += weights.back();
    }
    for (std::size_t j = 0; j <= last; ++j) {
      for (std::size_t d = 0; d < kDraftedHeadDim; ++d) {
        out[head * kDraftedHeadDim + d] +=
            weights[j] / total * static_cast<double>(rows.v[path[j]][kv + d]);
      }
    }
  }
  return out;
}

// Rows of a tree by their parents, which lie above them; -1 is the text before the tree.
struct Tree {
  std::vector<int> parents;

  static Tree random(std::uint32_t n, std::uint64_t seed) {
    Rng rng(seed);
    Tree tree;
    for (std::uint32_t i = 0; i < n; ++i) {
      // Most rows go on where the last one ended.
      const int any = static_cast<int>(rng.below(i + 1)) - 1;
      tree.parents.push_back(rng.below(3) == 0 ? any : static_cast<int>(i) - 1);
    }
    return tree;
  }
  std::vector<std::uint64_t> ancestors() const {
    std::vector<std::uint64_t> all;
    for (std::size_t i = 0; i < parents.size(); ++i) {
      const std::uint64_t above = parents[i] < 0 ? 0 : all[static_cast<std::size_t>(parents[i])];
      all.push_back(above | std::uint64_t{1} << i);
    }
    return all;
  }
  std::vector<std::uint32_t> path_to(std::size_t i) const {
    std::vector<std::uint32_t> path;
    for (int at = static_cast<int>(i); at >= 0; at = parents[static_cast<std::size_t>(at)]) {
      path.push_back(static_cast<std::uint32_t>(at));
    }
    std::ranges::reverse(path);
    return path;
  }
};

class CpuDraftedAttentionTest : public testing::TestWithParam<BackendTier> {};

TEST_P(CpuDraftedAttentionTest, RowsOfAPassHaveTheBitsOfEach) {
  const NaiveSparseInput rows = text_rows(1);
  for (const DraftedCase& c : kCases) {
    if (is_emulated(GetParam()) && c.type != KvType::k2Bit) continue;
    constexpr std::uint32_t kPrompt = 500;
    Attention single(c, rows, 0, GetParam());
    single.pass(count_from(0, kPrompt), RowRole::kPrompt);
    Outputs want;
    for (std::uint32_t i = kPrompt; i < 560; ++i) {
      want.push_back(single.pass(count_from(i, 1), RowRole::kGenerated).front());
    }
    for (const std::uint32_t n : {2U, 7U, 16U, 17U, 40U}) {
      for (const unsigned n_threads : {1U, 3U}) {
        Attention many(c, rows, n - 1, GetParam(), n_threads);
        many.pass(count_from(0, kPrompt), RowRole::kPrompt);
        Outputs got;
        for (std::uint32_t done = kPrompt; done < 560;) {
          const auto list = count_from(done, std::min(n, 560 - done));
          for (auto& row : many.pass(list, RowRole::kGenerated)) got.push_back(std::move(row));
          done += static_cast<std::uint32_t>(list.size());
        }
        EXPECT_EQ(got, want) << n << " rows, case " << &c - kCases;
      }
    }
  }
}

TEST_P(CpuDraftedAttentionTest, RowsOfATileReadTheirPagesOnce) {
  const NaiveSparseInput rows = text_rows(3);
  const auto bytes_of = [&](std::uint32_t max_drafts, std::uint32_t n_rows, std::uint32_t n_pass) {
    Attention attention(kCases[0], rows, max_drafts, GetParam());
    attention.pass(count_from(0, 600), RowRole::kPrompt);
    const OperatorTimes& times = attention.bench().backend().profile()[OperatorKind::kAttend];
    const std::uint64_t before = times.bytes;
    for (std::uint32_t done = 0; done < n_rows; done += n_pass) {
      attention.pass(count_from(600 + done, n_pass), RowRole::kGenerated);
    }
    return times.bytes - before;
  };
  const std::uint64_t one = bytes_of(0, 1, 1) / 601;  // of a slot
  EXPECT_EQ(bytes_of(15, 16, 16), 616 * one);
  EXPECT_EQ(bytes_of(31, 32, 32), (616 + 632) * one);
  EXPECT_EQ(bytes_of(15, 2, 1), (601 + 602) * one);
}

// Prefixes that end within a page, at its end and at that of a span.
TEST_P(CpuDraftedAttentionTest, RowsOfATreeHaveTheBitsOfTheirPaths) {
  const NaiveSparseInput rows = text_rows(2);
  for (const DraftedCase& c : kCases) {
    if (is_emulated(GetParam()) && c.type != KvType::k2Bit) continue;
    const NaiveSparseInput stored = as_stored(rows, c.type, kDraftedHeadDim);
    for (const std::uint32_t prefix : {3U, 50U, 64U, 127U, 500U, 512U}) {
      const std::uint32_t n = prefix == 50 ? 64 : 21;
      const Tree tree = Tree::random(n, prefix);
      Attention many(c, rows, n - 1, GetParam());
      many.pass(count_from(0, prefix), RowRole::kPrompt);
      const Outputs got = many.tree(count_from(prefix, n), tree.ancestors());
      Attention single(c, rows, 0, GetParam());
      single.pass(count_from(0, prefix), RowRole::kPrompt);
      for (std::uint32_t i = 0; i < n; ++i) {
        std::vector<float> want;
        std::vector<std::uint32_t> path = count_from(0, prefix);
        for (const std::uint32_t row : tree.path_to(i)) {
          path.push_back(prefix + row);
          want = single.pass({&path.back(), 1}, RowRole::kGenerated).front();
        }
        EXPECT_EQ(got[i], want) << "row " << i << " behind " << prefix << ", case " << &c - kCases;
        single.bench().kv().truncate(single.bench().sequence(), prefix);
        const std::vector<double> naive = naive_output(c, stored, path);
        for (std::size_t d = 0; d < naive.size(); ++d) {
          ASSERT_NEAR(got[i][d], naive[d], 6 * 64 * 0x1p-24) << i << ", case " << &c - kCases;
        }
      }
    }
  }
}

// Rows behind an accepted path see it as if it had never been drafted.
TEST_P(CpuDraftedAttentionTest, RowsBehindAMovedPathHaveTheBitsOfPlainText) {
  const NaiveSparseInput rows = text_rows(4);
  for (const DraftedCase& c : kCases) {
    if (is_emulated(GetParam()) && c.type != KvType::k2Bit) continue;
    for (const std::uint32_t prefix : {50U, 64U, 500U}) {
      constexpr std::uint32_t kRows = 30;
      const Tree tree = Tree::random(kRows, prefix + 1);
      Attention many(c, rows, kRows - 1, GetParam());
      Attention single(c, rows, 0, GetParam());
      many.pass(count_from(0, prefix), RowRole::kPrompt);
      single.pass(count_from(0, prefix), RowRole::kPrompt);
      many.tree(count_from(prefix, kRows), tree.ancestors());
      std::vector<std::uint32_t> accepted = tree.path_to(kRows - 2);
      for (std::uint32_t& slot : accepted) {
        slot += prefix;
        single.pass({&slot, 1}, RowRole::kGenerated);
      }
      std::vector<RowMove> moves(accepted.size());
      Bench& bench = many.bench();
      moves.resize(bench.kv().commit_path(bench.sequence(), prefix, accepted, moves));
      bench.backend().move_rows(moves);
      const auto next = count_from(prefix + kRows, 3);
      Outputs plain;
      for (const std::uint32_t row : next) {
        plain.push_back(single.pass({&row, 1}, RowRole::kGenerated).front());
      }
      EXPECT_EQ(many.pass(next, RowRole::kGenerated), plain)
          << "behind " << prefix << ", case " << &c - kCases;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiers, CpuDraftedAttentionTest, testing::ValuesIn(backend_tiers()),
                         [](const auto& tier) { return tier.param.name(); });

}  // namespace
}  // namespace qsf
