// SPDX-License-Identifier: MIT
//
// Holds every normalisation kernel to its contract.

#include "kernels/norm/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/testing/error_bound.h"
#include "kernels/testing/guard_pages.h"
#include "kernels/testing/isa_coverage.h"
#include "kernels/testing/seeded_rng.h"
#include "kernels/testing/tier_agreement.h"

namespace qsf::kernels {
namespace {

using testing_support::gamma_of;
using testing_support::GuardedArray;
using testing_support::SeededRng;

constexpr float kEps = 1e-5F;
constexpr std::uint32_t kSizes[] = {1, 3, 4, 5, 63, 64, 65, 172, 4097};

class NormTest : public testing::TestWithParam<NormKernels> {
 protected:
  void SetUp() override {
    if (!testing_support::can_run(GetParam())) {
      GTEST_SKIP() << testing_support::lacking(GetParam().isa);
    }
  }
};

struct Operands {
  Operands(std::uint32_t n, float offset, float size, SeededRng& rng)
      : x(n), gain(n), bias(n), y(n) {
    for (std::uint32_t i = 0; i < n; ++i) {
      x[i] = offset + size * rng.get().next_normal();
      gain[i] = rng.uniform(-2.0F, 2.0F);
      bias[i] = rng.uniform(-2.0F, 2.0F);
    }
  }
  GuardedArray<float> x;
  GuardedArray<float> gain;
  GuardedArray<float> bias;
  GuardedArray<float> y;
};

// The factor is rounded once, then two products: three roundings.
TEST_P(NormTest, RmsNormMatchesReference) {
  SeededRng rng;
  for (const std::uint32_t n : kSizes) {
    for (const float size : {1.0F, 1e-12F, 1e15F}) {
      const Operands o(n, 0.0F, size, rng);
      double sum = 0.0;
      for (const float v : o.x) sum += static_cast<double>(v) * static_cast<double>(v);
      const double factor = 1.0 / std::sqrt(sum / n + static_cast<double>(kEps));
      for (const bool with_gain : {true, false}) {
        GetParam().rms_norm(o.x.data(), with_gain ? o.gain.data() : nullptr, o.y.data(), n, kEps);
        std::vector<double> want(n);
        std::vector<double> bounds(n);
        for (std::uint32_t i = 0; i < n; ++i) {
          const double gain = with_gain ? static_cast<double>(o.gain[i]) : 1.0;
          want[i] = static_cast<double>(o.x[i]) * factor * gain;
          bounds[i] = gamma_of(4) * std::fabs(want[i]) + 0x1p-148;
        }
        EXPECT_TRUE(testing_support::all_within(o.y.data(), want, bounds)) << n << " " << size;
      }
    }
  }
}

// One rounding to f32, one product, one sum; the double part adds rounding of x - mean, which
// matters where the mean is large.
TEST_P(NormTest, LayerNormMatchesReference) {
  SeededRng rng;
  for (const std::uint32_t n : kSizes) {
    for (const float offset : {0.0F, 1000.0F}) {
      const Operands o(n, offset, 1.0F, rng);
      long double sum = 0.0L;
      for (const float v : o.x) sum += static_cast<long double>(v);
      const auto mean = static_cast<double>(sum / n);
      double squares = 0.0;
      for (const float v : o.x) squares += (v - mean) * (v - mean);
      const double factor = 1.0 / std::sqrt(squares / n + static_cast<double>(kEps));
      GetParam().layer_norm(o.x.data(), o.gain.data(), o.bias.data(), o.y.data(), n, kEps);
      std::vector<double> want(n);
      std::vector<double> bounds(n);
      for (std::uint32_t i = 0; i < n; ++i) {
        const double scaled = (o.x[i] - mean) * factor * static_cast<double>(o.gain[i]);
        const double bias = o.bias[i];
        want[i] = scaled + bias;
        const double slack = 0x1p-48 * (std::fabs(mean) + 1.0) * factor * 2.0;
        bounds[i] = gamma_of(4) * (std::fabs(scaled) + std::fabs(bias)) + slack;
      }
      EXPECT_TRUE(testing_support::all_within(o.y.data(), want, bounds)) << n << " " << offset;
    }
  }
}

TEST_P(NormTest, LayerNormTakesNullGainAndBias) {
  const float x[] = {1.0F, 3.0F};
  const float bias[] = {10.0F, 20.0F};
  float y[2];
  GetParam().layer_norm(x, nullptr, nullptr, y, 2, 0.0F);
  EXPECT_EQ(y[0], -1.0F);
  EXPECT_EQ(y[1], 1.0F);
  GetParam().layer_norm(x, nullptr, bias, y, 2, 0.0F);
  EXPECT_EQ(y[0], 9.0F);
  EXPECT_EQ(y[1], 21.0F);
}

TEST_P(NormTest, WorksInPlaceAndOnZeros) {
  SeededRng rng;
  const Operands o(77, 0.0F, 1.0F, rng);
  GetParam().rms_norm(o.x.data(), o.gain.data(), o.y.data(), 77, kEps);
  GetParam().rms_norm(o.x.data(), o.gain.data(), o.x.data(), 77, kEps);
  for (std::uint32_t i = 0; i < 77; ++i) EXPECT_EQ(o.x[i], o.y[i]);
  float zeros[5] = {};
  GetParam().rms_norm(zeros, nullptr, zeros, 5, kEps);
  GetParam().layer_norm(zeros, nullptr, nullptr, zeros, 5, kEps);
  for (const float v : zeros) EXPECT_EQ(v, 0.0F);
}

// Whether both norms have the scalar tier's bits on all data and sizes, and stay in their operands.
::testing::AssertionResult agrees(const NormKernels& kernels) {
  const NormKernels& scalar = norm_kernels().back();
  SeededRng rng;
  for (const std::uint32_t n : testing_support::sizes_around_vectors()) {
    if (n == 0) continue;
    for (const testing_support::RowData data : testing_support::kAllRowData) {
      const auto x = make_data(data, n, rng);
      const auto gain = make_data(testing_support::RowData::kUniform, n, rng);
      const auto bias = make_data(testing_support::RowData::kNormal, n, rng);
      const GuardedArray<float> got(n);
      const GuardedArray<float> want(n);
      for (const float* g : {static_cast<float*>(nullptr), gain.data()}) {
        kernels.rms_norm(x.data(), g, got.data(), n, kEps);
        scalar.rms_norm(x.data(), g, want.data(), n, kEps);
        auto same = testing_support::same_bits(got.data(), want.data(), n);
        if (!same) return same << ", rms_norm of data " << static_cast<int>(data);
        for (const float* b : {static_cast<float*>(nullptr), bias.data()}) {
          kernels.layer_norm(x.data(), g, b, got.data(), n, kEps);
          scalar.layer_norm(x.data(), g, b, want.data(), n, kEps);
          same = testing_support::same_bits(got.data(), want.data(), n);
          if (!same) return same << ", layer_norm of data " << static_cast<int>(data);
        }
      }
      if (!got.front_intact()) return ::testing::AssertionFailure() << "wrote in front";
    }
  }
  return ::testing::AssertionSuccess();
}

TEST_P(NormTest, GivesTheBitsOfTheScalarTier) {
  EXPECT_TRUE(agrees(GetParam()));
}

TEST(NormCheckerTest, CatchesEveryPlantedFault) {
  NormKernels tail_lost = norm_kernels().back();
  tail_lost.rms_norm = [](const float* x, const float* gain, float* y, std::uint32_t n,
                          float eps) noexcept {
    norm_kernels().back().rms_norm(x, gain, y, n, eps);
    if (n % 16 == 15) y[n - 1] = 0.0F;
  };
  EXPECT_FALSE(agrees(tail_lost));
  NormKernels summed_in_order = norm_kernels().back();
  summed_in_order.rms_norm = [](const float* x, const float* gain, float* y, std::uint32_t n,
                                float eps) noexcept {
    float sum = 0.0F;
    for (std::uint32_t i = 0; i < n; ++i) sum += x[i] * x[i];
    const float factor = 1.0F / std::sqrt(sum / static_cast<float>(n) + eps);
    for (std::uint32_t i = 0; i < n; ++i) y[i] = x[i] * factor * (gain ? gain[i] : 1.0F);
  };
  EXPECT_FALSE(agrees(summed_in_order));
  NormKernels mean_kept = norm_kernels().back();
  mean_kept.layer_norm = [](const float* x, const float* gain, const float* /*bias*/, float* y,
                            std::uint32_t n, float eps) noexcept {
    norm_kernels().back().layer_norm(x, gain, nullptr, y, n, eps);
  };
  EXPECT_FALSE(agrees(mean_kept));
}

INSTANTIATE_TEST_SUITE_P(All, NormTest, testing::ValuesIn(norm_kernels()),
                         testing_support::KernelName{});

}  // namespace
}  // namespace qsf::kernels
