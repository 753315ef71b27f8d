// SPDX-License-Identifier: MIT
//
// Holds products with adapters to plain loops in f64. A row has the bits that it has alone,
// whatever the adapters of the others; a row without an adapter those of a product without any.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "base/f16.h"
#include "base/rng.h"
#include "ops/backend.h"
#include "ops/testing/aligned_bytes.h"
#include "ops/testing/bench.h"
#include "ops/testing/tiled_weights.h"
#include "quant/block_format.h"

namespace qsf {
namespace {

using testing_support::AlignedBytes;
using testing_support::backend_tiers;
using testing_support::BackendTier;
using testing_support::Bench;
using testing_support::random_values;
using testing_support::TiledWeights;
using RowAdapter = Bench::RowAdapter;

constexpr std::uint32_t kAdaptedRows = 200;
constexpr std::uint32_t kAdaptedCols = 172;
constexpr std::uint32_t kHighestRank = 17;

// A and B of one matrix, as a pass takes them.
class TestPair {
 public:
  TestPair(std::uint32_t rank, float scale, bool halves, Rng& rng)
      : rank_(rank),
        scale_(scale),
        a_(random_values(std::size_t{rank} * kAdaptedCols, rng)),
        b_(random_values(std::size_t{kAdaptedRows} * rank, rng)),
        a_bytes_(a_.size() * sizeof(float)),
        b_bytes_(std::size_t{kAdaptedRows + kRowGroup} * rank * sizeof(float)) {
    for (std::size_t i = 0; i < a_.size(); ++i) store(a_bytes_, i, a_[i], halves);
    for (std::uint32_t row = 0; row < kAdaptedRows; ++row) {
      for (std::uint32_t r = 0; r < rank; ++r) {
        const std::size_t at = (std::size_t{row / kRowGroup} * rank + r) * kRowGroup;
        store(b_bytes_, at + row % kRowGroup, b_[std::size_t{row} * rank + r], halves);
      }
    }
    pair_ = {.a = a_bytes_.span().data(),
             .b = b_bytes_.span().data(),
             .rank = rank,
             .scale = scale,
             .halves = halves};
  }

  const LowRankPair& get() const { return pair_; }
  // scale * B (A x) in one row.
  double added(std::uint32_t row, std::span<const float> x) const {
    double sum = 0;
    for (std::uint32_t r = 0; r < rank_; ++r) {
      double inner = 0;
      for (std::uint32_t c = 0; c < kAdaptedCols; ++c) {
        inner += static_cast<double>(a_[std::size_t{r} * kAdaptedCols + c]) * x[c];
      }
      sum += inner * b_[std::size_t{row} * rank_ + r];
    }
    return static_cast<double>(scale_) * sum;
  }

 private:
  static void store(AlignedBytes& bytes, std::size_t i, float& value, bool halves) {
    if (halves) {
      const F16 half = to_f16(value);
      value = to_f32(half);
      store_le(bytes.span(), i * sizeof half, half);
    } else {
      store_le(bytes.span(), i * sizeof value, value);
    }
  }

  std::uint32_t rank_;
  float scale_;
  std::vector<float> a_, b_;
  AlignedBytes a_bytes_, b_bytes_;
  LowRankPair pair_;
};

class CpuAdaptersTest : public testing::TestWithParam<BackendTier> {
 protected:
  using Rows = std::vector<std::vector<float>>;
  static constexpr std::uint32_t kMost = 9;

  static PassLimits pass_limits() {
    return {.max_rows = kMost,
            .max_decode_rows = kMost,
            .max_context = 128,
            .head_dim = 8,
            .max_cols = 256};
  }

  // The products of both matrices with the rows `inputs` of x_, which are these rows of a pass.
  Rows products(const std::vector<RowAdapter>& pass, const std::vector<std::uint32_t>& inputs,
                const std::vector<std::uint32_t>& pass_rows = {},
                const MatmulEpilogue& epilogue = {}, std::uint32_t tile_rows = kAdaptedRows) {
    Bench bench(2, pass_limits(), KvType::kF32, GetParam());
    const Buffer in = bench.buffer(kMost, kAdaptedCols);
    const Buffer out[] = {bench.buffer(kMost, kAdaptedRows), bench.buffer(kMost, kAdaptedRows)};
    const Buffer low_rank = bench.buffer(kMost, 2 * kHighestRank);
    const auto n = static_cast<std::uint32_t>(inputs.size());
    bench.begin_adapted(pass);
    for (std::uint32_t i = 0; i < n; ++i) bench.backend().upload_row(in, i, x_[inputs[i]]);
    const LowRankPair pairs[] = {first_.get(), second_.get(), {}, third_.get()};
    AdapterProducts adapters = {.pairs = pairs,
                                .n_matrices = 2,
                                .products = low_rank,
                                .max_rank = kHighestRank,
                                .pass_rows = pass_rows};
    if (pass.front().adapter == kWithout) {
      adapters = {};
    } else {
      bench.backend().multiply_low_rank(in, n, kAdaptedCols, adapters);
    }
    MatmulTarget targets[] = {{.out = out[0], .bias = {}, .adapted = 0},
                              {.out = out[1], .bias = {}, .adapted = 1}};
    for (std::uint32_t row = 0; row < kAdaptedRows; row += tile_rows) {
      const std::uint32_t n_rows = std::min(tile_rows, kAdaptedRows - row);
      const WeightTile tiles[] = {gate_.tile(row, n_rows, 0), up_.tile(row, n_rows, 1)};
      bench.backend().matmul({.in = in,
                              .rows = {.n_prompt = 0, .n_rows = n},
                              .row_list = {},
                              .tiles = tiles,
                              .targets = targets,
                              .adapters = adapters,
                              .epilogue = epilogue});
      for (MatmulTarget& target : targets) target.n_rows_done += n_rows;
    }
    Rows rows;
    for (std::uint32_t i = 0; i < n; ++i) {
      for (const Buffer buffer : out) {
        const auto row = bench.read_row(buffer, i);
        rows.emplace_back(row.begin(), row.end());
      }
    }
    return rows;
  }

