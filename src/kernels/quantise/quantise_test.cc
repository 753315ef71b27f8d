// SPDX-License-Identifier: MIT
//
// Holds every quantiser of activations to its definition, bit for bit.

#include "kernels/quantise/quantise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/testing/guard_pages.h"
#include "kernels/testing/isa_coverage.h"
#include "kernels/testing/seeded_rng.h"
#include "kernels/testing/special_values.h"
#include "kernels/testing/tier_agreement.h"

namespace qsf::kernels {
namespace {

using testing_support::GuardedArray;
using testing_support::GuardedBytes;
using testing_support::KernelName;
using testing_support::kInf;
using testing_support::kNaN;
using testing_support::SeededRng;

struct Row {
  std::vector<std::int8_t> codes;
  std::vector<Int8Block> x_blocks;
};

Row parse(const GuardedBytes& bytes, std::uint32_t n_cols) {
  Row row;
  row.codes.resize(int8_blocks_offset(n_cols));
  row.x_blocks.resize(int8_blocks(n_cols));
  if (!row.x_blocks.empty()) {
    std::memcpy(row.codes.data(), bytes.data(), row.codes.size());
    std::memcpy(row.x_blocks.data(), bytes.data() + row.codes.size(),
                row.x_blocks.size() * sizeof(Int8Block));
  }
  return row;
}

class QuantiseTest : public testing::TestWithParam<QuantiseKernels> {
 protected:
  void SetUp() override {
    if (!testing_support::can_run(GetParam())) {
      GTEST_SKIP() << testing_support::lacking(GetParam().isa);
    }
  }
  Row run(const std::vector<float>& x) {
    const auto n_cols = static_cast<std::uint32_t>(x.size());
    const GuardedArray<float> in(n_cols);
    std::copy(x.begin(), x.end(), in.begin());
    const GuardedBytes out(int8_row_bytes(n_cols));
    GetParam().to_int8(in.data(), out.data(), n_cols);
    EXPECT_TRUE(out.front_intact());
    return parse(out, n_cols);
  }
  std::pair<Row, float> run_row(const std::vector<float>& x) {
    const auto n_cols = static_cast<std::uint32_t>(x.size());
    const GuardedArray<float> in(n_cols);
    std::copy(x.begin(), x.end(), in.begin());
    const GuardedBytes out(int8_row_bytes(n_cols));
    const float scale = GetParam().row_to_int8(in.data(), out.data(), n_cols);
    EXPECT_TRUE(out.front_intact());
    return {parse(out, n_cols), scale};
  }
};

TEST_P(QuantiseTest, MatchesTheDefinition) {
  SeededRng rng;
  for (const std::uint32_t n_cols : {0U, 1U, 31U, 32U, 33U, 63U, 64U, 65U, 127U, 128U, 896U}) {
    for (const float size : {1.0F, 0x1p-120F, 0x1p-99F, 0x1p-60F, 0x1p120F}) {
      std::vector<float> x(n_cols);
      for (float& value : x) value = rng.get().next_normal() * size;
      const Row row = run(x);
      x.resize(row.codes.size(), 0.0F);
      for (std::size_t k = 0; k < row.x_blocks.size(); ++k) {
        float max = 0.0F;
        for (std::size_t c = 0; c < 64; ++c) max = std::max(max, std::fabs(x[k * 64 + c]));
        const bool tiny = max < 0x1p-100F;
        EXPECT_EQ(row.x_blocks[k].scale, tiny ? 0.0F : max / 127.0F);
        float sums[4] = {};
        for (std::size_t c = 0; c < 64; ++c) {
          const float want = tiny ? 0.0F : std::nearbyint(x[k * 64 + c] * (127.0F / max));
          ASSERT_EQ(static_cast<float>(row.codes[k * 64 + c]), want) << n_cols << ' ' << k;
          sums[c / 16] += want;
        }
        EXPECT_EQ(row.x_blocks[k].low_sum, sums[0] + sums[1]);
        EXPECT_EQ(row.x_blocks[k].high_sum, sums[2] + sums[3]);
        EXPECT_EQ(row.x_blocks[k].sum, sums[0] + sums[1] + sums[2] + sums[3]);
        for (std::size_t i = 0; i < 4; ++i) {
          const unsigned at = quarter_place(i);
          EXPECT_EQ(static_cast<float>(row.x_blocks[k].quarter_sums[at]), sums[i]);
          EXPECT_EQ(static_cast<float>(row.x_blocks[k].quarter_zeros[at]), -4.0F * sums[i]);
        }
      }
    }
  }
}

TEST_P(QuantiseTest, HalvesGoToTheEvenCode) {
  std::vector<float> x(64, 0.0F);
  x[0] = 127.0F;
  for (int i = 1; i < 63; ++i) x[i] = static_cast<float>(i - 32) + 0.5F;
  const Row row = run(x);
  for (int i = 1; i < 63; ++i) EXPECT_EQ(row.codes[i] % 2, 0) << i;
}

TEST_P(QuantiseTest, LargestMagnitudeIsCode127) {
  for (const float max : {1.0F, -3.7F, 0x1.fffffep127F, -0x1p-100F}) {
    std::vector<float> x(64, max / 3.0F);
    x[17] = max;
    EXPECT_EQ(run(x).codes[17], max > 0.0F ? 127 : -127);
  }
}

TEST_P(QuantiseTest, Block64sThatAreNotFiniteBecomeNaN) {
  for (const float bad : {kNaN, -kNaN, kInf, -kInf}) {
    std::vector<float> x(192, 1.0F);
    x[100] = bad;
    const Row row = run(x);
    EXPECT_EQ(row.x_blocks[0].scale, 1.0F / 127.0F);
    EXPECT_TRUE(std::isnan(row.x_blocks[1].scale));
    EXPECT_EQ(row.x_blocks[1].sum, 0.0F);
    EXPECT_EQ(row.x_blocks[2].scale, 1.0F / 127.0F);
    for (std::size_t c = 64; c < 128; ++c) EXPECT_EQ(row.codes[c], 0);
  }
}

TEST_P(QuantiseTest, RowsWithOneScaleMatchTheDefinition) {
  SeededRng rng;
  for (const std::uint32_t n_cols : {0U, 1U, 31U, 63U, 64U, 65U, 127U, 128U, 896U}) {
    for (const float size : {1.0F, 0x1p-120F, 1e-6F, 0x1p120F}) {
      std::vector<float> x(n_cols);
      for (float& value : x) value = rng.get().next_normal() * size;
      float max = 1e-5F;
      for (const float value : x) max = std::max(max, std::fabs(value));
      const auto [row, scale] = run_row(x);
      EXPECT_EQ(scale, max / 127.0F);
      x.resize(row.codes.size(), 0.0F);
      for (std::size_t k = 0; k < row.x_blocks.size(); ++k) {
        EXPECT_EQ(row.x_blocks[k].scale, 1.0F);
        float sums[2] = {0.0F, 0.0F};
        for (std::size_t c = 0; c < 64; ++c) {
          const float want = std::nearbyint(x[k * 64 + c] * (127.0F / max));
          ASSERT_EQ(static_cast<float>(row.codes[k * 64 + c]), want) << n_cols << ' ' << k;
          sums[c / 32] += want;
        }
        EXPECT_EQ(row.x_blocks[k].low_sum, sums[0]);
        EXPECT_EQ(row.x_blocks[k].high_sum, sums[1]);
        EXPECT_EQ(row.x_blocks[k].sum, sums[0] + sums[1]);
      }
    }
  }
}

TEST_P(QuantiseTest, RowsWithOneScaleThatAreNotFiniteBecomeNaN) {
  for (const float bad : {kNaN, -kNaN, kInf, -kInf}) {
    std::vector<float> x(100, 1.0F);
    x[99] = bad;
    const auto [row, scale] = run_row(x);
    EXPECT_TRUE(std::isnan(scale));
    for (const std::int8_t code : row.codes) EXPECT_EQ(code, 0);
    for (const Int8Block& x_block : row.x_blocks) EXPECT_EQ(x_block.sum, 0.0F);
  }
}

// Whether rows of every kind and size have the scalar tier's bytes.
::testing::AssertionResult agrees(const QuantiseKernels& kernels) {
  SeededRng rng;
  for (const std::uint32_t n : testing_support::sizes_around_vectors()) {
    for (const testing_support::RowData data : testing_support::kAllRowData) {
      const auto x = make_data(data, n, rng);
      const GuardedBytes got(int8_row_bytes(n));
      const GuardedBytes want(int8_row_bytes(n));
      for (const bool whole_rows : {false, true}) {
        float scales[2] = {0.0F, 0.0F};
        if (whole_rows) {
          scales[0] = kernels.row_to_int8(x.data(), got.data(), n);
          scales[1] = quantise_kernels().back().row_to_int8(x.data(), want.data(), n);
        } else {
          kernels.to_int8(x.data(), got.data(), n);
          quantise_kernels().back().to_int8(x.data(), want.data(), n);
        }
        if (std::memcmp(scales, scales + 1, sizeof(float)) != 0) {
          return ::testing::AssertionFailure() << "scale of " << n << " values";
        }
        for (std::size_t i = 0; i < got.size(); ++i) {
          if (got.data()[i] != want.data()[i]) {
            return ::testing::AssertionFailure()
                   << "byte " << i << " of " << n << " values of data " << static_cast<int>(data);
          }
        }
      }
      if (!got.front_intact()) return ::testing::AssertionFailure() << "wrote in front";
    }
  }
  return ::testing::AssertionSuccess();
}

TEST_P(QuantiseTest, GivesTheBytesOfTheScalarTier) {
  EXPECT_TRUE(agrees(GetParam()));
}

TEST(QuantiseCheckerTest, CatchesEveryPlantedFault) {
  QuantiseKernels rounds_up = quantise_kernels().back();
  rounds_up.to_int8 = [](const float* x, std::byte* out, std::uint32_t n) noexcept {
    quantise_kernels().back().to_int8(x, out, n);
    if (n > 40 && out[40] != std::byte{0})
      out[40] = static_cast<std::byte>(static_cast<int>(out[40]) ^ 1);
  };
  EXPECT_FALSE(agrees(rounds_up));
  QuantiseKernels scaled_by_block64 = quantise_kernels().back();
  scaled_by_block64.row_to_int8 = [](const float* x, std::byte* out, std::uint32_t n) noexcept {
    quantise_kernels().back().to_int8(x, out, n);
    return 1.0F;
  };
  EXPECT_FALSE(agrees(scaled_by_block64));
  QuantiseKernels halves_swapped = quantise_kernels().back();
  halves_swapped.to_int8 = [](const float* x, std::byte* out, std::uint32_t n) noexcept {
    quantise_kernels().back().to_int8(x, out, n);
    for (std::size_t k = 0; k < int8_blocks(n); ++k) {
      std::byte* sums = out + int8_blocks_offset(n) + k * sizeof(Int8Block) + sizeof(float);
      std::swap_ranges(sums, sums + sizeof(float), sums + sizeof(float));
    }
  };
  EXPECT_FALSE(agrees(halves_swapped));
}

INSTANTIATE_TEST_SUITE_P(All, QuantiseTest, testing::ValuesIn(quantise_kernels()), KernelName{});

}  // namespace
}  // namespace qsf::kernels
