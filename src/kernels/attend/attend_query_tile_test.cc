// SPDX-License-Identifier: MIT
//
// Holds every query-tile kernel to the page kernel of its tier, whose scores it shares, and to
// plain loops in f64.

#include "kernels/attend/attend_query_tile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/f16.h"
#include "kernels/kv_rows/kv_store.h"
#include "kernels/testing/guard_pages.h"
#include "kernels/testing/isa_coverage.h"
#include "kernels/testing/seeded_rng.h"
#include "kernels/testing/special_values.h"

namespace qsf::kernels {
namespace {

using testing_support::GuardedArray;
using testing_support::GuardedBytes;
using testing_support::kInf;
using testing_support::kNaN;
using testing_support::SeededRng;

constexpr double kRoundoff = 0x1p-24;
constexpr double kRoundoffBf16 = 0x1p-9;

class AttendQueryTileTest : public testing::TestWithParam<AttendQueryTileKernel> {
 protected:
  void SetUp() override {
    if (!testing_support::can_run(GetParam())) {
      GTEST_SKIP() << testing_support::lacking(GetParam().isa);
    }
  }
};

using Ranges = std::vector<AttendRange>;  // of the rows

struct QueryTileShape {
  std::uint32_t n_rows;
  std::uint32_t n_q;
  std::uint32_t head_dim;
  KvType k_type;
  KvType v_type;
};

struct Outcome {
  std::vector<float> weights;  // normalised, [queries][columns]
  std::vector<float> sums;     // [columns]
  std::vector<float> out;      // [queries][stride of acc]
};

// Rows over pages of random K and V, what the kernels read ending at guards.
class QueryTile {
 public:
  QueryTile(const QueryTileShape& shape, std::vector<Ranges> pages, SeededRng& rng)
      : shape_(shape), pages_(std::move(pages)), acc_stride_((shape.head_dim + 15U) / 16U * 16U) {
    q_.resize(std::size_t{shape.n_rows} * shape.n_q * shape.head_dim);
    for (float& v : q_) v = 2.0F * rng.get().next_normal();
    const KvStore store = {convert_kernels().back(), kv_row_kernels().back()};
    std::vector<float> row(shape.head_dim);
    for (std::size_t p = 0; p < pages_.size(); ++p) {
      k_.emplace_back(kv_block_bytes(shape.k_type, shape.head_dim));
      v_.emplace_back(kv_block_bytes(shape.v_type, shape.head_dim));
      for (std::uint32_t slot = 0; slot < kKvPageSlots; ++slot) {
        for (float& v : row) v = rng.get().next_normal();
        store_key(store, shape.k_type, row.data(), k_[p].data(), slot, shape.head_dim);
        for (float& v : row) v = std::clamp(rng.get().next_normal(), -4.0F, 4.0F);
        store_value(store, shape.v_type, row.data(), v_[p].data(), slot, shape.head_dim);
        positions_.push_back(static_cast<std::int32_t>(3 * positions_.size()));
      }
    }
    for (std::uint32_t r = 0; r < shape.n_rows; ++r) {
      q_positions_.push_back(static_cast<std::int32_t>(3 * positions_.size() + r));
    }
  }

  void set_rule(float soft_cap, std::vector<float> slopes) {
    soft_cap_ = soft_cap;
    slopes_ = std::move(slopes);
  }
  std::size_t n_columns() const { return pages_.size() * kKvPageSlots; }
  const float* key_of(std::size_t page) const {
    return reinterpret_cast<const float*>(k_[page].data());
  }
  // Overwrite the values, or keys and values, of a slot. Require  both types f32
  void fill_values(std::size_t page, std::uint32_t slot, float value) {
    auto* v = reinterpret_cast<float*>(v_[page].data());
    std::fill_n(v + std::size_t{slot} * shape_.head_dim, shape_.head_dim, value);
  }
  void fill_slot(std::size_t page, std::uint32_t slot, float value) {
    auto* k = reinterpret_cast<float*>(k_[page].data());
    for (std::uint32_t d = 0; d < shape_.head_dim; ++d) k[d * kKvPageSlots + slot] = value;
    fill_values(page, slot, value);
  }

