// SPDX-License-Identifier: MIT
//
// Holds the CPU backend to plain loops in f64: attention over pages, windows and spans, rotation
// and norms of heads, and batch invariance. Products are
// in cpu_matmul_test.cc.

#include "ops/cpu_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "kernels/kv_rows/kv_store.h"
#include "ops/testing/bench.h"

namespace qsf {
namespace {

using testing_support::backend_tiers;
using testing_support::BackendTier;
using testing_support::Bench;
using testing_support::is_emulated;
using testing_support::random_values;
using testing_support::scalar_backends;

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
          .rope_dims = 0,
          .max_cols = 256};
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
  std::uint32_t kept = 0;     // a row sees so many last positions and the sinks; 0: all
  std::uint32_t sinks = 0;
  // Masks of prompt rows: of a chunk, or so many positions to each side; 0: none.
  std::uint32_t chunk = 0;
  std::uint32_t side = 0;
  bool chunked = false;  // windows are
  bool bidirectional = false;
};

VisibleSet masked(const ScoreRule& rule, std::uint32_t slot, std::uint32_t end) {
  if (rule.chunk != 0) return {.prefix = slot + 1, .first = slot / rule.chunk * rule.chunk};
  return {.prefix = std::min(end, slot + rule.side + 1), .first = slot - std::min(slot, rule.side)};
}

