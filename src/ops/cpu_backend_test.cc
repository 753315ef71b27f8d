// SPDX-License-Identifier: MIT
//
// Holds the CPU backend to plain loops in f64: products with bias, hook and row lists, attention
// over pages, windows and spans, and the promise that a row's bits do not depend on its company.

#include "ops/cpu_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "kernels/kernel_set.h"
#include "quant/codec.h"
#include "quant/interleave.h"

namespace qsf {
namespace {

struct AlignedBytes {
  explicit AlignedBytes(std::size_t n) : storage(n + 64) {}
  MutableByteSpan span() {
    void* p = storage.data();
    std::size_t space = storage.size();
    std::align(64, space - 64, p, space);
    return {static_cast<std::byte*>(p), storage.size() - 64};
  }
  std::vector<std::byte> storage;
};

// A backend with buffers, a cache of one sequence and everything it needs.
class Bench {
 public:
  Bench(unsigned n_threads, const PassLimits& limits, KvType kv_type,
        kernels::Isa isa = kernels::Isa::kScalar)
      : pool_(ThreadPool::create(n_threads).value()),
        backend_(*pool_, kernels::kernel_set(isa)),
        limits_(limits),
        shape_{.n_layers = 2,
               .n_kv_heads = limits.n_kv_heads,
               .head_dim = limits.head_dim,
               .k_type = kv_type,
               .v_type = kv_type} {
    const KvLimits kv_limits = {.n_pages = kv_pages_for(limits.max_context),
                                .max_sequences = 1,
                                .max_slots = limits.max_context};
    kv_.emplace(
        KvCache::create(shape_, kv_limits, memory(KvCache::region_bytes(kv_limits))).value());
    sequence_ = kv_->create_sequence().value();
    backend_.attach_kv(shape_, memory(backend_.kv_bytes(shape_, kv_limits.n_pages)));
    backend_.attach_scratch(limits, memory(backend_.scratch_bytes(limits)));
  }

  MutableByteSpan memory(std::size_t n) {
    blocks_.push_back(std::make_unique<AlignedBytes>(n));
    return blocks_.back()->span();
  }
  Buffer buffer(std::uint32_t n_rows, std::uint32_t n_cols) {
    return backend_.create_buffer(n_rows, n_cols, memory(backend_.buffer_bytes(n_rows, n_cols)));
  }
  // Starts a pass of `n` rows at the end of the sequence.
  void begin(std::uint32_t n, RowRole role, const Rotation& rotation = {}) {
    const std::uint32_t first = kv_->append(sequence_, n).value().first_slot;
    rows_.clear();
    for (std::uint32_t i = 0; i < n; ++i) {
      rows_.push_back({.sequence = sequence_,
                       .token = 0,
                       .position = static_cast<std::int32_t>(first + i),
                       .kv_slot = first + i,
                       .role = role,
                       .visible = {.prefix = first + i + 1, .ancestors = 0},
                       .adapter = 0,
                       .wants_output = false});
    }
    backend_.begin_pass(rows_, *kv_, rotation, nullptr);
  }

  CpuBackend& backend() { return backend_; }
  ThreadPool& pool() { return *pool_; }