  Outcome run(const AttendQueryTileKernel& kernel, std::uint32_t first,
              std::uint32_t n_rows) const {
    const std::uint32_t n = n_rows * shape_.n_q;
    const std::size_t stride = n_columns() + 16;
    const GuardedBytes queries(attend_query_bytes(n, shape_.head_dim));
    const GuardedBytes scratch(attend_query_tile_scratch_bytes(shape_.head_dim));
    const GuardedArray<float> weights(n * stride);
    const GuardedArray<float> acc(n * acc_stride_);
    const GuardedArray<float> sums(n_columns());
    std::fill(acc.begin(), acc.end(), 0.0F);
    std::fill(sums.begin(), sums.end(), 0.5F);
    std::fill(weights.begin(), weights.end(), kNaN);
    load(kernel.load_queries, first, n_rows, queries.data());
    for (std::size_t p = 0; p < pages_.size(); ++p) {
      kernel.scores({page(p, first, n_rows, queries.data(), scratch.data()),
                     weights.data() + p * kKvPageSlots, stride});
    }
    kernel.normalise(
        {weights.data(), stride, n, static_cast<std::uint32_t>(n_columns()), sums.data()});
    Outcome outcome;
    for (std::uint32_t i = 0; i < n; ++i) {
      const float* row = weights.data() + i * stride;
      outcome.weights.insert(outcome.weights.end(), row, row + n_columns());
      EXPECT_TRUE(std::isnan(row[n_columns()])) << "written behind the columns";
    }
    for (std::size_t p = 0; p < pages_.size(); ++p) {
      AttendPageArgs args = page(p, first, n_rows, queries.data(), scratch.data());
      args.acc = acc.data();
      kernel.values({args, weights.data() + p * kKvPageSlots, stride});
    }
    EXPECT_TRUE(queries.front_intact() && scratch.front_intact() && weights.front_intact() &&
                acc.front_intact() && sums.front_intact());
    outcome.sums.assign(sums.begin(), sums.end());
    outcome.out.assign(acc.begin(), acc.end());
    return outcome;
  }
  Outcome run(const AttendQueryTileKernel& kernel) const { return run(kernel, 0, shape_.n_rows); }

  // The outputs by online softmax, page by page.
  std::vector<float> by_pages(Isa isa) const {
    const auto table = attend_prompt_kernels();
    // Query tiles take f32 or bf16, never whole numbers.
    const AttendKernel& kernel = *std::find_if(
        table.begin(), table.end(),
        [isa](const AttendKernel& k) { return k.isa == isa && k.inputs != AttendInputs::kWords; });
    const std::uint32_t n = shape_.n_rows * shape_.n_q;
    const GuardedBytes queries(attend_query_bytes(n, shape_.head_dim));
    const GuardedBytes scratch(attend_scratch_bytes(n, shape_.head_dim));
    std::vector<AttendState> state(n);
    std::vector<float> acc(n * acc_stride_);
    attend_begin(state.data(), acc.data(), acc_stride_, n);
    load(kernel.load_queries, 0, shape_.n_rows, queries.data());
    for (std::size_t p = 0; p < pages_.size(); ++p) {
      AttendPageArgs args = page(p, 0, shape_.n_rows, queries.data(), scratch.data());
      args.state = state.data();
      args.acc = acc.data();
      kernel.page(args);
    }
    attend_finish({.state = state.data(),
                   .acc = acc.data(),
                   .acc_stride = acc_stride_,
                   .out = acc.data(),
                   .out_stride = acc_stride_,
                   .n_queries = n,
                   .head_dim = shape_.head_dim});
    return acc;
  }

