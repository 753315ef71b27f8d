// SPDX-License-Identifier: MIT
//
// Holds every kernel of low-rank products to plain loops in f64 and to the scalar tier's bits.

#include "kernels/low_rank/low_rank.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/f16.h"
#include "kernels/testing/guard_pages.h"
#include "kernels/testing/isa_coverage.h"
#include "kernels/testing/seeded_rng.h"
#include "kernels/testing/tier_agreement.h"

namespace qsf::kernels {
namespace {

using testing_support::GuardedArray;
using testing_support::RowData;
using testing_support::SeededRng;

constexpr std::uint32_t kRanks[] = {1, 3, 8, 17};

class LowRankTest : public testing::TestWithParam<LowRankKernels> {
 protected:
  void SetUp() override {
    if (!testing_support::can_run(GetParam())) {
      GTEST_SKIP() << testing_support::lacking(GetParam().isa);
    }
  }
};

// A matrix between guards, as f32 or f16, and its values as they are stored.
class StoredValues {
 public:
  StoredValues(RowData data, std::size_t n_values, bool halves, SeededRng& rng)
      : values_(testing_support::make_data(data, n_values, rng)), halves_(n_values) {
    stored_ = {.data = values_.data(), .halves = halves};
    if (!halves) return;
    for (std::size_t i = 0; i < n_values; ++i) {
      halves_[i] = to_f16(values_[i]);
      values_[i] = to_f32(halves_[i]);
    }
    stored_.data = halves_.data();
  }
  double operator[](std::size_t i) const { return static_cast<double>(values_[i]); }
  LowRankValues stored() const { return stored_; }