  static constexpr std::uint16_t kWithout = 0xFFFF;  // of the first row: no adapters at all

  Rng rng_{11};
  TiledWeights gate_{{QuantType::kF32, 4}, kAdaptedRows, kAdaptedCols, rng_};
  TiledWeights up_{{QuantType::kF32, 4}, kAdaptedRows, kAdaptedCols, rng_};
  // The first adapter changes both matrices, the second the second one.
  TestPair first_{5, 0.5F, false, rng_};
  TestPair second_{kHighestRank, -0.25F, false, rng_};
  TestPair third_{8, 2.0F, true, rng_};
  Rows x_ = [this] {
    Rows rows;
    for (std::uint32_t i = 0; i < kMost; ++i) rows.push_back(random_values(kAdaptedCols, rng_));
    return rows;
  }();
};

TEST_P(CpuAdaptersTest, FollowTheDefinition) {
  const std::vector<RowAdapter> pass = {{1}, {0}, {2, 0.5F}, {1, -2.0F}, {2}};
  const Rows rows = products(pass, {0, 1, 2, 3, 4});
  for (std::uint32_t i = 0; i < pass.size(); ++i) {
    const auto scale = static_cast<double>(pass[i].scale);
    for (std::uint32_t r = 0; r < kAdaptedRows; ++r) {
      double gate = gate_.product(r, x_[i]);
      double up = up_.product(r, x_[i]);
      if (pass[i].adapter == 1) gate += scale * first_.added(r, x_[i]);
      if (pass[i].adapter == 1) up += scale * second_.added(r, x_[i]);
      if (pass[i].adapter == 2) up += scale * third_.added(r, x_[i]);
      ASSERT_NEAR(rows[std::size_t{2} * i][r], gate, 2e-3) << i << ' ' << r;
      ASSERT_NEAR(rows[std::size_t{2} * i + 1][r], up, 2e-3) << i << ' ' << r;
    }
  }
}

TEST_P(CpuAdaptersTest, ARowHasTheBitsThatItHasAlone) {
  const std::vector<RowAdapter> pass = {{1}, {0}, {2, 0.5F}, {1, -2.0F}, {2}};
  const Rows together = products(pass, {0, 1, 2, 3, 4});
  EXPECT_EQ(products(pass, {0, 1, 2, 3, 4}, {}, {}, 48), together) << "in tiles";
  for (std::uint32_t i = 0; i < pass.size(); ++i) {
    const Rows alone = products({pass[i]}, {i});
    EXPECT_EQ(alone[0], together[std::size_t{2} * i]) << i;
    EXPECT_EQ(alone[1], together[std::size_t{2} * i + 1]) << i;
  }
  const Rows without = products({{kWithout}, {}, {}}, {1, 2, 3});
  EXPECT_EQ(without[0], together[2]);
  EXPECT_EQ(without[1], together[3]);
  EXPECT_EQ(without[2], together[4]) << "the second adapter leaves this matrix alone";
  EXPECT_NE(without[3], together[5]);
}

TEST_P(CpuAdaptersTest, RowsOfAnExpertHaveTheAdaptersOfTheirRows) {
  const std::vector<RowAdapter> pass = {{1}, {0}, {2, 0.5F}, {1, -2.0F}, {2}};
  const Rows together = products(pass, {0, 1, 2, 3, 4});
  const Rows expert = products(pass, {1, 3, 4}, {1, 3, 4});
  for (std::uint32_t i = 0; i < 3; ++i) {
    const std::uint32_t row = std::vector<std::uint32_t>{1, 3, 4}[i];
    EXPECT_EQ(expert[std::size_t{2} * i], together[std::size_t{2} * row]);
    EXPECT_EQ(expert[std::size_t{2} * i + 1], together[std::size_t{2} * row + 1]);
  }
}

TEST_P(CpuAdaptersTest, AreAddedBeforeTheActivation) {
  const std::vector<RowAdapter> pass = {{1}, {0}, {2, 0.5F}};
  const Rows plain = products(pass, {0, 1, 2});
  const MatmulEpilogue joint = {
      .activation = ActivationKind::kRelu, .fused_gate_up = true, .add_to = {}};
  const Rows fused = products(pass, {0, 1, 2}, {}, joint, 48);
  for (std::uint32_t i = 0; i < 3; ++i) {
    for (std::uint32_t r = 0; r < kAdaptedRows; ++r) {
      const float gate = std::max(plain[std::size_t{2} * i][r], 0.0F);
      ASSERT_EQ(fused[std::size_t{2} * i][r], gate * plain[std::size_t{2} * i + 1][r]) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CpuAdaptersTest, testing::ValuesIn(backend_tiers()),
                         [](const auto& tier) { return tier.param.name(); });

}  // namespace
}  // namespace qsf