  // A score by its definition, of what a kernel of this tier multiplies. Requires  keys in f32, no
  // rule
  double score(Isa isa, std::uint32_t query, std::size_t page, std::uint32_t slot) const {
    const auto taken = [isa](float x) {
      return static_cast<double>(isa == Isa::kAmx ? to_f32(to_bf16(x)) : x);
    };
    double sum = 0.0;
    for (std::uint32_t d = 0; d < shape_.head_dim; ++d) {
      sum += taken(q_[std::size_t{query} * shape_.head_dim + d] * scale()) *
             taken(key_of(page)[d * kKvPageSlots + slot]);
    }
    return sum;
  }
  bool sees(std::uint32_t query, std::size_t page, std::uint32_t slot) const {
    const AttendRange range = pages_[page][query / shape_.n_q];
    return range.first <= slot && slot < range.last;
  }

 private:
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(shape_.head_dim)); }
  void load(AttendQueryFn load_queries, std::uint32_t first, std::uint32_t n_rows,
            std::byte* queries) const {
    const std::size_t row_stride = std::size_t{shape_.n_q} * shape_.head_dim;
    load_queries({.q = q_.data() + first * row_stride,
                  .row_stride = row_stride,
                  .n_rows = n_rows,
                  .n_q = shape_.n_q,
                  .head_dim = shape_.head_dim,
                  .scale = scale(),
                  .queries = queries,
                  .k_type = shape_.k_type,
                  .rotate = kv_row_kernels().back().rotate});
  }
  AttendPageArgs page(std::size_t p, std::uint32_t first, std::uint32_t n_rows,
                      const std::byte* queries, std::byte* scratch) const {
    return {.queries = queries,
            .n_rows = n_rows,
            .n_q = shape_.n_q,
            .head_dim = shape_.head_dim,
            .k = k_[p].data(),
            .v = v_[p].data(),
            .k_type = shape_.k_type,
            .v_type = shape_.v_type,
            .visible = pages_[p].data() + first,
            .state = nullptr,
            .acc = nullptr,
            .acc_stride = acc_stride_,
            .scratch = scratch,
            .soft_cap = soft_cap_,
            .slopes = slopes_.empty() ? nullptr : slopes_.data(),
            .positions = positions_.data() + p * kKvPageSlots,
            .q_positions = q_positions_.data() + first};
  }

  QueryTileShape shape_;
  std::vector<Ranges> pages_;
  std::size_t acc_stride_;
  std::vector<float> q_;
  std::vector<GuardedBytes> k_, v_;
  std::vector<std::int32_t> positions_, q_positions_;
  float soft_cap_ = 0.0F;
  std::vector<float> slopes_;
};

// Three whole pages but for hidden ends, a page of which row i sees i + 1 slots, and one of which
// only some rows see any.
std::vector<Ranges> causal_pages(std::uint32_t n_rows) {
  std::vector<Ranges> pages = {
      Ranges(n_rows, {0, 64}), Ranges(n_rows, {5, 64}), Ranges(n_rows, {0, 41}), {}, {}};
  for (std::uint32_t i = 0; i < n_rows; ++i) {
    pages[3].push_back({0, std::min(i + 1, kKvPageSlots)});
    pages[4].push_back({0, i % 3 == 0 ? 0 : std::min(i, kKvPageSlots)});
  }
  return pages;
}

// Scores have the same bits, so what differs are weights, by a few roundings each (exp of a
// difference to another maximum, corrections, the division), and the order of sums: of `n` slots
// one rounding each, twice (numerator, denominator), times values of at most 4.
// Tiles round weights, which sum to 1, before or after they are normalised.
double bound_of_outputs(Isa isa, std::size_t n_slots) {
  const double of_weights = isa == Isa::kAmx ? 2.0 * kRoundoffBf16 * 4.0 : 0.0;
  return 2.0 * (static_cast<double>(n_slots) + 64.0) * kRoundoff * 4.0 + of_weights;
}

