// SPDX-License-Identifier: MIT
//
// Holds every matmul kernel to its contract, on every instruction set this CPU has.

#include "kernels/matmul/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "kernels/testing/isa_coverage.h"
#include "kernels/testing/planted_faults.h"
#include "kernels/testing/reference.h"
#include "kernels/testing/sweep.h"

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
    if (!testing_support::can_run(GetParam())) {
      GTEST_SKIP() << testing_support::lacking(GetParam().isa);
    }
  }
  void check(const WeightProblem& problem) {
    EXPECT_TRUE(problem.is_right(GetParam().input, problem.run(GetParam())));
  }
};

// One row of x, as in decode: rows around the group, columns around the block, the pair of blocks,
// the activation block and the padding. Operands end where an unreadable page begins, and y begins
// wherever that leaves it.
TEST_P(MatMulTest, OneRowMatchesReferenceForEveryRemainder) {
  SeededRng rng;
  for (const std::uint32_t n_rows : {0U, 1U, 3U, 4U, 5U, 15U, 16U, 17U, 33U}) {
    for (const std::uint32_t n_cols :
         {1U, 31U, 32U, 33U, 63U, 64U, 65U, 128U, 172U, 320U, 600U, 896U}) {
      check(WeightProblem(GetParam().format, n_rows, n_cols, 1, Data::kAnyCodes, rng));
    }
  }
}

// The same where x has one scale a row, which a kernel may sum otherwise; numbers of groups around
// those that it may take at once.
TEST_P(MatMulTest, OneRowWithOneScaleMatchesReferenceForEveryRemainder) {
  if (GetParam().input != ActivationType::kInt8) return;
  SeededRng rng;
  for (const std::uint32_t n_rows : {0U, 1U, 16U, 17U, 33U, 48U, 65U}) {
    for (const std::uint32_t n_cols : {1U, 63U, 64U, 65U, 172U, 320U, 896U}) {
      check(WeightProblem(GetParam().format, n_rows, n_cols, 1, Data::kUnitScales, rng));
    }
  }
}

// Many rows of x, as in prompts, around every number of rows that a kernel may take at once.
TEST_P(MatMulTest, ManyRowsMatchReferenceForEveryRemainder) {
  SeededRng rng;
  for (const std::uint32_t n_x : {0U, 2U, 3U, 4U, 5U, 7U, 8U, 9U, 15U, 16U, 17U, 33U}) {
    for (const std::uint32_t n_rows : {0U, 1U, 16U, 17U, 47U}) {
      for (const std::uint32_t n_cols : {1U, 63U, 64U, 65U, 172U}) {
        check(WeightProblem(GetParam().format, n_rows, n_cols, n_x, Data::kAnyCodes, rng));
      }
    }
  }
}

// Rows longer than what a kernel may take of them at once, by a few columns and by many.
TEST_P(MatMulTest, ManyLongRowsMatchReference) {
  SeededRng rng;
  for (const std::uint32_t n_cols : {1025U, 4300U, 8195U}) {
    check(WeightProblem(GetParam().format, 19, n_cols, 9, Data::kNormal, rng));
  }
}

TEST_P(MatMulTest, MatchesReferenceForEveryKindOfData) {
  SeededRng rng;
  for (const Data data : testing_support::kAllData) {
    for (const std::uint32_t n_cols : {65U, testing_support::longest_row()}) {
      for (const std::uint32_t n_x : {1U, 3U}) {
        check(WeightProblem(GetParam().format, 17, n_cols, n_x, data, rng));
      }
    }
  }
}

// The vector that qk256 came with: every code 2, which is a weight of 1, and inputs of 0.5.
TEST_P(MatMulTest, Qk256GivesWhatItsVectorSays) {
  constexpr std::uint32_t kRows = 64;
  constexpr std::uint32_t kCols = 256;
  if (GetParam().format.type != QuantType::kQk256 || GetParam().input == ActivationType::kBf16)
    return;
  const testing_support::GuardedBytes weights(
      rows_bytes(GetParam().format, Layout::kInterleaved, kRows, kCols));
  std::memset(weights.data(), 0xAA, weights.size());
  const std::vector<float> x(kCols, 0.5F);
  const testing_support::GuardedBytes input(activation_row_bytes(GetParam().input, kCols));
  if (GetParam().input == ActivationType::kF32) {
    std::memcpy(input.data(), x.data(), input.size());
  } else {
    quantise_kernels().back().to_int8(x.data(), input.data(), kCols);
  }
  std::vector<float> y(kRows);
  GetParam().run({.weights = weights.data(),
                  .group_bytes = static_cast<std::size_t>(group_bytes(GetParam().format, kCols)),
                  .x = input.data(),
                  .x_stride = input.size(),
                  .y = y.data(),
                  .y_stride = kRows,
                  .n_x = 1,
                  .n_rows = kRows,
                  .n_cols = kCols});
  // Of int8 rows, the scale, four products and three sums are rounded.
  const float bound = GetParam().input == ActivationType::kF32 ? 0.0F : 128.0F * 8.0F * 0x1p-24F;
  for (const float value : y) EXPECT_NEAR(value, 128.0F, bound);
}

