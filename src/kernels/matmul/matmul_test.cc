// SPDX-License-Identifier: MIT
//
// Holds every matmul kernel to its contract, on every instruction set this CPU has.

#include "kernels/matmul/matmul.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/testing/isa_coverage.h"
#include "kernels/testing/planted_faults.h"
#include "kernels/testing/reference.h"

namespace qsf::kernels {
namespace {

using testing_support::Data;
using testing_support::GuardedArray;
using testing_support::KernelName;
using testing_support::SeededRng;
using testing_support::WeightProblem;

class MatMulTest : public testing::TestWithParam<MatMulKernel> {
 protected:
  void SetUp() override {
    if (!testing_support::can_run(GetParam())) GTEST_SKIP() << GetParam().name;
  }
};

TEST_P(MatMulTest, MatchesReferenceForEveryRemainder) {
  SeededRng rng;
  for (const std::uint32_t n_x : {0U, 1U, 2U, 3U, 33U}) {
    for (const std::uint32_t n_rows : {0U, 1U, 15U, 16U, 17U}) {
      for (const std::uint32_t n_cols : {1U, 32U, 63U, 64U, 65U, 172U}) {
        const WeightProblem problem(GetParam().format, n_rows, n_cols, n_x, Data::kAnyCodes, rng);
        EXPECT_TRUE(problem.within_bound(problem.run(GetParam())));
      }
    }
  }
}

TEST_P(MatMulTest, MatchesReferenceForEveryKindOfData) {
  SeededRng rng;
  for (const Data data : testing_support::kAllData) {
    for (const std::uint32_t n_cols : {65U, 4096U}) {
      const WeightProblem problem(GetParam().format, 17, n_cols, 3, data, rng);
      EXPECT_TRUE(problem.within_bound(problem.run(GetParam())));
    }
  }
}

// Row invariance: however rows of x are grouped into calls, and rows of weights into bands, every
// output has the same bits.
TEST_P(MatMulTest, OutputsDoNotDependOnGrouping) {
  constexpr std::uint32_t kInputs = 70;
  constexpr std::uint32_t kRows = 37;
  SeededRng rng;
  const WeightProblem problem(GetParam().format, kRows, 300, kInputs, Data::kNormal, rng);
  const std::vector<float> whole = problem.run(GetParam());
  for (const std::uint32_t n_x : {1U, 2U, 3U, 31U, 32U, 33U, 64U}) {
    for (const std::uint32_t first_row : {0U, 16U, 32U}) {
      std::vector<float> y(kInputs * kRows, 0.0F);
      for (std::uint32_t first = 0; first < kInputs; first += n_x) {
        MatMulArgs args = problem.matmul_args(y.data() + first * kRows + first_row, kRows);
        args.x += first * args.x_stride;
        args.n_x = std::min(n_x, kInputs - first);
        args.weights += first_row / 16 * args.group_bytes;
        args.n_rows = kRows - first_row;
        GetParam().run(args);
      }
      for (std::uint32_t i = 0; i < kInputs; ++i) {
        const std::size_t at = i * kRows + first_row;
        ASSERT_EQ(std::memcmp(&y[at], &whole[at], (kRows - first_row) * sizeof(float)), 0)
            << "n_x " << n_x << " from row " << first_row << " input " << i;
      }
    }
  }
}

TEST_P(MatMulTest, LeavesTheRestOfEachOutputRowAlone) {
  SeededRng rng;
  const WeightProblem problem(GetParam().format, 19, 70, 5, Data::kNormal, rng);
  constexpr std::size_t kStride = 23;
  const GuardedArray<float> y(4 * kStride + 19);
  for (float& value : y) value = 12345.0F;
  GetParam().run(problem.matmul_args(y.data(), kStride));
  for (std::size_t i = 0; i + 1 < 5; ++i) {
    for (std::size_t r = 19; r < kStride; ++r) EXPECT_EQ(y[i * kStride + r], 12345.0F);
  }
  EXPECT_TRUE(y.front_intact());
}

INSTANTIATE_TEST_SUITE_P(All, MatMulTest, testing::ValuesIn(matmul_kernels()), KernelName{});

TEST(MatMulTableTest, SelectsWhatTheTierCovers) {
  for (const Isa best : kAllIsas) {
    for (const MatMulKernel& kernel : matmul_kernels()) {
      const MatMulKernel& selected = select_matmul(kernel.format, best);
      EXPECT_EQ(selected.format, kernel.format);
      EXPECT_TRUE(isa_covers(best, selected.isa));
    }
  }
}

TEST(MatMulCheckerTest, CatchesEveryPlantedFault) {
  for (const auto& fault : testing_support::planted_matmul_faults()) {
    SeededRng rng;
    const WeightProblem problem(fault.kernel.format, 21, 130, 4, Data::kNormal, rng);
    EXPECT_FALSE(problem.within_bound(problem.run(fault.kernel))) << fault.what;
  }
}

}  // namespace
}  // namespace qsf::kernels