// Runs all positions in passes of the given sizes and returns the attention outputs of layer 1.
std::vector<std::vector<float>> attend_all(const Sequence& sequence, unsigned n_threads,
                                           std::uint32_t rows_per_pass, RowRole role,
                                           const ScoreRule& rule, KvType kv_type,
                                           const BackendTier& tier) {
  PassLimits limits = attention_limits();
  limits.max_rows = rows_per_pass;
  limits.max_decode_rows = rows_per_pass;
  limits.window = rule.kept;
  limits.sinks = rule.sinks;
  Bench bench(n_threads, limits, kv_type, tier);
  Backend& backend = bench.backend();
  const Buffer q = bench.buffer(rows_per_pass, kHeads * kHeadDim);
  const Buffer k = bench.buffer(rows_per_pass, kKvHeads * kHeadDim);
  const Buffer v = bench.buffer(rows_per_pass, kKvHeads * kHeadDim);
  const Buffer out = bench.buffer(rows_per_pass, kHeads * kHeadDim);
  std::vector<std::vector<float>> outputs;
  for (std::uint32_t done = 0; done < kContext;) {
    const std::uint32_t n = std::min(rows_per_pass, kContext - done);
    if (rule.chunk != 0 || rule.side != 0) {
      bench.begin_masked(
          n, [&](std::uint32_t slot, std::uint32_t end) { return masked(rule, slot, end); });
    } else {
      bench.begin(n, role);
    }
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
                    .chunked = rule.chunked,
                    .bidirectional = rule.bidirectional,
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
  const auto sees = [&](std::uint32_t j) {
    if (rule.chunk != 0 && j / rule.chunk != row / rule.chunk) return false;
    const std::uint32_t distance = std::max(j, row) - std::min(j, row);
    if (rule.side != 0)
      return distance <= rule.side && (!rule.bidirectional || distance < rule.window);
    const bool kept = rule.kept == 0 || j < rule.sinks || row - j < rule.kept;
    if (rule.chunked) return kept && j / rule.window == row / rule.window;
    return kept && (rule.window == 0 || row - j < rule.window);
  };
  const double cap = rule.soft_cap;
  for (std::uint32_t head = 0; head < kHeads; ++head) {
    const std::uint32_t kv = head / (kHeads / kKvHeads) * kHeadDim;
    std::vector<double> weights;
    double total = 0;
    const std::uint32_t end = rule.side != 0 ? kContext : row + 1;
    for (std::uint32_t j = 0; j < end; ++j) {
      double score = 0;
      for (std::uint32_t d = 0; d < kHeadDim; ++d) {
        score += static_cast<double>(s.q[row][head * kHeadDim + d]) * s.k[j][kv + d];
      }
      score *= 0.5;
      if (cap != 0.0) score = cap * std::tanh(score / cap);
      if (!rule.slopes.empty()) {
        score += static_cast<double>(rule.slopes[head]) * (static_cast<double>(j) - row);
      }
      weights.push_back(sees(j) ? std::exp(score) : 0);
      total += weights.back();
    }
    for (std::uint32_t j = 0; j < end; ++j) {
      for (std::uint32_t d = 0; d < kHeadDim; ++d) {
        out[head * kHeadDim + d] += weights[j] / total * s.v[j][kv + d];
      }
    }
  }
  return out;
}

// Slopes that leave far positions some weight, one a head.
const std::vector<float> kSlopes = {0.5F, 0.0625F, 0.015625F, 0.001953125F};

// The keys and values that a cache of this type holds, by the definition of its codes: rows filled
// up with zeros, keys and in 2 bits values turned, coded and turned back.
Sequence as_stored(Sequence sequence, KvType type) {
  if (!kv_is_quantised(type)) return sequence;
  const kernels::KvRowKernels& kv_rows = kernels::kv_row_kernels().back();
  const kernels::KvRowFormat format = kernels::kv_row_format(type, kHeadDim);
  std::vector<std::byte> coded(kernels::kv_quantised_row_bytes(format));
  std::vector<float> row(format.head_dim);
  for (std::uint32_t i = 0; i < kContext; ++i) {
    for (const bool keys : {true, false}) {
      std::vector<float>& x = keys ? sequence.k[i] : sequence.v[i];
      for (std::uint32_t head = 0; head < kKvHeads; ++head) {
        const auto at = x.begin() + head * kHeadDim;
        std::fill(row.begin(), row.end(), 0.0F);
        std::copy(at, at + kHeadDim, row.begin());
        const bool turned = keys || type == KvType::k2Bit;
        if (turned) kv_rows.rotate(row.data(), format.head_dim);
        kv_rows.quantise(row.data(), coded.data(), format);
        kv_rows.dequantise(coded.data(), row.data(), format);
        if (turned) kv_rows.rotate(row.data(), format.head_dim);
        std::copy(row.begin(), row.begin() + kHeadDim, at);
      }
    }
  }
  return sequence;
}

class CpuAttentionTest : public testing::TestWithParam<BackendTier> {};

// Weights sum to 1 and |v| stays below 6: the error is a few roundings of that. In bf16 q, k,
// weights and v are rounded to 2^-8 of themselves; scores of magnitude 8 move weights by 16 such.
// In words they are rounded to 2^-13 of the largest of their row, four times themselves.
double prompt_bound(kernels::AttendInputs inputs) {
  switch (inputs) {
    case kernels::AttendInputs::kF32: break;
    case kernels::AttendInputs::kBf16: return 6 * (2 * 8 + 2) * 0x1p-8;
    case kernels::AttendInputs::kWords: return 6 * (2 * 8 + 2) * 0x1p-11;
  }
  return 6 * 64 * 0x1p-24;
}

TEST_P(CpuAttentionTest, MatchesTheDefinition) {
  const Sequence sequence(1);
  const ScoreRule rules[] = {
      {},
      {.window = 1, .slopes = {}},
      {.window = 32, .slopes = {}},
      {.window = 700, .slopes = {}},
      {.window = 100, .slopes = {}, .chunked = true},
      {.window = 640, .slopes = {}, .chunked = true},
      {.soft_cap = 1.5F, .slopes = {}},
      {.slopes = kSlopes},
      {.window = 700, .soft_cap = 1.5F, .slopes = kSlopes},
  };
  const double bound = prompt_bound(kernels::kernel_set(GetParam()).attend_prompt.inputs);
  for (const KvType type : {KvType::kF32, KvType::k8Bit, KvType::k4Bit, KvType::k2Bit}) {
    const Sequence stored = as_stored(sequence, type);
    for (const ScoreRule& rule : rules) {
      if (is_emulated(GetParam()) && (&rule - rules + static_cast<int>(type)) % 4 != 0) continue;
      const auto got = attend_all(sequence, 2, 300, RowRole::kPrompt, rule, type, GetParam());
      for (const std::uint32_t row : {0U, 1U, 31U, 32U, 63U, 64U, 511U, 512U, 513U, 1199U}) {
        const auto expected = naive_attention(stored, row, rule);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          EXPECT_NEAR(got[row][i], expected[i], bound)
              << kv_type_name(type) << ' ' << row << " rule " << &rule - rules;
        }
      }
    }
  }
}