 private:
  std::unique_ptr<ThreadPool> pool_;
  CpuBackend backend_;
  PassLimits limits_;
  KvShape shape_;
  std::vector<std::unique_ptr<AlignedBytes>> blocks_;
  std::optional<KvCache> kv_;
  SequenceId sequence_ = 0;
  std::vector<Row> rows_;
};

std::vector<float> random_values(std::size_t n, Rng& rng) {
  std::vector<float> values(n);
  for (float& value : values) value = rng.next_normal();
  return values;
}

constexpr std::uint32_t kHeads = 4;
constexpr std::uint32_t kKvHeads = 2;
constexpr std::uint32_t kHeadDim = 8;
constexpr std::uint32_t kContext = 1200;  // two spans and a part of the third

PassLimits attention_limits() {
  return {.max_rows = kContext,
          .max_decode_rows = 4,
          .max_context = kContext,
          .n_heads = kHeads,
          .n_kv_heads = kKvHeads,
          .head_dim = kHeadDim,
          .rope_dims = 0};
}

struct Sequence {
  std::vector<std::vector<float>> q, k, v;
  explicit Sequence(std::uint64_t seed) {
    Rng rng(seed);
    for (std::uint32_t i = 0; i < kContext; ++i) {
      q.push_back(random_values(std::size_t{kHeads} * kHeadDim, rng));
      k.push_back(random_values(std::size_t{kKvHeads} * kHeadDim, rng));
      v.push_back(random_values(std::size_t{kKvHeads} * kHeadDim, rng));
    }
  }
};

// What becomes of a score besides its scale.
struct ScoreRule {
  std::uint32_t window = 0;
  float soft_cap = 0.0F;
  std::vector<float> slopes;  // [kHeads] or empty
};

// Runs all positions in passes of the given sizes and returns the attention outputs of layer 1.
std::vector<std::vector<float>> attend_all(const Sequence& sequence, unsigned n_threads,
                                           std::uint32_t rows_per_pass, RowRole role,
                                           const ScoreRule& rule, KvType kv_type,
                                           kernels::Isa isa) {
  PassLimits limits = attention_limits();
  limits.max_rows = rows_per_pass;
  limits.max_decode_rows = rows_per_pass;
  Bench bench(n_threads, limits, kv_type, isa);
  CpuBackend& backend = bench.backend();
  const Buffer q = bench.buffer(rows_per_pass, kHeads * kHeadDim);
  const Buffer k = bench.buffer(rows_per_pass, kKvHeads * kHeadDim);
  const Buffer v = bench.buffer(rows_per_pass, kKvHeads * kHeadDim);
  const Buffer out = bench.buffer(rows_per_pass, kHeads * kHeadDim);
  std::vector<std::vector<float>> outputs;
  for (std::uint32_t done = 0; done < kContext;) {
    const std::uint32_t n = std::min(rows_per_pass, kContext - done);
    bench.begin(n, role);
    for (std::uint32_t i = 0; i < n; ++i) {
      backend.upload_row(q, i, sequence.q[done + i]);
      backend.upload_row(k, i, sequence.k[done + i]);
      backend.upload_row(v, i, sequence.v[done + i]);
    }
    backend.store_kv(1, k, v);
    backend.attend({.layer = 1,
                    .q = q,
                    .out = out,
                    .scale = 0.5F,
                    .window = rule.window,
                    .soft_cap = rule.soft_cap,
                    .slopes = rule.slopes});
    EXPECT_TRUE(backend.wait().ok());
    for (std::uint32_t i = 0; i < n; ++i) {
      const auto row = backend.read_row(out, i);
      outputs.emplace_back(row.begin(), row.end());
    }
    done += n;
  }
  return outputs;
}

// Attention by its definition, in f64.
std::vector<double> naive_attention(const Sequence& s, std::uint32_t row, const ScoreRule& rule) {
  std::vector<double> out(std::size_t{kHeads} * kHeadDim);
  const std::uint32_t first = rule.window != 0 && row + 1 > rule.window ? row + 1 - rule.window : 0;
  const double cap = rule.soft_cap;
  for (std::uint32_t head = 0; head < kHeads; ++head) {
    const std::uint32_t kv = head / (kHeads / kKvHeads) * kHeadDim;
    std::vector<double> weights;
    double total = 0;
    for (std::uint32_t j = first; j <= row; ++j) {
      double score = 0;
      for (std::uint32_t d = 0; d < kHeadDim; ++d) {
        score += static_cast<double>(s.q[row][head * kHeadDim + d]) * s.k[j][kv + d];
      }
      score *= 0.5;
      if (cap != 0.0) score = cap * std::tanh(score / cap);
      if (!rule.slopes.empty()) {
        score += static_cast<double>(rule.slopes[head]) * (static_cast<double>(j) - row);
      }
      weights.push_back(std::exp(score));
      total += weights.back();
    }
    for (std::uint32_t j = first; j <= row; ++j) {
      for (std::uint32_t d = 0; d < kHeadDim; ++d) {
        out[head * kHeadDim + d] += weights[j - first] / total * s.v[j][kv + d];
      }
    }
  }
  return out;
}

// Slopes that leave far positions some weight, one a head.
const std::vector<float> kSlopes = {0.5F, 0.0625F, 0.015625F, 0.001953125F};

class CpuAttentionTest : public testing::TestWithParam<kernels::Isa> {};

// The tiers that this CPU runs, scalar among them.
std::vector<kernels::Isa> host_tiers() {
  std::vector<kernels::Isa> tiers;
  for (const kernels::Isa isa : kernels::kAllIsas) {
    if (kernels::isa_covers(kernels::best_isa(host_cpu()), isa)) tiers.push_back(isa);
  }
  return tiers;
}

TEST_P(CpuAttentionTest, MatchesTheDefinition) {
  const Sequence sequence(1);
  const ScoreRule rules[] = {
      {},
      {.window = 1, .slopes = {}},
      {.window = 32, .slopes = {}},
      {.window = 700, .slopes = {}},
      {.soft_cap = 1.5F, .slopes = {}},
      {.slopes = kSlopes},
      {.window = 700, .soft_cap = 1.5F, .slopes = kSlopes},
  };
  for (const ScoreRule& rule : rules) {
    const auto got = attend_all(sequence, 2, 300, RowRole::kPrompt, rule, KvType::kF32, GetParam());
    for (const std::uint32_t row : {0U, 1U, 31U, 32U, 63U, 64U, 511U, 512U, 513U, 1199U}) {
      const auto expected = naive_attention(sequence, row, rule);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        // Weights sum to 1 and |v| stays below 6: the error is a few roundings of that.
        EXPECT_NEAR(got[row][i], expected[i], 6 * 64 * 0x1p-24) << row << " rule " << &rule - rules;
      }
    }
  }
}

TEST_P(CpuAttentionTest, BitsDependNeitherOnPassesNorThreadsNorRole) {
  const Sequence sequence(2);
  const ScoreRule rules[] = {
      {}, {.window = 100, .slopes = {}}, {.soft_cap = 1.5F, .slopes = kSlopes}};
  for (const ScoreRule& rule : rules) {
    const auto run = [&](unsigned n_threads, std::uint32_t rows_per_pass, RowRole role) {
      return attend_all(sequence, n_threads, rows_per_pass, role, rule, KvType::kF16, GetParam());
    };
    const auto expected = run(1, kContext, RowRole::kPrompt);
    EXPECT_EQ(run(2, kContext, RowRole::kPrompt), expected);
    EXPECT_EQ(run(2, 7, RowRole::kPrompt), expected);
    EXPECT_EQ(run(2, 13, RowRole::kPrompt), expected);
    EXPECT_EQ(run(1, 1, RowRole::kPrompt), expected);
    const auto generated = run(3, 1, RowRole::kGenerated);
    EXPECT_EQ(run(2, 3, RowRole::kGenerated), generated);
    const kernels::KernelSet& set = kernels::kernel_set(GetParam());
    if (set.attend_prompt.page == set.attend_decode.page) {
      EXPECT_EQ(generated, expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiers, CpuAttentionTest, testing::ValuesIn(host_tiers()),
                         [](const auto& tier) {
                           return std::string(kernels::isa_name(tier.param));
                         });

// 3 heads of 8 columns in rows of 24, of which the first 6 columns rotate.
class CpuHeadsTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kRows = 11;
  static constexpr std::uint32_t kRopeDims = 6;
  static constexpr std::uint32_t kCols = 3 * kHeadDim;
  CpuHeadsTest()
      : bench_(2,
               {.max_rows = kRows,
                .max_decode_rows = 1,
                .max_context = 64,
                .n_heads = 3,
                .n_kv_heads = 3,
                .head_dim = kHeadDim,
                .rope_dims = kRopeDims},
               KvType::kF32) {
    Rng rng(5);
    buffer_ = bench_.buffer(kRows, kCols);
    bench_.begin(kRows, RowRole::kPrompt, {.inverse_frequencies = frequencies_, .factor = 1.25F});
    for (std::uint32_t i = 0; i < kRows; ++i) {
      x_.push_back(random_values(kCols, rng));
      bench_.backend().upload_row(buffer_, i, x_.back());
    }
  }

  const std::vector<float> frequencies_ = {1.0F, 0.25F, 0.03125F};
  Bench bench_;
  std::vector<std::vector<float>> x_;
  Buffer buffer_;
};

TEST_F(CpuHeadsTest, RopeTurnsTheFirstColumnsOfEachHead) {
  bench_.backend().rope(buffer_, 3);
  for (std::uint32_t row = 0; row < kRows; ++row) {
    const auto y = bench_.backend().read_row(buffer_, row);
    for (std::uint32_t head = 0; head < 3; ++head) {
      const float* x = x_[row].data() + head * kHeadDim;
      const auto got = y.subspan(head * kHeadDim, kHeadDim);
      for (std::uint32_t i = 0; i < kRopeDims / 2; ++i) {
        const double angle = static_cast<double>(row) * frequencies_[i];
        const double low = 1.25 * (x[i] * std::cos(angle) - x[i + 3] * std::sin(angle));
        const double high = 1.25 * (x[i + 3] * std::cos(angle) + x[i] * std::sin(angle));
        EXPECT_NEAR(got[i], low, 64 * 0x1p-24) << row << ' ' << head << ' ' << i;
        EXPECT_NEAR(got[i + 3], high, 64 * 0x1p-24) << row << ' ' << head << ' ' << i;
      }
      EXPECT_EQ(got[6], x[6]);
      EXPECT_EQ(got[7], x[7]);
    }
  }
}

TEST_F(CpuHeadsTest, NormTakesEachPartAlone) {
  const std::vector<float> gain = {1.0F, -2.0F, 0.5F, 3.0F, 1.5F, 0.25F, -1.0F, 2.0F};
  bench_.backend().norm({.in = buffer_,
                         .out = buffer_,
                         .row_list = {},
                         .n_rows = kRows - 1,
                         .n_cols = kHeadDim,
                         .n_parts = 2,
                         .kind = NormKind::kRmsNorm,
                         .epsilon = 0.5F,
                         .gain = gain,
                         .bias = {}});
  for (std::uint32_t row = 0; row < kRows; ++row) {
    const auto y = bench_.backend().read_row(buffer_, row);
    for (std::uint32_t c = 0; c < kCols; ++c) {
      if (row + 1 == kRows || c >= 2 * kHeadDim) {
        EXPECT_EQ(y[c], x_[row][c]) << row << ' ' << c;
        continue;
      }
      double squares = 0;
      for (std::uint32_t i = 0; i < kHeadDim; ++i) {
        const double value = x_[row][c / kHeadDim * kHeadDim + i];
        squares += value * value;
      }
      const double want = x_[row][c] / std::sqrt(squares / kHeadDim + 0.5) * gain[c % kHeadDim];
      EXPECT_NEAR(y[c], want, 64 * 0x1p-24) << row << ' ' << c;
    }
  }
}

TEST_F(CpuHeadsTest, SoftCapBendsTheColumnsNamed) {
  bench_.backend().soft_cap(buffer_, kRows - 1, kCols - 3, 0.75F);
  for (std::uint32_t row = 0; row < kRows; ++row) {
    const auto y = bench_.backend().read_row(buffer_, row);
    for (std::uint32_t c = 0; c < kCols; ++c) {
      const double x = x_[row][c];
      const bool named = row + 1 < kRows && c < kCols - 3;
      EXPECT_NEAR(y[c], named ? 0.75 * std::tanh(x / 0.75) : x, named ? 8 * 0x1p-24 : 0.0);
    }
  }
}

// A weight matrix cut into tiles in layout 1.
struct Weights {
  static constexpr std::uint32_t kRows = 200;
  static constexpr std::uint32_t kCols = 172;
  BlockFormat format{QuantType::kF32, 4};
  std::vector<float> values;
  AlignedBytes bytes{rows_bytes(format, Layout::kInterleaved, kRows, kCols)};

  explicit Weights(Rng& rng) : values(random_values(std::size_t{kRows} * kCols, rng)) {
    for (std::uint32_t row = 0; row < kRows; row += kRowGroup) {
      const std::uint32_t n = std::min(kRowGroup, kRows - row);
      const auto* first =
          reinterpret_cast<const std::byte*>(values.data() + std::size_t{row} * kCols);
      interleave_group(format, n, kCols, {first, std::size_t{n} * kCols * 4},
                       bytes.span().subspan(row / kRowGroup * group_bytes(format, kCols),
                                            group_bytes(format, kCols)));
    }
  }
  MatmulTile tile(std::uint32_t first_row, std::uint32_t n_rows) {
    return {.bytes = bytes.span().data() + first_row / kRowGroup * group_bytes(format, kCols),
            .format = format,
            .group_bytes = group_bytes(format, kCols),
            .first_row = first_row,
            .n_rows = n_rows,
            .n_cols = kCols,
            .target = 0};
  }
  double product(std::uint32_t row, const std::vector<float>& x) const {
    double sum = 0;
    for (std::uint32_t c = 0; c < kCols; ++c) {
      sum += static_cast<double>(values[std::size_t{row} * kCols + c]) * x[c];
    }
    return sum;
  }
};

class CpuMatmulTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kPassRows = 11;
  static constexpr std::uint32_t kPromptRows = 7;
  CpuMatmulTest() : rng_(3), weights_(rng_), bench_(2, attention_limits(), KvType::kF32) {
    in_ = bench_.buffer(kPassRows, Weights::kCols);
    out_ = bench_.buffer(kPassRows, Weights::kRows);
    for (std::uint32_t i = 0; i < kPassRows; ++i) {
      x_.push_back(random_values(Weights::kCols, rng_));
      bench_.backend().upload_row(in_, i, x_.back());
    }
  }
  // 172 products of normal values: f32 sums stay within 172 roundings of their magnitude.
  static constexpr double kBound = 172 * 172 * 0x1p-24;

  Rng rng_;
  Weights weights_;
  Bench bench_;
  std::vector<std::vector<float>> x_;
  Buffer in_, out_;
};

TEST_F(CpuMatmulTest, TilesBiasAndBothRoles) {
  const std::vector<float> bias = random_values(Weights::kRows, rng_);
  const MatmulTile tiles[] = {weights_.tile(0, 64), weights_.tile(64, 128), weights_.tile(192, 8)};
  const MatmulTarget target = {.out = out_, .first_weight_row = 0, .bias = bias};
  bench_.backend().matmul({.in = in_,
                           .rows = {.n_prompt = kPromptRows, .n_rows = kPassRows},
                           .row_list = {},
                           .tiles = tiles,
                           .targets = {&target, 1},
                           .hook = {}});
  for (std::uint32_t i = 0; i < kPassRows; ++i) {
    const auto y = bench_.backend().read_row(out_, i);
    for (std::uint32_t r = 0; r < Weights::kRows; ++r) {
      EXPECT_NEAR(y[r], weights_.product(r, x_[i]) + bias[r], kBound) << i << ' ' << r;
    }
  }
}

TEST_F(CpuMatmulTest, RowListAndHookTouchOnlyTheirRows) {
  const std::uint32_t list[] = {1, 2, 5, 6, 7, 10};
  const MatmulTile tile = weights_.tile(64, 64);
  const MatmulTarget target = {.out = out_, .first_weight_row = 64, .bias = {}};
  const auto add_row = [](void*, std::uint32_t, std::uint32_t row, std::uint32_t first,
                          std::span<float> piece) {
    for (std::size_t i = 0; i < piece.size(); ++i) {
      piece[i] += static_cast<float>(row * 1000 + first + i);
    }
  };
  bench_.backend().matmul({.in = in_,
                           .rows = {.n_prompt = kPromptRows, .n_rows = kPassRows},
                           .row_list = list,
                           .tiles = {&tile, 1},
                           .targets = {&target, 1},
                           .hook = {.run = add_row, .user = nullptr}});
  for (std::uint32_t i = 0; i < kPassRows; ++i) {
    const auto y = bench_.backend().read_row(out_, i);
    const bool listed = std::find(std::begin(list), std::end(list), i) != std::end(list);
    for (std::uint32_t r = 0; r < 64; ++r) {
      const double expected = listed ? weights_.product(64 + r, x_[i]) + i * 1000 + 64 + r : 0.0;
      EXPECT_NEAR(y[r], expected, listed ? kBound + 1e-3 : 0.0) << i << ' ' << r;
    }
    EXPECT_EQ(y[64], 0.0F);
  }
}

TEST_F(CpuMatmulTest, BothWorkersRun) {
  const MatmulTile tile = weights_.tile(0, Weights::kRows);
  const MatmulTarget target = {.out = out_, .first_weight_row = 0, .bias = {}};
  // Chunks go to whoever is free, so one product alone may be done by either worker.
  const auto both_ran = [&] {
    return bench_.pool().chunks_done(0) > 0 && bench_.pool().chunks_done(1) > 0;
  };
  for (int i = 0; i < 100000 && !both_ran(); ++i) {
    bench_.backend().matmul({.in = in_,
                             .rows = {.n_prompt = kPassRows, .n_rows = kPassRows},
                             .row_list = {},
                             .tiles = {&tile, 1},
                             .targets = {&target, 1},
                             .hook = {}});
  }
  EXPECT_GT(bench_.pool().chunks_done(0), 0U);
  EXPECT_GT(bench_.pool().chunks_done(1), 0U);
}

TEST_F(CpuMatmulTest, NormGathersListedRows) {
  const std::vector<float> gain(Weights::kCols, 2.0F);
  const Buffer normed = bench_.buffer(kPassRows, Weights::kCols);
  const std::uint32_t list[] = {3, 9};
  bench_.backend().norm({.in = in_,
                         .out = normed,
                         .row_list = list,
                         .n_rows = 0,
                         .n_cols = Weights::kCols,
                         .kind = NormKind::kRmsNorm,
                         .epsilon = 0.5F,
                         .gain = gain,
                         .bias = {}});
  for (std::uint32_t i = 0; i < 2; ++i) {
    double squares = 0;
    for (const float value : x_[list[i]]) squares += static_cast<double>(value) * value;
    const double scale = 2.0 / std::sqrt(squares / Weights::kCols + 0.5);
    const auto y = bench_.backend().read_row(normed, i);
    for (std::uint32_t c = 0; c < Weights::kCols; ++c) {
      EXPECT_NEAR(y[c], x_[list[i]][c] * scale, 1e-5);
    }
  }
}

}  // namespace
}  // namespace qsf