TEST_P(AttendQueryTileTest, OutputsAreThoseOfThePageKernel) {
  SeededRng rng;
  for (const KvType type : kAllKvTypes) {
    for (const auto& [n_rows, n_q, head_dim] :
         {std::tuple{1U, 1U, 64U}, {5U, 1U, 80U}, {7U, 4U, 64U}, {64U, 1U, 128U}, {9U, 8U, 40U}}) {
      QueryTile tile({n_rows, n_q, head_dim, type, type}, causal_pages(n_rows), rng);
      for (const bool ruled : {false, true}) {
        if (ruled) tile.set_rule(3.0F, std::vector<float>(n_q, 0.01F));
        const std::vector<float> got = tile.run(GetParam()).out;
        const std::vector<float> want = tile.by_pages(GetParam().isa);
        const std::size_t stride = got.size() / (n_rows * n_q);
        for (std::size_t i = 0; i < got.size(); ++i) {
          if (i % stride >= head_dim) continue;
          ASSERT_NEAR(got[i], want[i], bound_of_outputs(GetParam().isa, tile.n_columns()))
              << kv_type_name(type) << " rows " << n_rows << " head " << head_dim << " at " << i;
        }
      }
    }
  }
}

TEST_P(AttendQueryTileTest, WeightsAreTheSoftmaxAndSumsTheirColumns) {
  SeededRng rng;
  constexpr std::uint32_t kRows = 11;
  constexpr std::uint32_t kHeadDim = 64;
  const QueryTile tile({kRows, 2, kHeadDim, KvType::kF32, KvType::kF32}, causal_pages(kRows), rng);
  const Outcome got = tile.run(GetParam());
  std::vector<float> sums(tile.n_columns(), 0.5F);
  for (std::uint32_t i = 0; i < 2 * kRows; ++i) {
    std::vector<double> want(tile.n_columns());
    double total = 0.0;
    for (std::size_t c = 0; c < want.size(); ++c) {
      const auto slot = static_cast<std::uint32_t>(c % kKvPageSlots);
      if (!tile.sees(i, c / kKvPageSlots, slot)) continue;
      want[c] = std::exp(tile.score(GetParam().isa, i, c / kKvPageSlots, slot));
      total += want[c];
    }
    for (std::size_t c = 0; c < want.size(); ++c) {
      const float weight = got.weights[i * want.size() + c];
      // A score of 64 products of at most 10 x 4 / 8 in size is off by under 64 x 66 roundings x 5.
      EXPECT_NEAR(weight, want[c] / total, want[c] / total * 64 * 66 * 5 * 2 * kRoundoff)
          << "query " << i << " column " << c;
      EXPECT_EQ(want[c] == 0.0, weight == 0.0F);
      sums[c] += weight;
    }
  }
  EXPECT_EQ(got.sums, sums);
}

TEST_P(AttendQueryTileTest, BitsOfARowDependOnNoOther) {
  SeededRng rng;
  constexpr std::uint32_t kRows = 33;
  for (const KvType type : kAllKvTypes) {
    const QueryTile tile({kRows, 2, 80, type, type}, causal_pages(kRows), rng);
    const Outcome whole = tile.run(GetParam());
    const std::size_t weights_of_row = 2 * tile.n_columns();
    const std::size_t outs_of_row = whole.out.size() / kRows;
    for (std::uint32_t first = 0; first < kRows; first += 7) {
      const std::uint32_t n = std::min(7U, kRows - first);
      const Outcome part = tile.run(GetParam(), first, n);
      EXPECT_TRUE(std::equal(part.weights.begin(), part.weights.end(),
                             whole.weights.begin() + first * weights_of_row));
      EXPECT_TRUE(
          std::equal(part.out.begin(), part.out.end(), whole.out.begin() + first * outs_of_row));
    }
  }
}