// Windows within a page, of a page, over several, and beyond the context; sinks within a page and
// over one; passes that end within pages. Windows and sinks of a cache and windows of a model.
TEST_P(CpuAttentionTest, SeesSinksAndTheLastPositionsAlone) {
  const Sequence sequence(4);
  const ScoreRule rules[] = {
      {.slopes = {}, .kept = 1, .sinks = 0},
      {.slopes = {}, .kept = 20, .sinks = 4},
      {.slopes = {}, .kept = 64, .sinks = 0},
      {.slopes = {}, .kept = 600, .sinks = 4},
      {.slopes = kSlopes, .kept = 100, .sinks = 70},
      {.window = 50, .slopes = {}, .kept = 100, .sinks = 4},
      {.window = 700, .slopes = {}, .kept = 100, .sinks = 4},
      {.slopes = {}, .kept = 2000, .sinks = 4},
      {.window = 90, .slopes = {}, .kept = 30, .sinks = 95, .chunked = true},
  };
  const double bound = prompt_bound(kernels::kernel_set(GetParam()).attend_prompt.inputs);
  for (const KvType type : {KvType::kF32, KvType::k4Bit}) {
    const Sequence stored = as_stored(sequence, type);
    for (const ScoreRule& rule : rules) {
      if (is_emulated(GetParam()) && (&rule - rules + static_cast<int>(type)) % 2 != 0) continue;
      const auto got = attend_all(sequence, 2, 75, RowRole::kPrompt, rule, type, GetParam());
      const auto generated =
          attend_all(sequence, 2, 4, RowRole::kGenerated, rule, type, GetParam());
      for (const std::uint32_t row : {0U, 3U, 4U, 19U, 20U, 70U, 127U, 171U, 513U, 703U, 1199U}) {
        const auto expected = naive_attention(stored, row, rule);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          EXPECT_NEAR(got[row][i], expected[i], bound)
              << kv_type_name(type) << ' ' << row << " rule " << &rule - rules;
          EXPECT_NEAR(generated[row][i], expected[i], 6 * 64 * 0x1p-24)
              << kv_type_name(type) << ' ' << row << " rule " << &rule - rules;
        }
      }
    }
  }
}

// Chunks within a page, of pages and over spans; sides likewise, and beyond the prompt.
TEST_P(CpuAttentionTest, MaskedRowsSeeTheirChunkOrBothSides) {
  const Sequence sequence(6);
  const ScoreRule rules[] = {
      {.slopes = {}, .chunk = 40},
      {.soft_cap = 1.5F, .slopes = kSlopes, .chunk = 128},
      {.slopes = {}, .chunk = 700},
      {.slopes = {}, .side = 1},
      {.slopes = {}, .side = 70},
      {.soft_cap = 1.5F, .slopes = {}, .side = 600},
      {.slopes = {}, .side = 2000},
      {.window = 1, .slopes = {}, .side = kContext, .bidirectional = true},
      {.window = 65, .slopes = {}, .side = kContext, .bidirectional = true},
      {.window = 600, .slopes = {}, .side = kContext, .bidirectional = true},
      {.window = 90, .slopes = {}, .side = 70, .bidirectional = true},
      {.window = kContext + 5, .slopes = {}, .side = kContext, .bidirectional = true},
  };
  const double bound = prompt_bound(kernels::kernel_set(GetParam().isa).attend_prompt.inputs);
  for (const KvType type : {KvType::kF32, KvType::k4Bit}) {
    const Sequence stored = as_stored(sequence, type);
    for (const ScoreRule& rule : rules) {
      if (is_emulated(GetParam()) && (&rule - rules + static_cast<int>(type)) % 2 != 0) continue;
      const auto got = attend_all(sequence, 2, kContext, RowRole::kPrompt, rule, type, GetParam());
      for (const std::uint32_t row : {0U, 1U, 39U, 40U, 127U, 511U, 512U, 600U, 1198U, 1199U}) {
        const auto expected = naive_attention(stored, row, rule);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          ASSERT_NEAR(got[row][i], expected[i], bound)
              << kv_type_name(type) << ' ' << row << " rule " << &rule - rules;
        }
      }
      const std::uint32_t n_pass = rule.chunk != 0 ? 75 : kContext;
      EXPECT_EQ(attend_all(sequence, 3, n_pass, RowRole::kPrompt, rule, type, GetParam()), got);
    }
  }
}

