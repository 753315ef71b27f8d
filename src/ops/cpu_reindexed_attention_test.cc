// SPDX-License-Identifier: MIT
//
// Attention whose rows meet the sinks by place, held to its definition in f64: what a row sees is a
// text of its own, in which every key and the row are rotated by their place. And to the promises
// that bits depend on no cut of a prompt, and are the window's as long as everything fits.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "ops/testing/bench.h"
#include "ops/testing/stored_rows.h"

namespace qsf {
namespace {

using testing_support::as_stored;
using testing_support::backend_tiers;
using testing_support::BackendTier;
using testing_support::Bench;
using testing_support::random_values;

using Rows = std::vector<std::vector<float>>;

constexpr std::uint32_t kReindexedContext = 700;
constexpr std::uint32_t kReindexedLayer = 1;

struct ReindexedCase {
  std::uint32_t n_heads = 4;
  std::uint32_t n_kv_heads = 2;
  std::uint32_t head_dim = 16;
  std::uint32_t rope_dims = 16;
  std::uint32_t window = 100;
  std::uint32_t sinks = 4;
  KvType type = KvType::kF32;
  std::uint32_t model_window = 0;
  std::uint32_t rounded_positions = 0;
  float factor = 1.0F;  // of cos and sin
  bool reindex = true;
};

struct Sequence {
  Rows q, k, v;
};

Sequence random_sequence(const ReindexedCase& c, std::uint64_t seed) {
  Rng rng(seed);
  Sequence s;
  for (std::uint32_t i = 0; i < kReindexedContext; ++i) {
    s.q.push_back(random_values(std::size_t{c.n_heads} * c.head_dim, rng));
    s.k.push_back(random_values(std::size_t{c.n_kv_heads} * c.head_dim, rng));
    s.v.push_back(random_values(std::size_t{c.n_kv_heads} * c.head_dim, rng));
  }
  return s;
}

std::vector<float> frequencies(const ReindexedCase& c) {
  std::vector<float> f;
  for (std::uint32_t i = 0; i < c.rope_dims / 2; ++i) {
    f.push_back(static_cast<float>(0.97 * std::pow(1000.0, -2.0 * i / c.rope_dims)));
  }
  return f;
}

struct ReindexedOutcome {
  Rows out;
  Rows rotated_keys;  // before they were stored
};

ReindexedOutcome attend_all(const ReindexedCase& c, const Sequence& s, unsigned n_threads,
                            std::uint32_t pass_rows, RowRole role, const BackendTier& tier) {
  Bench bench(n_threads,
              {.max_rows = pass_rows,
               .max_decode_rows = pass_rows,
               .max_context = kReindexedContext,
               .window = c.window,
               .sinks = c.sinks,
               .rope_reindex = c.reindex,
               .n_heads = c.n_heads,
               .n_kv_heads = c.n_kv_heads,
               .head_dim = c.head_dim,
               .rope_dims = c.rope_dims,
               .max_cols = 256},
              c.type, tier, /*exact=*/true);
  Backend& backend = bench.backend();
  const Buffer q = bench.buffer(pass_rows, c.n_heads * c.head_dim);
  const Buffer k = bench.buffer(pass_rows, c.n_kv_heads * c.head_dim);
  const Buffer v = bench.buffer(pass_rows, c.n_kv_heads * c.head_dim);
  const Buffer out = bench.buffer(pass_rows, c.n_heads * c.head_dim);
  const Buffer q_sinks = c.reindex ? bench.buffer(pass_rows, c.n_heads * c.head_dim) : Buffer{};
  const std::vector<float> inverse = frequencies(c);
  ReindexedOutcome outcome;
  for (std::uint32_t done = 0; done < kReindexedContext;) {
    const std::uint32_t n = std::min(pass_rows, kReindexedContext - done);
    bench.begin(n, role,
                {{.inverse_frequencies = inverse,
                  .factor = c.factor,
                  .rounded_positions = c.rounded_positions}});
    for (std::uint32_t i = 0; i < n; ++i) {
      backend.upload_row(q, i, s.q[done + i]);
      backend.upload_row(k, i, s.k[done + i]);
      backend.upload_row(v, i, s.v[done + i]);
    }
    if (c.reindex) backend.rope_at_cache_position(q, q_sinks, c.n_heads, 0);
    backend.rope(q, c.n_heads, 0);
    backend.rope(k, c.n_kv_heads, 0);
    backend.store_kv(kReindexedLayer, k, v);
    backend.attend({.layer = kReindexedLayer,
                    .q = q,
                    .out = out,
                    .q_sinks = q_sinks,
                    .scale = 0.3F,
                    .window = c.model_window});
    EXPECT_TRUE(backend.wait().ok());
    for (std::uint32_t i = 0; i < n; ++i) {
      const auto row = backend.read_row(out, i);
      outcome.out.emplace_back(row.begin(), row.end());
      const auto key = backend.read_row(k, i);
      outcome.rotated_keys.emplace_back(key.begin(), key.end());
    }
    done += n;
  }
  return outcome;
}

// Returns a head turned on by so many positions.
std::vector<double> turned(std::span<const float> head, const ReindexedCase& c, double positions) {
  std::vector<double> x(head.begin(), head.end());
  const std::vector<float> inverse = frequencies(c);
  const std::size_t n_pairs = inverse.size();
  for (std::size_t i = 0; i < n_pairs; ++i) {
    const double angle = positions * static_cast<double>(inverse[i]);
    const double low = x[i];
    const double high = x[i + n_pairs];
    x[i] = low * std::cos(angle) - high * std::sin(angle);
    x[i + n_pairs] = high * std::cos(angle) + low * std::sin(angle);
  }
  return x;
}

// What row `i` gets: the positions it sees, each at its place among them, and nothing else.
// `keys` are rotated by their positions.
std::vector<double> by_definition(const ReindexedCase& c, const Rows& q, const Rows& keys,
                                  const Rows& values, std::uint32_t i) {
  std::vector<std::uint32_t> seen;
  for (std::uint32_t j = 0; j <= i; ++j) {
    if (j < c.sinks || j + c.window > i) seen.push_back(j);
  }
  const std::size_t n = seen.size();
  const std::size_t first = c.model_window != 0 && n > c.model_window ? n - c.model_window : 0;
  std::vector<double> out(q[i].size());
  for (std::uint32_t head = 0; head < c.n_heads; ++head) {
    const std::size_t at = std::size_t{head} * c.head_dim;
    const std::size_t kv_at = std::size_t{head / (c.n_heads / c.n_kv_heads)} * c.head_dim;
    const auto head_of = [&](const Rows& rows, std::uint32_t row, std::size_t column) {
      return std::span<const float>(rows[row]).subspan(column, c.head_dim);
    };
    std::vector<double> query = turned(head_of(q, i, at), c, static_cast<double>(n - 1));
    for (std::uint32_t d = 0; d < c.rope_dims; ++d) query[d] *= c.factor;
    std::vector<double> weights(n);
    double total = 0;
    for (std::size_t place = first; place < n; ++place) {
      const std::uint32_t j = seen[place];
      const std::vector<double> key =
          turned(head_of(keys, j, kv_at), c, static_cast<double>(place) - j);
      double score = 0;
      for (std::uint32_t d = 0; d < c.head_dim; ++d) score += query[d] * key[d];
      weights[place] = std::exp(static_cast<double>(0.3F) * score);
      total += weights[place];
    }
    for (std::size_t place = first; place < n; ++place) {
      for (std::uint32_t d = 0; d < c.head_dim; ++d) {
        out[at + d] += weights[place] / total * values[seen[place]][kv_at + d];
      }
    }
  }
  return out;
}

void expect_reindexed_as_defined(const ReindexedCase& c, const BackendTier& tier) {
  const Sequence s = random_sequence(c, 11);
  const ReindexedOutcome prompt = attend_all(c, s, 2, 75, RowRole::kPrompt, tier);
  const ReindexedOutcome generated = attend_all(c, s, 2, 4, RowRole::kGenerated, tier);
  Rows keys;
  Rows values;
  for (std::uint32_t i = 0; i < kReindexedContext; ++i) {
    for (std::uint32_t head = 0; head < c.n_kv_heads; ++head) {
      const std::size_t at = std::size_t{head} * c.head_dim;
      const auto want = turned(std::span(s.k[i]).subspan(at, c.head_dim), c, i);
      for (std::uint32_t d = 0; d < c.head_dim; ++d) {
        const double factor = d < c.rope_dims ? c.factor : 1.0F;
        ASSERT_NEAR(prompt.rotated_keys[i][at + d], factor * want[d], 4e-6) << i;
      }
    }
    keys.push_back(as_stored(prompt.rotated_keys[i], c.type, c.head_dim, /*keys=*/true));
    values.push_back(as_stored(s.v[i], c.type, c.head_dim, /*keys=*/false));
  }
  const std::uint32_t fits = c.sinks + c.window;
  for (const std::uint32_t row : {0U, 1U, c.window, fits - 1, fits, fits + 1, fits + 63, 511U, 512U,
                                  640U, kReindexedContext - 1}) {
    const auto want = by_definition(c, s.q, keys, values, row);
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(prompt.out[row][i], want[i], 1e-4)
          << kv_type_name(c.type) << " row " << row << " column " << i;
      ASSERT_NEAR(generated.out[row][i], want[i], 1e-4)
          << kv_type_name(c.type) << " row " << row << " column " << i;
    }
  }
}

class CpuReindexedAttentionTest : public testing::TestWithParam<BackendTier> {};

// A query and a KV head each, groups, heads of which only a part rotates, and every type of rows.
TEST_P(CpuReindexedAttentionTest, ShapesMatchTheDefinition) {
  for (const KvType type : kAllKvTypes) {
    expect_reindexed_as_defined({.type = type}, GetParam());
    expect_reindexed_as_defined(
        {.n_heads = 2, .n_kv_heads = 2, .head_dim = 64, .rope_dims = 64, .type = type}, GetParam());
    expect_reindexed_as_defined(
        {.n_heads = 6, .n_kv_heads = 1, .head_dim = 40, .rope_dims = 24, .type = type}, GetParam());
  }
}

// Windows within a page and over several spans, sinks of a page and more, none and one of each, and
// windows of the model, which count places: shorter than the cache's, longer, and beyond the sinks.
TEST_P(CpuReindexedAttentionTest, WindowsMatchTheDefinition) {
  expect_reindexed_as_defined({.window = 1, .sinks = 1}, GetParam());
  expect_reindexed_as_defined({.window = 20, .sinks = 70}, GetParam());
  expect_reindexed_as_defined({.window = 570, .sinks = 4}, GetParam());
  expect_reindexed_as_defined({.window = 64, .sinks = 0}, GetParam());
  expect_reindexed_as_defined({.rope_dims = 8, .factor = 1.19F}, GetParam());
  expect_reindexed_as_defined({.model_window = 50}, GetParam());
  expect_reindexed_as_defined({.model_window = 102}, GetParam());
  expect_reindexed_as_defined({.model_window = 300}, GetParam());
}

TEST_P(CpuReindexedAttentionTest, BitsDependNeitherOnPassesNorThreadsNorRole) {
  for (const KvType type : {KvType::kF16, KvType::k4Bit}) {
    const ReindexedCase c = {.type = type};
    const Sequence s = random_sequence(c, 12);
    const Rows want = attend_all(c, s, 1, kReindexedContext, RowRole::kPrompt, GetParam()).out;
    for (const std::uint32_t rows : {1U, 13U, 64U, 300U}) {
      EXPECT_EQ(attend_all(c, s, 2, rows, RowRole::kPrompt, GetParam()).out, want) << rows;
    }
    EXPECT_EQ(attend_all(c, s, 3, 5, RowRole::kGenerated, GetParam()).out,
              attend_all(c, s, 1, 1, RowRole::kGenerated, GetParam()).out);
  }
}

TEST_P(CpuReindexedAttentionTest, WhatFitsHasTheBitsOfTheWindow) {
  ReindexedCase c = {.type = KvType::kF16};
  const Sequence s = random_sequence(c, 13);
  for (const RowRole role : {RowRole::kPrompt, RowRole::kGenerated}) {
    c.reindex = true;
    const Rows reindexed = attend_all(c, s, 2, 61, role, GetParam()).out;
    c.reindex = false;
    const Rows plain = attend_all(c, s, 2, 61, role, GetParam()).out;
    const std::uint32_t fits = c.sinks + c.window;
    for (std::uint32_t i = 0; i < fits; ++i) EXPECT_EQ(reindexed[i], plain[i]) << i;
    for (std::uint32_t i = fits; i < kReindexedContext; ++i) EXPECT_NE(reindexed[i], plain[i]) << i;
  }
}

// The products of the first positions are rounded, those from there on are not.
TEST_P(CpuReindexedAttentionTest, AnglesAreRoundedUpToTheTrainedLength) {
  ReindexedCase c = {};
  const Sequence s = random_sequence(c, 14);
  const auto keys_of = [&](std::uint32_t rounded_positions) {
    c.rounded_positions = rounded_positions;
    return attend_all(c, s, 2, 100, RowRole::kPrompt, GetParam()).rotated_keys;
  };
  const Rows some = keys_of(500);
  const Rows all = keys_of(kReindexedContext);
  const Rows none = keys_of(0);
  std::uint32_t n_different = 0;
  for (std::uint32_t i = 0; i < kReindexedContext; ++i) {
    EXPECT_EQ(some[i], i < 500 ? all[i] : none[i]) << i;
    if (all[i] != none[i]) ++n_different;
  }
  EXPECT_GT(n_different, kReindexedContext / 2);
}

INSTANTIATE_TEST_SUITE_P(Tiers, CpuReindexedAttentionTest, testing::ValuesIn(backend_tiers()),
                         [](const auto& tier) { return tier.param.name(); });

}  // namespace
}  // namespace qsf
