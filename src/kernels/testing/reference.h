// SPDX-License-Identifier: MIT
//
// Problems for the weight kernels: guarded operands and the exact answer in f64.
//
// Weights are made as layout-0 rows, by encoding floats or by choosing codes and scales outright,
// and interleaved by quant/interleave.h. The truth is computed from the definition of each type
// (quant/block_format.h) on the codes and scales read back, so it shares no arithmetic with any
// kernel.

#ifndef QSF_KERNELS_TESTING_REFERENCE_H_
#define QSF_KERNELS_TESTING_REFERENCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "kernels/matmul/matmul.h"
#include "kernels/testing/guard_pages.h"
#include "kernels/testing/seeded_rng.h"
#include "quant/block_format.h"

namespace qsf::kernels::testing_support {

enum class Data {
  kUniform,      // weights in [-1, 1), encoded
  kNormal,       // normal weights, encoded
  kOutliers,     // normal weights, one in 64 of them 100 times as large, encoded
  kAnyCodes,     // every code and scales of either sign and any size
  kLargest,      // largest codes, scales and mins; rows of x all 1 or all -1: the largest sums
  kSmallest,     // smallest codes, most negative mins, largest scales
  kTinyScales,   // largest codes under the smallest subnormal scale
  kZeroWeights,  // scale 0, min 0
  kZeroInput,    // x all 0
  kUnitScales,  // normal weights; int8 rows of x with one scale, and 1 for that of every activation
                // block
};
inline constexpr Data kAllData[] = {
    Data::kUniform,  Data::kNormal,     Data::kOutliers,    Data::kAnyCodes,  Data::kLargest,
    Data::kSmallest, Data::kTinyScales, Data::kZeroWeights, Data::kZeroInput, Data::kUnitScales};

class WeightProblem {
 public:
  WeightProblem(BlockFormat format, std::uint32_t n_rows, std::uint32_t n_cols, std::uint32_t n_x,
                Data data, SeededRng& rng);

  // Operands as a kernel of that input takes them; y is the caller's.
  MatMulArgs matmul_args(ActivationType input, float* y, std::size_t y_stride) const;

  // Runs into a guarded y [n_x][n_rows]; fails when a byte in front of it changed.
  std::vector<float> run(const MatMulKernel& kernel) const;

  // Compares y [n_x][n_rows], made from rows of `input`, with the exact answer: for kInt8 bit for
  // bit with the sequence of operations that matmul.h promises, for the others within a bound.
  ::testing::AssertionResult is_right(ActivationType input, const std::vector<float>& y) const;

  BlockFormat format() const noexcept { return format_; }
  std::uint32_t n_rows() const noexcept { return n_rows_; }
  std::uint32_t n_cols() const noexcept { return n_cols_; }
  // The exact weights, [n_rows][n_cols].
  const std::vector<double>& weights() const noexcept { return exact_; }
  const GuardedBytes& groups() const noexcept { return groups_; }
  const std::string& name() const noexcept { return name_; }

 private:
  // What the kernels are told of one block of one row.
  struct Block {
    float scale;
    float min;
    // Of blocks of 16: the whole numbers that multiply them. 1 of others.
    std::int32_t scale_factor;
    std::int32_t min_factor;
  };

  void read_back(ByteSpan row, std::uint32_t row_index);
  void make_inputs(Data data, SeededRng& rng);
  float int8_answer(std::size_t i, std::size_t row) const;
  const std::byte* input_row(ActivationType input, std::size_t i) const;
  ::testing::AssertionResult within_bound(ActivationType input, const std::vector<float>& y) const;
  ::testing::AssertionResult has_int8_bits(const std::vector<float>& y) const;

  BlockFormat format_;
  std::uint32_t n_rows_;
  std::uint32_t n_cols_;
  std::uint32_t n_x_;
  GuardedBytes groups_;
  GuardedBytes f32_rows_;
  GuardedBytes int8_rows_;
  GuardedBytes bf16_rows_;
  std::vector<std::int32_t> codes_;  // [n_rows][n_cols] as they are multiplied; coded types
  std::vector<Block> blocks_;        // [n_rows][blocks of a row]; coded types
  std::vector<float> row_scales_;    // [n_rows], 1 for types without
  std::vector<double> exact_;
  std::vector<double> magnitude_;  // |scale * code| + |min|
  bool unit_scales_;
  std::string name_;
};

}  // namespace qsf::kernels::testing_support

#endif  // QSF_KERNELS_TESTING_REFERENCE_H_