TEST_P(CpuAttentionTest, WindowOfTheContextIsNone) {
  const Sequence sequence(5);
  for (const RowRole role : {RowRole::kPrompt, RowRole::kGenerated}) {
    const auto run = [&](const ScoreRule& rule) {
      return attend_all(sequence, 2, 75, role, rule, KvType::kF16, GetParam());
    };
    EXPECT_EQ(run({.slopes = {}, .kept = kContext, .sinks = 4}), run({}));
  }
}

TEST_P(CpuAttentionTest, BitsDependNeitherOnPassesNorThreadsNorRole) {
  const Sequence sequence(2);
  const ScoreRule rules[] = {{},
                             {.window = 100, .slopes = {}},
                             {.soft_cap = 1.5F, .slopes = kSlopes},
                             {.slopes = {}, .kept = 100, .sinks = 4}};
  for (const auto& [rule, type] : {std::pair{rules[0], KvType::kF16},
                                   {rules[1], KvType::kF16},
                                   {rules[2], KvType::kF16},
                                   {rules[3], KvType::kF16},
                                   {rules[3], KvType::k4Bit},
                                   {rules[0], KvType::k8Bit},
                                   {rules[1], KvType::k4Bit},
                                   {rules[2], KvType::k4Bit},
                                   {rules[2], KvType::k2Bit}}) {
    // The last of them has all that the others have: a soft cap, slopes, and codes.
    if (is_emulated(GetParam()) && type != KvType::k2Bit) continue;
    const auto run = [&, &rule = rule, type = type](unsigned n_threads, std::uint32_t rows_per_pass,
                                                    RowRole role) {
      return attend_all(sequence, n_threads, rows_per_pass, role, rule, type, GetParam());
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

INSTANTIATE_TEST_SUITE_P(Tiers, CpuAttentionTest, testing::ValuesIn(backend_tiers()),
                         [](const auto& tier) { return tier.param.name(); });

// 3 heads of 8 columns in rows of 24, of which the first 6 columns rotate.
class CpuHeadsTest : public testing::TestWithParam<BackendTier> {
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
                .rope_dims = kRopeDims,
                .n_rotations = 2},
               KvType::kF32, GetParam()) {
    Rng rng(5);
    buffer_ = bench_.buffer(kRows, kCols);
    bench_.begin(kRows, RowRole::kPrompt,
                 {{.inverse_frequencies = frequencies_[0], .factor = kFactors[0]},
                  {.inverse_frequencies = frequencies_[1], .factor = kFactors[1]}});
    for (std::uint32_t i = 0; i < kRows; ++i) {
      x_.push_back(random_values(kCols, rng));
      bench_.backend().upload_row(buffer_, i, x_.back());
    }
  }

  static constexpr float kFactors[] = {1.25F, 0.75F};
  const std::vector<float> frequencies_[2] = {{1.0F, 0.25F, 0.03125F}, {1.0F, 0.5F, 0.125F}};
  Bench bench_;
  std::vector<std::vector<float>> x_;
  Buffer buffer_;
};

TEST_P(CpuHeadsTest, RopeTurnsTheFirstColumnsOfEachHead) {
  for (const std::uint32_t rotation : {0U, 1U}) {
    for (std::uint32_t i = 0; i < kRows; ++i) bench_.backend().upload_row(buffer_, i, x_[i]);
    bench_.backend().rope(buffer_, 3, rotation);
    for (std::uint32_t row = 0; row < kRows; ++row) {
      const auto y = bench_.read_row(buffer_, row);
      for (std::uint32_t head = 0; head < 3; ++head) {
        const float* x = x_[row].data() + head * kHeadDim;
        const auto got = y.subspan(head * kHeadDim, kHeadDim);
        for (std::uint32_t i = 0; i < kRopeDims / 2; ++i) {
          const double angle = static_cast<double>(row) * frequencies_[rotation][i];
          const double cos = kFactors[rotation] * std::cos(angle);
          const double sin = kFactors[rotation] * std::sin(angle);
          EXPECT_NEAR(got[i], x[i] * cos - x[i + 3] * sin, 64 * 0x1p-24) << row << ' ' << i;
          EXPECT_NEAR(got[i + 3], x[i + 3] * cos + x[i] * sin, 64 * 0x1p-24) << row << ' ' << i;
        }
        EXPECT_EQ(got[6], x[6]);
        EXPECT_EQ(got[7], x[7]);
      }
    }
  }
}

TEST_P(CpuHeadsTest, ClampKeepsWhatIsWithin) {
  bench_.backend().clamp(buffer_, 0.25F);
  for (std::uint32_t row = 0; row < kRows; ++row) {
    const auto y = bench_.read_row(buffer_, row);
    for (std::uint32_t c = 0; c < kCols; ++c) {
      ASSERT_EQ(y[c], std::fmax(-0.25F, std::fmin(0.25F, x_[row][c])));
    }
  }
}

TEST_P(CpuHeadsTest, ScaleRowsTakesAFactorARow) {
  std::vector<float> factors;
  for (std::uint32_t row = 0; row < kRows; ++row) {
    factors.push_back(1.5F + static_cast<float>(row));
  }
  bench_.backend().scale_rows(buffer_, factors);
  for (std::uint32_t row = 0; row < kRows; ++row) {
    const auto y = bench_.read_row(buffer_, row);
    for (std::uint32_t c = 0; c < kCols; ++c) ASSERT_EQ(y[c], x_[row][c] * factors[row]);
  }
}

TEST_P(CpuHeadsTest, NormTakesEachPartAloneWithGainsOfItsOwn) {
  std::vector<float> gain;
  for (std::uint32_t i = 0; i < 2 * kHeadDim; ++i) gain.push_back(1.0F + static_cast<float>(i));
  bench_.backend().norm({.in = buffer_,
                         .out = buffer_,
                         .row_list = {},
                         .n_rows = kRows,
                         .n_cols = kHeadDim,
                         .n_parts = 2,
                         .kind = NormKind::kLayerNorm,
                         .epsilon = 0.5F,
                         .gain = gain,
                         .bias = {}});
  for (std::uint32_t row = 0; row < kRows; ++row) {
    const auto y = bench_.read_row(buffer_, row);
    for (std::uint32_t part = 0; part < 2; ++part) {
      const float* x = x_[row].data() + part * kHeadDim;
      double mean = 0;
      for (std::uint32_t i = 0; i < kHeadDim; ++i) mean += x[i] / double{kHeadDim};
      double variance = 0;
      for (std::uint32_t i = 0; i < kHeadDim; ++i) {
        variance += (x[i] - mean) * (x[i] - mean) / double{kHeadDim};
      }
      for (std::uint32_t i = 0; i < kHeadDim; ++i) {
        const double want = (x[i] - mean) / std::sqrt(variance + 0.5) * gain[part * kHeadDim + i];
        EXPECT_NEAR(y[part * kHeadDim + i], want, 1e-5 * 16) << row << ' ' << part << ' ' << i;
      }
    }
  }
}

TEST_P(CpuHeadsTest, NormTakesEachPartAlone) {
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
    const auto y = bench_.read_row(buffer_, row);
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

INSTANTIATE_TEST_SUITE_P(Backends, CpuHeadsTest, testing::ValuesIn(scalar_backends()),
                         [](const auto& tier) { return tier.param.name(); });

}  // namespace
}  // namespace qsf