TEST_P(AttendQueryTileTest, HiddenSlotsAreIgnored) {
  SeededRng rng;
  QueryTile tile({3, 2, 24, KvType::kF32, KvType::kF32}, {Ranges(3, {3, 20}), Ranges(3, {0, 0})},
                 rng);
  const Outcome before = tile.run(GetParam());
  for (const std::uint32_t slot : {0U, 2U, 20U, 63U}) tile.fill_slot(0, slot, kNaN);
  tile.fill_slot(1, 0, kNaN);
  const Outcome after = tile.run(GetParam());
  EXPECT_EQ(before.weights, after.weights);
  EXPECT_EQ(before.sums, after.sums);
  EXPECT_EQ(before.out, after.out);
}

// A weight of 0 would not hide it from the others.
TEST_P(AttendQueryTileTest, AnInfiniteValueReachesTheRowsThatSeeItAlone) {
  SeededRng rng;
  constexpr std::uint32_t kHeadDim = 48;
  QueryTile tile({3, 2, kHeadDim, KvType::kF32, KvType::kF32}, {{{0, 20}, {4, 40}, {0, 20}}}, rng);
  const Outcome before = tile.run(GetParam());
  tile.fill_values(0, 30, kInf);
  const Outcome after = tile.run(GetParam());
  for (std::size_t i = 0; i < after.out.size(); ++i) {
    const std::size_t row = i / (2 * kHeadDim);
    EXPECT_EQ(after.out[i], row == 1 ? kInf : before.out[i]) << i;
  }
}

TEST_P(AttendQueryTileTest, RowsWithoutAScoreBecomeZerosAndNaNStays) {
  constexpr std::uint32_t kColumns = 128;
  for (const std::uint32_t n : {1U, 4U, 5U}) {
    std::vector<float> weights(n * kColumns, -kInf);
    std::vector<float> sums(kColumns, 1.0F);
    GetParam().normalise({weights.data(), kColumns, n, kColumns, sums.data()});
    EXPECT_EQ(weights, std::vector<float>(n * kColumns, 0.0F));
    EXPECT_EQ(sums, std::vector<float>(kColumns, 1.0F));
    weights.assign(n * kColumns, 1.0F);
    weights[70] = kNaN;
    GetParam().normalise({weights.data(), kColumns, n, kColumns, sums.data()});
    EXPECT_TRUE(std::all_of(sums.begin(), sums.end(), [](float s) { return std::isnan(s); }));
    EXPECT_TRUE(std::isnan(weights[0]));
    EXPECT_TRUE(n == 1 || weights.back() == 1.0F / kColumns);
  }
}

TEST_P(AttendQueryTileTest, HiddenColumnsAtTheEndChangeNoBit) {
  SeededRng rng;
  constexpr std::uint32_t kStride = 512;
  std::vector<float> wide(6 * kStride, -kInf);
  for (std::uint32_t i = 0; i < 6; ++i) {
    for (std::uint32_t c = 0; c < 180; ++c) wide[i * kStride + c] = rng.get().next_normal();
  }
  std::vector<float> narrow = wide;
  std::vector<float> wide_sums(kStride);
  std::vector<float> narrow_sums(kStride);
  GetParam().normalise({wide.data(), kStride, 6, kStride, wide_sums.data()});
  GetParam().normalise({narrow.data(), kStride, 6, 192, narrow_sums.data()});
  for (std::uint32_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(std::equal(narrow.begin() + i * kStride, narrow.begin() + i * kStride + 192,
                           wide.begin() + i * kStride));
  }
  EXPECT_EQ(wide_sums, narrow_sums);
}

INSTANTIATE_TEST_SUITE_P(All, AttendQueryTileTest,
                         testing::ValuesIn(attend_query_tile_prompt_kernels()),
                         testing_support::KernelName{});

}  // namespace
}  // namespace qsf::kernels
