// SPDX-License-Identifier: MIT
//
// Holds every kernel of selective scans to plain loops in f64 and to the scalar tier's bits.

#include "kernels/scan/scan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "kernels/testing/guard_pages.h"
#include "kernels/testing/isa_coverage.h"
#include "kernels/testing/seeded_rng.h"
#include "kernels/testing/tier_agreement.h"

namespace qsf::kernels {
namespace {

using testing_support::GuardedArray;
using testing_support::RowData;
using testing_support::SeededRng;

class ScanTest : public testing::TestWithParam<ScanKernels> {
 protected:
  void SetUp() override {
    if (!testing_support::can_run(GetParam())) {
      GTEST_SKIP() << testing_support::lacking(GetParam().isa);
    }
  }
};

// Operands of one step, each between guards.
struct ScanOperands {
  ScanOperands(RowData data, std::uint32_t n_cols, std::uint32_t n_state, SeededRng& rng)
      : x(make_data(data, n_cols, rng)),
        b(make_data(data, n_state, rng)),
        c(make_data(data, n_state, rng)),
        before(make_data(data, std::size_t{n_cols} * n_state, rng)),
        after(std::size_t{n_cols} * n_state),
        y(n_cols) {
    step = {.x = x.data(),
            .b = b.data(),
            .c = c.data(),
            .before = before.data(),
            .after = after.data(),
            .y = y.data(),
            .decay = 0.7F,
            .step = 0.3F,
            .skip = -1.1F,
            .n_cols = n_cols,
            .n_state = n_state};
  }

  GuardedArray<float> x, b, c, before, after, y;
  ScanStep step;
};

constexpr std::uint32_t kStates[] = {1, 5, 16, 130};

TEST_P(ScanTest, FollowsTheDefinition) {
  SeededRng rng;
  for (const std::uint32_t n_cols : testing_support::sizes_around_vectors()) {
    for (const std::uint32_t n_state : kStates) {
      ScanOperands o(RowData::kNormal, n_cols, n_state, rng);
      GetParam().take_step(o.step);
      for (std::uint32_t p = 0; p < n_cols; ++p) {
        const double x = static_cast<double>(o.x[p]);
        double want = static_cast<double>(o.step.skip) * x;
        double size = std::fabs(want);
        for (std::uint32_t n = 0; n < n_state; ++n) {
          const std::size_t at = std::size_t{n} * n_cols + p;
          const double kept = static_cast<double>(o.step.decay) * static_cast<double>(o.before[at]);
          const double in = static_cast<double>(o.step.step) * x * static_cast<double>(o.b[n]);
          ASSERT_NEAR(o.after[at], kept + in, 4 * 0x1p-24 * (std::fabs(kept) + std::fabs(in)));
          const double c = static_cast<double>(o.c[n]);
          want += (kept + in) * c;
          size += (std::fabs(kept) + std::fabs(in)) * std::fabs(c);
        }
        // One rounding for each sum and five in what is added.
        ASSERT_NEAR(o.y[p], want, (n_state + 5) * 0x1p-24 * size) << n_cols << ' ' << n_state;
      }
      EXPECT_TRUE(o.after.front_intact() && o.y.front_intact());
    }
  }
}

TEST_P(ScanTest, MayWriteOverWhatItReads) {
  SeededRng rng;
  for (const std::uint32_t n_cols : testing_support::sizes_around_vectors()) {
    ScanOperands o(RowData::kNormal, n_cols, 9, rng);
    GetParam().take_step(o.step);
    const std::vector<float> y(o.y.data(), o.y.data() + n_cols);
    o.step.after = o.before.data();
    GetParam().take_step(o.step);
    const std::size_t n_values = std::size_t{n_cols} * 9;
    EXPECT_TRUE(testing_support::same_bits(o.before.data(), o.after.data(), n_values));
    EXPECT_TRUE(testing_support::same_bits(o.y.data(), y.data(), n_cols));
  }
}

::testing::AssertionResult agrees(const ScanKernels& kernels) {
  SeededRng rng;
  for (const std::uint32_t n_cols : testing_support::sizes_around_vectors()) {
    for (const RowData data : testing_support::kAllRowData) {
      ScanOperands o(data, n_cols, 7, rng);
      kernels.take_step(o.step);
      std::vector<float> after(std::size_t{n_cols} * 7);
      std::vector<float> y(n_cols);
      ScanStep step = o.step;
      step.after = after.data();
      step.y = y.data();
      scan_kernels().back().take_step(step);
      auto same = testing_support::same_bits(o.after.data(), after.data(), after.size());
      if (!same) return same << ", state";
      same = testing_support::same_bits(o.y.data(), y.data(), n_cols);
      if (!same) return same << ", output";
    }
  }
  return ::testing::AssertionSuccess();
}

TEST_P(ScanTest, GivesTheBitsOfTheScalarTier) {
  EXPECT_TRUE(agrees(GetParam()));
}

TEST(ScanCheckerTest, CatchesEveryPlantedFault) {
  ScanKernels last_first = scan_kernels().back();
  last_first.take_step = [](const ScanStep& s) noexcept {
    scan_kernels().back().take_step(s);
    for (std::uint32_t p = 0; p < s.n_cols; ++p) {
      float sum = s.skip * s.x[p];
      for (std::uint32_t n = s.n_state; n > 0; --n) {
        sum += s.after[std::size_t{n - 1} * s.n_cols + p] * s.c[n - 1];
      }
      s.y[p] = sum;
    }
  };
  EXPECT_FALSE(agrees(last_first));
  ScanKernels tail_lost = scan_kernels().back();
  tail_lost.take_step = [](const ScanStep& s) noexcept {
    scan_kernels().back().take_step(s);
    if (s.n_cols % 16 != 0) s.after[s.n_cols - 1] = s.before[s.n_cols - 1];
  };
  EXPECT_FALSE(agrees(tail_lost));
}

INSTANTIATE_TEST_SUITE_P(All, ScanTest, testing::ValuesIn(scan_kernels()),
                         testing_support::KernelName{});

}  // namespace
}  // namespace qsf::kernels