TEST_P(MatMulTest, ZeroInputGivesZero) {
  SeededRng rng;
  const WeightProblem problem(GetParam().format, 20, 172, 2, Data::kZeroInput, rng);
  for (const float y : problem.run(GetParam())) EXPECT_EQ(y, 0.0F);
}

// Batch invariance: however rows of x are grouped into calls, and rows of weights into bands, every
// output has the same bits, and so it has at every distance of prefetching.
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
        MatMulArgs args =
            problem.matmul_args(GetParam().input, y.data() + first * kRows + first_row, kRows);
        args.x += first * args.x_stride;
        args.n_x = std::min(n_x, kInputs - first);
        args.weights += first_row / 16 * args.group_bytes;
        args.n_rows = kRows - first_row;
        args.prefetch_bytes = first_row * 128;
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

TEST_P(MatMulTest, RowsDoNotDependOnTheirBand) {
  SeededRng rng;
  const WeightProblem problem(GetParam().format, 50, 300, 1, Data::kNormal, rng);
  const std::vector<float> whole = problem.run(GetParam());
  for (const std::uint32_t first : {0U, 16U, 32U, 48U}) {
    for (std::uint32_t n_rows = 1; first + n_rows <= 50; ++n_rows) {
      std::vector<float> y(n_rows);
      MatMulArgs args = problem.matmul_args(GetParam().input, y.data(), n_rows);
      args.weights += first / 16 * args.group_bytes;
      args.n_rows = n_rows;
      GetParam().run(args);
      ASSERT_EQ(std::memcmp(y.data(), &whole[first], n_rows * sizeof(float)), 0)
          << first << " + " << n_rows;
    }
  }
}

TEST_P(MatMulTest, LeavesTheRestOfEachOutputRowAlone) {
  SeededRng rng;
  const WeightProblem problem(GetParam().format, 19, 70, 5, Data::kNormal, rng);
  constexpr std::size_t kStride = 23;
  const GuardedArray<float> y(4 * kStride + 19);
  for (float& value : y) value = 12345.0F;
  GetParam().run(problem.matmul_args(GetParam().input, y.data(), kStride));
  for (std::size_t i = 0; i + 1 < 5; ++i) {
    for (std::size_t r = 19; r < kStride; ++r) EXPECT_EQ(y[i * kStride + r], 12345.0F);
  }
  EXPECT_TRUE(y.front_intact());
}

INSTANTIATE_TEST_SUITE_P(All, MatMulTest, testing::ValuesIn(matmul_kernels()), KernelName{});

TEST(MatMulTableTest, SelectsTheFirstThatTheTierCovers) {
  for (const Isa best : kAllIsas) {
    for (const MatMulKernel& kernel : matmul_kernels()) {
      const MatMulKernel* selected = find_matmul(kernel.format, kernel.input, best);
      if (selected == nullptr) {
        EXPECT_FALSE(isa_covers(best, kernel.isa));
        continue;
      }
      EXPECT_EQ(selected->format, kernel.format);
      EXPECT_EQ(selected->input, kernel.input);
      EXPECT_TRUE(isa_covers(best, selected->isa));
      EXPECT_TRUE(!isa_covers(best, kernel.isa) || selected->isa >= kernel.isa) << kernel.name;
    }
  }
  EXPECT_EQ(find_matmul({QuantType::kF32, 4}, ActivationType::kInt8, Isa::kScalar), nullptr);
  EXPECT_DEATH_IF_SUPPORTED(
      select_matmul({QuantType::kQ4, 128}, ActivationType::kF32, Isa::kScalar), "check failed");
}

// The checker on trial: kernels wrong on purpose must each be caught, or the tests above prove
// nothing. The right kernel passes the same problem.
TEST(MatMulCheckerTest, CatchesEveryPlantedFault) {
  for (const auto& fault : testing_support::planted_matmul_faults()) {
    for (const std::uint32_t n_cols : {65U, 130U}) {
      SeededRng rng;
      const WeightProblem problem(fault.kernel.format, 21, n_cols, 4, Data::kNormal, rng);
      const ActivationType input = fault.kernel.input;
      EXPECT_FALSE(problem.is_right(input, problem.run(fault.kernel)))
          << fault.what << " " << fault.kernel.name;
      const MatMulKernel& right = select_matmul(fault.kernel.format, input, Isa::kScalar);
      EXPECT_TRUE(problem.is_right(input, problem.run(right)));
    }
  }
}

TEST(MatMulCheckerTest, DiesOfEveryMemoryFault) {
  for (const auto& fault : testing_support::planted_memory_faults()) {
    SeededRng rng;
    const WeightProblem problem(fault.kernel.format, 21, 256, 1, Data::kNormal, rng);
    EXPECT_DEATH_IF_SUPPORTED(problem.run(fault.kernel), "") << fault.what;
  }
}

}  // namespace
}  // namespace qsf::kernels
