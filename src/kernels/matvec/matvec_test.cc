// SPDX-License-Identifier: MIT
//
// Holds every matvec kernel to its contract, on every instruction set this CPU has.

#include "kernels/matvec/matvec.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/testing/isa_coverage.h"
#include "kernels/testing/planted_faults.h"
#include "kernels/testing/reference.h"

namespace qsf::kernels {
namespace {

using testing_support::Data;
using testing_support::KernelName;
using testing_support::SeededRng;
using testing_support::WeightProblem;

class MatVecTest : public testing::TestWithParam<MatVecKernel> {
 protected:
  void SetUp() override {
    if (!testing_support::can_run(GetParam())) GTEST_SKIP() << GetParam().name;
  }
};

// Rows around the group, columns around the block, the pair of blocks and the activation padding.
// Operands end where an unreadable page begins, and y begins wherever that leaves it.
TEST_P(MatVecTest, MatchesReferenceForEveryRemainder) {
  SeededRng rng;
  for (const std::uint32_t n_rows : {0U, 1U, 3U, 4U, 5U, 15U, 16U, 17U, 33U}) {
    for (const std::uint32_t n_cols : {1U, 31U, 32U, 33U, 63U, 64U, 65U, 128U, 172U, 896U}) {
      const WeightProblem problem(GetParam().format, n_rows, n_cols, 1, Data::kAnyCodes, rng);
      EXPECT_TRUE(problem.within_bound(problem.run(GetParam())));
    }
  }
}

TEST_P(MatVecTest, MatchesReferenceForEveryKindOfData) {
  SeededRng rng;
  for (const Data data : testing_support::kAllData) {
    for (const std::uint32_t n_cols : {65U, 4096U}) {
      const WeightProblem problem(GetParam().format, 17, n_cols, 1, data, rng);
      EXPECT_TRUE(problem.within_bound(problem.run(GetParam())));
    }
  }
}

TEST_P(MatVecTest, ZeroInputGivesZero) {
  SeededRng rng;
  const WeightProblem problem(GetParam().format, 20, 172, 1, Data::kZeroInput, rng);
  for (const float y : problem.run(GetParam())) EXPECT_EQ(y, 0.0F);
}

// A row alone, or in a shorter band, has the bits it has among all rows.
TEST_P(MatVecTest, RowsDoNotDependOnTheirBand) {
  SeededRng rng;
  const WeightProblem problem(GetParam().format, 50, 300, 1, Data::kNormal, rng);
  const std::vector<float> whole = problem.run(GetParam());
  for (const std::uint32_t first : {0U, 16U, 32U, 48U}) {
    for (std::uint32_t n_rows = 1; first + n_rows <= 50; ++n_rows) {
      std::vector<float> y(n_rows);
      MatVecArgs args = problem.matvec_args(y.data());
      args.weights += first / 16 * args.group_bytes;
      args.n_rows = n_rows;
      GetParam().run(args);
      ASSERT_EQ(std::memcmp(y.data(), &whole[first], n_rows * sizeof(float)), 0)
          << first << " + " << n_rows;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MatVecTest, testing::ValuesIn(matvec_kernels()), KernelName{});

TEST(MatVecTableTest, SelectsWhatTheTierCovers) {
  for (const Isa best : kAllIsas) {
    for (const MatVecKernel& kernel : matvec_kernels()) {
      const MatVecKernel& selected = select_matvec(kernel.format, best);
      EXPECT_EQ(selected.format, kernel.format);
      EXPECT_TRUE(isa_covers(best, selected.isa));
    }
  }
  EXPECT_DEATH(select_matvec({QuantType::kQ4, 128}, Isa::kScalar), "check failed");
}

// The checker on trial: kernels wrong on purpose must each be caught, or the tests above prove
// nothing. The right kernel passes the same problem.
TEST(MatVecCheckerTest, CatchesEveryPlantedFault) {
  for (const auto& fault : testing_support::planted_matvec_faults()) {
    SeededRng rng;
    const WeightProblem problem(fault.kernel.format, 21, 65, 1, Data::kNormal, rng);
    EXPECT_FALSE(problem.within_bound(problem.run(fault.kernel))) << fault.what;
    const MatVecKernel& right = select_matvec(fault.kernel.format, Isa::kScalar);
    EXPECT_TRUE(problem.within_bound(problem.run(right)));
  }
}

TEST(MatVecCheckerTest, DiesOfEveryMemoryFault) {
  for (const auto& fault : testing_support::planted_memory_faults()) {
    SeededRng rng;
    const WeightProblem problem(fault.kernel.format, 21, 128, 1, Data::kNormal, rng);
    EXPECT_DEATH(problem.run(fault.kernel), "") << fault.what;
  }
}

}  // namespace
}  // namespace qsf::kernels
