// SPDX-License-Identifier: MIT
//
// Holds every kernel of gated delta rules to plain loops in f64 and to the scalar tier's bits.

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include "kernels/scan/scan.h"
#include "kernels/testing/guard_pages.h"
#include "kernels/testing/isa_coverage.h"
#include "kernels/testing/seeded_rng.h"
#include "kernels/testing/tier_agreement.h"

namespace qsf::kernels {
namespace {

using testing_support::GuardedArray;
using testing_support::RowData;
using testing_support::SeededRng;

class DeltaStepTest : public testing::TestWithParam<ScanKernels> {
 protected:
  void SetUp() override {
    if (!testing_support::can_run(GetParam())) {
      GTEST_SKIP() << testing_support::lacking(GetParam().isa);
    }
  }
};

// Operands of one step, each between guards.
struct DeltaOperands {
  DeltaOperands(RowData data, std::uint32_t n_cols, std::uint32_t n_state, SeededRng& rng)
      : value(make_data(data, n_cols, rng)),
        key(make_data(data, n_state, rng)),
        query(make_data(data, n_state, rng)),
        before(make_data(data, std::size_t{n_cols} * n_state, rng)),
        after(std::size_t{n_cols} * n_state),
        y(n_cols) {
    step = {.value = value.data(),
            .key = key.data(),
            .query = query.data(),
            .before = before.data(),
            .after = after.data(),
            .y = y.data(),
            .decay = 0.7F,
            .rate = 0.3F,
            .n_cols = n_cols,
            .n_state = n_state};
  }

  GuardedArray<float> value, key, query, before, after, y;
  DeltaStep step;
};

TEST_P(DeltaStepTest, FollowsTheDefinition) {
  SeededRng rng;
  for (const std::uint32_t n_cols : testing_support::sizes_around_vectors()) {
    for (const std::uint32_t n_state : {1U, 5U, 16U, 130U}) {
      DeltaOperands o(RowData::kNormal, n_cols, n_state, rng);
      GetParam().take_delta_step(o.step);
      for (std::uint32_t p = 0; p < n_cols; ++p) {
        double change = static_cast<double>(o.value[p]);
        double most = std::fabs(change);
        const auto kept = [&](std::uint32_t n) {
          return static_cast<double>(o.step.decay) *
                 static_cast<double>(o.before[std::size_t{n} * n_cols + p]);
        };
        for (std::uint32_t n = 0; n < n_state; ++n) {
          change -= kept(n) * static_cast<double>(o.key[n]);
          most += std::fabs(kept(n) * static_cast<double>(o.key[n]));
        }
        // One rounding for each sum and four in what is added; so in the sum behind it.
        const double roundings = (n_state + 4) * 0x1p-24;
        double want = 0;
        double bound = 0;
        for (std::uint32_t n = 0; n < n_state; ++n) {
          const double key = static_cast<double>(o.step.rate) * static_cast<double>(o.key[n]);
          const double state = kept(n) + change * key;
          const double size = std::fabs(kept(n)) + most * std::fabs(key);
          ASSERT_NEAR(o.after[std::size_t{n} * n_cols + p], state, roundings * size);
          want += state * static_cast<double>(o.query[n]);
          bound += 2 * roundings * size * std::fabs(static_cast<double>(o.query[n]));
        }
        ASSERT_NEAR(o.y[p], want, bound) << n_cols << ' ' << n_state;
      }
      EXPECT_TRUE(o.after.front_intact() && o.y.front_intact());
    }
  }
}

TEST_P(DeltaStepTest, MayWriteOverWhatItReads) {
  SeededRng rng;
  for (const std::uint32_t n_cols : testing_support::sizes_around_vectors()) {
    DeltaOperands o(RowData::kNormal, n_cols, 9, rng);
    GetParam().take_delta_step(o.step);
    const std::vector<float> y(o.y.data(), o.y.data() + n_cols);
    o.step.after = o.before.data();
    GetParam().take_delta_step(o.step);
    const std::size_t n_values = std::size_t{n_cols} * 9;
    EXPECT_TRUE(testing_support::same_bits(o.before.data(), o.after.data(), n_values));
    EXPECT_TRUE(testing_support::same_bits(o.y.data(), y.data(), n_cols));
  }
}

::testing::AssertionResult delta_agrees(const ScanKernels& kernels) {
  SeededRng rng;
  for (const std::uint32_t n_cols : testing_support::sizes_around_vectors()) {
    for (const RowData data : testing_support::kAllRowData) {
      DeltaOperands o(data, n_cols, 7, rng);
      kernels.take_delta_step(o.step);
      std::vector<float> after(std::size_t{n_cols} * 7);
      std::vector<float> y(n_cols);
      DeltaStep step = o.step;
      step.after = after.data();
      step.y = y.data();
      scan_kernels().back().take_delta_step(step);
      auto same = testing_support::same_bits(o.after.data(), after.data(), after.size());
      if (!same) return same << ", state";
      same = testing_support::same_bits(o.y.data(), y.data(), n_cols);
      if (!same) return same << ", output";
    }
  }
  return ::testing::AssertionSuccess();
}

TEST_P(DeltaStepTest, GivesTheBitsOfTheScalarTier) {
  EXPECT_TRUE(delta_agrees(GetParam()));
}

TEST(DeltaStepCheckerTest, CatchesEveryPlantedFault) {
  ScanKernels late_decay = scan_kernels().back();
  late_decay.take_delta_step = [](const DeltaStep& s) noexcept {
    DeltaStep undecayed = s;
    undecayed.decay = 1.0F;
    scan_kernels().back().take_delta_step(undecayed);
  };
  EXPECT_FALSE(delta_agrees(late_decay));
  ScanKernels tail_lost = scan_kernels().back();
  tail_lost.take_delta_step = [](const DeltaStep& s) noexcept {
    scan_kernels().back().take_delta_step(s);
    if (s.n_cols % 16 != 0) s.y[s.n_cols - 1] = 0.0F;
  };
  EXPECT_FALSE(delta_agrees(tail_lost));
}

INSTANTIATE_TEST_SUITE_P(All, DeltaStepTest, testing::ValuesIn(scan_kernels()),
                         testing_support::KernelName{});

}  // namespace
}  // namespace qsf::kernels