 private:
  GuardedArray<float> values_;
  GuardedArray<F16> halves_;
  LowRankValues stored_{};
};

// Calls check(n, rank, halves) for sizes of every kind.
template <typename Check>
void for_shapes(const Check& check) {
  for (const std::uint32_t n : testing_support::sizes_around_vectors()) {
    for (const std::uint32_t rank : kRanks) {
      for (const bool halves : {false, true}) check(n, rank, halves);
    }
  }
}

std::size_t up_values(std::uint32_t n_rows, std::uint32_t rank) {
  return std::size_t{(n_rows + 15) / 16} * 16 * rank;
}

TEST_P(LowRankTest, DownFollowsTheDefinition) {
  SeededRng rng;
  for_shapes([&](std::uint32_t n_cols, std::uint32_t rank, bool halves) {
    const StoredValues a(RowData::kNormal, std::size_t{rank} * n_cols, halves, rng);
    const GuardedArray<float> x = testing_support::make_data(RowData::kNormal, n_cols, rng);
    GuardedArray<float> y(rank);
    GetParam().down({.a = a.stored(),
                     .x = x.data(),
                     .y = y.data(),
                     .scale = -1.5F,
                     .rank = rank,
                     .n_cols = n_cols});
    for (std::uint32_t r = 0; r < rank; ++r) {
      double sum = 0.0;
      double size = 0.0;
      for (std::uint32_t i = 0; i < n_cols; ++i) {
        const double term = a[std::size_t{r} * n_cols + i] * static_cast<double>(x[i]);
        sum += term;
        size += std::fabs(term);
      }
      ASSERT_NEAR(y[r], -1.5 * sum, (n_cols / 16 + 4) * 0x1p-24 * 1.5 * size)
          << n_cols << ' ' << rank << ' ' << halves;
    }
    EXPECT_TRUE(y.front_intact());
  });
}

TEST_P(LowRankTest, UpAddsToWhatIsThere) {
  SeededRng rng;
  for_shapes([&](std::uint32_t n_rows, std::uint32_t rank, bool halves) {
    const StoredValues b(RowData::kNormal, up_values(n_rows, rank), halves, rng);
    const GuardedArray<float> x = testing_support::make_data(RowData::kNormal, rank, rng);
    GuardedArray<float> y = testing_support::make_data(RowData::kNormal, n_rows, rng);
    const std::vector<float> before(y.data(), y.data() + n_rows);
    GetParam().add_up(
        {.b = b.stored(), .x = x.data(), .y = y.data(), .rank = rank, .n_rows = n_rows});
    for (std::uint32_t j = 0; j < n_rows; ++j) {
      double sum = static_cast<double>(before[j]);
      double size = std::fabs(sum);
      for (std::uint32_t r = 0; r < rank; ++r) {
        const std::size_t at = (std::size_t{j / 16} * rank + r) * 16 + j % 16;
        const double term = b[at] * static_cast<double>(x[r]);
        sum += term;
        size += std::fabs(term);
      }
      ASSERT_NEAR(y[j], sum, (rank + 2) * 0x1p-24 * size) << n_rows << ' ' << rank;
    }
    EXPECT_TRUE(y.front_intact());
  });
}

::testing::AssertionResult agrees(const LowRankKernels& kernels) {
  SeededRng rng;
  const LowRankKernels& scalar = low_rank_kernels().back();
  ::testing::AssertionResult result = ::testing::AssertionSuccess();
  for (const RowData data : testing_support::kAllRowData) {
    for_shapes([&](std::uint32_t n, std::uint32_t rank, bool halves) {
      const StoredValues a(data, std::size_t{rank} * n, halves, rng);
      const GuardedArray<float> x = testing_support::make_data(data, n + rank, rng);
      std::vector<float> got(rank), want(rank);
      LowRankDown down = {.a = a.stored(),
                          .x = x.data(),
                          .y = got.data(),
                          .scale = 0.25F,
                          .rank = rank,
                          .n_cols = n};
      kernels.down(down);
      down.y = want.data();
      scalar.down(down);
      auto same = testing_support::same_bits(got.data(), want.data(), rank);
      if (!same) result = same << ", down";

      const StoredValues b(data, up_values(n, rank), halves, rng);
      got.assign(x.data(), x.data() + n);
      want = got;
      LowRankUp up = {
          .b = b.stored(), .x = x.data() + n, .y = got.data(), .rank = rank, .n_rows = n};
      kernels.add_up(up);
      up.y = want.data();
      scalar.add_up(up);
      same = testing_support::same_bits(got.data(), want.data(), n);
      if (!same) result = same << ", up";
    });
  }
  return result;
}

TEST_P(LowRankTest, GivesTheBitsOfTheScalarTier) {
  EXPECT_TRUE(agrees(GetParam()));
}

TEST(LowRankCheckerTest, CatchesEveryPlantedFault) {
  EXPECT_TRUE(agrees(low_rank_kernels().back()));
  LowRankKernels tail_lost = low_rank_kernels().back();
  tail_lost.down = [](const LowRankDown& p) noexcept {
    LowRankDown whole = p;
    if (p.rank == 1) whole.n_cols = p.n_cols / 16 * 16;
    low_rank_kernels().back().down(whole);
  };
  EXPECT_FALSE(agrees(tail_lost));
  LowRankKernels last_first = low_rank_kernels().back();
  last_first.add_up = [](const LowRankUp& p) noexcept {
    const bool halves = p.b.halves;
    for (std::uint32_t j = 0; j < p.n_rows; ++j) {
      float sum = 0.0F;
      for (std::uint32_t r = p.rank; r > 0; --r) {
        const std::size_t at = (std::size_t{j / 16} * p.rank + r - 1) * 16 + j % 16;
        sum += (halves ? to_f32(static_cast<const F16*>(p.b.data)[at])
                       : static_cast<const float*>(p.b.data)[at]) *
               p.x[r - 1];
      }
      p.y[j] += sum;
    }
  };
  EXPECT_FALSE(agrees(last_first));
}

INSTANTIATE_TEST_SUITE_P(All, LowRankTest, testing::ValuesIn(low_rank_kernels()),
                         testing_support::KernelName{});

}  // namespace
}  // namespace qsf::kernels
