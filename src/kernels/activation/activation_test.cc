// SPDX-License-Identifier: MIT
//
// Holds every activation kernel to its contract.

#include "kernels/activation/activation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
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
using testing_support::kSmallestNormal;
using testing_support::kUnitRoundoff;
using testing_support::SeededRng;

class ActivationTest : public testing::TestWithParam<ActivationKernels> {
 protected:
  void SetUp() override {
    if (!testing_support::can_run(GetParam())) {
      GTEST_SKIP() << testing_support::lacking(GetParam().isa);
    }
  }
};

struct Expected {
  double value;
  double bound;
};

// exp within 1 ulp (2 u), one addition, one division; past exp's range the result is at most
// |x| * 2^-126 and may be flushed to zero.
Expected expected_silu(double x) {
  const double value = x / (1.0 + std::exp(-x));
  return {value, gamma_of(5) * std::fabs(value) + std::fabs(x) * kSmallestNormal};
}

Expected expected_sigmoid(double x) {
  const double value = 1.0 / (1.0 + std::exp(-x));
  return {value, gamma_of(5) * value + kSmallestNormal};
}

// The argument of exp passes seven roundings, so exp is off by 7 u |2u|, and then as silu.
Expected expected_gelu_tanh(double x) {
  const double twice = 2.0 * std::sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
  const double value = x / (1.0 + std::exp(-twice));
  const double roundings = 5.0 + 8.0 * std::min(std::fabs(twice), 110.0);
  return {value, gamma_of(roundings) * std::fabs(value) + std::fabs(x) * kSmallestNormal};
}

// erf's argument is off by 2 u, which moves erf by at most 2 u * 0.49; erf within 2 ulp (4 u); the
// sum and two products: an absolute error, because 1 + erf cancels for negative x.
Expected expected_gelu_erf(double x) {
  const double value = 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  return {value, std::fabs(0.5 * x) * 9.0 * kUnitRoundoff + 2.0 * kUnitRoundoff * std::fabs(value) +
                     kSmallestNormal};
}

Expected expected_relu(double x) {
  return {std::max(x, 0.0), 0.0};
}
Expected expected_relu_squared(double x) {
  const double value = std::max(x, 0.0) * std::max(x, 0.0);
  return {value, kUnitRoundoff * value + 0x1p-149};
}

std::vector<float> sample_inputs() {
  SeededRng rng;
  std::vector<float> inputs = {0.0F,   -0.0F,  1.0F,    -1.0F, 1e-30F, -1e-30F, 88.0F,
                               -88.0F, 103.0F, -103.0F, 1e10F, -1e10F, 1e18F,   -1e18F};
  for (int i = 0; i < 20000; ++i) inputs.push_back(rng.uniform(-12.0F, 12.0F));
  for (int i = 0; i < 2000; ++i) inputs.push_back(rng.uniform(-110.0F, 110.0F));
  return inputs;
}

using InPlaceFn = void (*)(float*, std::uint32_t) noexcept;
using GatedFn = void (*)(const float*, const float*, float*, std::uint32_t) noexcept;

void check_in_place(InPlaceFn run, Expected (*expected)(double)) {
  const std::vector<float> inputs = sample_inputs();
  GuardedArray<float> x(inputs.size());
  std::memcpy(x.data(), inputs.data(), inputs.size() * sizeof(float));
  run(x.data(), static_cast<std::uint32_t>(inputs.size()));
  std::vector<double> want;
  std::vector<double> bounds;
  for (const float input : inputs) {
    const Expected e = expected(input);
    want.push_back(e.value);
    bounds.push_back(e.bound);
  }
  EXPECT_TRUE(testing_support::all_within(x.data(), want, bounds));
  EXPECT_TRUE(x.front_intact());

  // Whatever its place and the array's length, an element has the same bits.
  for (std::uint32_t n = 1; n < 10; ++n) {
    GuardedArray<float> part(n);
    for (std::uint32_t i = 0; i < n; ++i) part[i] = inputs[100 + i];
    run(part.data(), n);
    EXPECT_EQ(std::memcmp(part.data(), x.data() + 100, n * sizeof(float)), 0) << n;
  }
  float nan = std::numeric_limits<float>::quiet_NaN();
  run(&nan, 1);
  EXPECT_TRUE(std::isnan(nan));
}

void check_gated(GatedFn run, Expected (*expected)(double)) {
  SeededRng rng;
  for (const std::uint32_t n : {0U, 1U, 3U, 4U, 5U, 63U, 64U, 65U, 172U}) {
    const GuardedArray<float> gate(n);
    const GuardedArray<float> up(n);
    const GuardedArray<float> out(n);
    std::vector<double> want;
    std::vector<double> bounds;
    for (std::uint32_t i = 0; i < n; ++i) {
      gate[i] = rng.uniform(-12.0F, 12.0F);
      up[i] = rng.get().next_normal();
      const Expected e = expected(gate[i]);
      const double factor = up[i];
      want.push_back(e.value * factor);
      bounds.push_back(e.bound * std::fabs(factor) * 1.01 +
                       kUnitRoundoff * std::fabs(e.value * factor));
    }
    run(gate.data(), up.data(), out.data(), n);
    EXPECT_TRUE(testing_support::all_within(out.data(), want, bounds)) << n;
    run(gate.data(), up.data(), gate.data(), n);
    for (std::uint32_t i = 0; i < n; ++i) EXPECT_EQ(gate[i], out[i]);
  }
}

// exp within 1 ulp of an argument with one rounding; then a sum, a division, up + 1 and a product.
TEST_P(ActivationTest, ClampedSwishClampsBothSides) {
  SeededRng rng;
  const std::vector<float> edges = {7.0F, 7.5F, -7.0F, -7.5F, 0.0F, -0.0F, 1e30F, -1e30F, -1.0F};
  for (const std::uint32_t n : {0U, 1U, 5U, 64U, 172U, 4000U}) {
    const GuardedArray<float> gate(n);
    const GuardedArray<float> up(n);
    const GuardedArray<float> out(n);
    std::vector<double> want;
    std::vector<double> bounds;
    for (std::uint32_t i = 0; i < n; ++i) {
      gate[i] = i < edges.size() ? edges[i] : rng.uniform(-12.0F, 12.0F);
      up[i] = i < edges.size() ? edges[edges.size() - 1 - i] : rng.uniform(-12.0F, 12.0F);
      const double g = std::min<double>(gate[i], 7.0);
      const double value =
          (std::clamp<double>(up[i], -7.0, 7.0) + 1.0) * g / (1.0 + std::exp(-1.702 * g));
      want.push_back(value);
      bounds.push_back(gamma_of(7.0 + 1.8 * std::min(std::fabs(g), 110.0)) * std::fabs(value) +
                       8.0 * std::fabs(g) * kSmallestNormal);
    }
    GetParam().swish_clamped_mul(gate.data(), up.data(), out.data(), n);
    EXPECT_TRUE(testing_support::all_within(out.data(), want, bounds)) << n;
    GetParam().swish_clamped_mul(gate.data(), up.data(), gate.data(), n);
    for (std::uint32_t i = 0; i < n; ++i) EXPECT_EQ(gate[i], out[i]);
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float one = 1.0F;
  float out = 0.0F;
  GetParam().swish_clamped_mul(&nan, &one, &out, 1);
  EXPECT_TRUE(std::isnan(out));
  GetParam().swish_clamped_mul(&one, &nan, &out, 1);
  EXPECT_TRUE(std::isnan(out));
}

TEST_P(ActivationTest, Relu) {
  check_in_place(GetParam().relu, expected_relu);
}
TEST_P(ActivationTest, ReluSquared) {
  check_in_place(GetParam().relu_squared, expected_relu_squared);
}
TEST_P(ActivationTest, Silu) {
  check_in_place(GetParam().silu, expected_silu);
}
TEST_P(ActivationTest, GeluTanh) {
  check_in_place(GetParam().gelu_tanh, expected_gelu_tanh);
}
TEST_P(ActivationTest, GeluErf) {
  check_in_place(GetParam().gelu_erf, expected_gelu_erf);
}
// The quotient rounds once, tanh is within 2 ulp (up to 4 roundings), the product rounds once; the
// slope of tanh is at most 1, and |cap tanh(x / cap)| at most |x|.
TEST_P(ActivationTest, SoftCap) {
  for (const float cap : {0.5F, 30.0F}) {
    std::vector<float> x = sample_inputs();
    std::vector<double> want;
    std::vector<double> bounds;
    for (const float value : x) {
      const double v = value;
      const double c = cap;
      want.push_back(c * std::tanh(v / c));
      const double bent = std::min(std::fabs(v), 20.0 * c);  // beyond it tanh is 1 and stays so
      bounds.push_back(gamma_of(2.0) * bent + gamma_of(5.0) * std::fabs(want.back()) +
                       2.0 * kSmallestNormal);
    }
    GetParam().soft_cap(x.data(), cap, static_cast<std::uint32_t>(x.size()));
    EXPECT_TRUE(testing_support::all_within(x.data(), want, bounds)) << cap;
    for (const float value : x) EXPECT_LE(std::fabs(value), cap);
  }
}
TEST_P(ActivationTest, SiluMul) {
  check_gated(GetParam().silu_mul, expected_silu);
}
TEST_P(ActivationTest, SigmoidMul) {
  check_gated(GetParam().sigmoid_mul, expected_sigmoid);
}
TEST_P(ActivationTest, ReluSquaredMul) {
  check_gated(GetParam().relu_squared_mul, expected_relu_squared);
}
TEST_P(ActivationTest, GeluTanhMul) {
  check_gated(GetParam().gelu_tanh_mul, expected_gelu_tanh);
}

// Whether every function has the scalar tier's bits on all data and sizes.
::testing::AssertionResult agrees(const ActivationKernels& kernels) {
  const ActivationKernels& scalar = activation_kernels().back();
  const InPlaceFn got_fns[] = {kernels.relu, kernels.relu_squared, kernels.silu, kernels.gelu_tanh,
                               kernels.gelu_erf};
  const InPlaceFn want_fns[] = {scalar.relu, scalar.relu_squared, scalar.silu, scalar.gelu_tanh,
                                scalar.gelu_erf};
  SeededRng rng;
  for (const std::uint32_t n : testing_support::sizes_around_vectors()) {
    for (const testing_support::RowData data : testing_support::kAllRowData) {
      const auto x = make_data(data, n, rng);
      const auto up = make_data(testing_support::RowData::kNormal, n, rng);
      for (float& value : x) value *= 5.0F;
      const GuardedArray<float> got(n);
      std::vector<float> want(n);
      const auto compare = [&](const auto& run, const char* what) {
        std::copy(x.begin(), x.end(), got.begin());
        std::copy(x.begin(), x.end(), want.begin());
        run();
        auto same = testing_support::same_bits(got.data(), want.data(), n);
        if (!got.front_intact()) same = ::testing::AssertionFailure() << "wrote in front";
        return same ? same : same << ", " << what << " of data " << static_cast<int>(data);
      };
      for (std::size_t f = 0; f < std::size(got_fns); ++f) {
        const auto same = compare(
            [&] {
              got_fns[f](got.data(), n);
              want_fns[f](want.data(), n);
            },
            "function");
        if (!same) return ::testing::AssertionResult(same) << ' ' << f;
      }
      auto same = compare(
          [&] {
            kernels.soft_cap(got.data(), 1.7F, n);
            scalar.soft_cap(want.data(), 1.7F, n);
          },
          "soft_cap");
      if (!same) return same;
      for (const auto& both : {std::pair{kernels.silu_mul, scalar.silu_mul},
                               std::pair{kernels.sigmoid_mul, scalar.sigmoid_mul},
                               std::pair{kernels.relu_squared_mul, scalar.relu_squared_mul},
                               std::pair{kernels.swish_clamped_mul, scalar.swish_clamped_mul},
                               std::pair{kernels.gelu_tanh_mul, scalar.gelu_tanh_mul}}) {
        same = compare(
            [&] {
              both.first(x.data(), up.data(), got.data(), n);
              both.second(x.data(), up.data(), want.data(), n);
            },
            "product");
        if (!same) return same;
      }
    }
  }
  return ::testing::AssertionSuccess();
}

TEST_P(ActivationTest, GivesTheBitsOfTheScalarTier) {
  EXPECT_TRUE(agrees(GetParam()));
}

TEST(ActivationCheckerTest, CatchesEveryPlantedFault) {
  ActivationKernels tail_kept = activation_kernels().back();
  tail_kept.silu = [](float* x, std::uint32_t n) noexcept {
    activation_kernels().back().silu(x, n - n % 16);
  };
  EXPECT_FALSE(agrees(tail_kept));
  ActivationKernels other_gelu = activation_kernels().back();
  other_gelu.gelu_erf = other_gelu.gelu_tanh;
  EXPECT_FALSE(agrees(other_gelu));
  ActivationKernels library_exp = activation_kernels().back();
  library_exp.silu_mul = [](const float* gate, const float* up, float* out,
                            std::uint32_t n) noexcept {
    for (std::uint32_t i = 0; i < n; ++i) out[i] = gate[i] / (1.0F + std::exp(-gate[i])) * up[i];
  };
  EXPECT_FALSE(agrees(library_exp));
  ActivationKernels nan_dropped = activation_kernels().back();
  nan_dropped.relu = [](float* x, std::uint32_t n) noexcept {
    for (std::uint32_t i = 0; i < n; ++i) x[i] = x[i] > 0.0F ? x[i] : 0.0F;
  };
  EXPECT_FALSE(agrees(nan_dropped));
}

INSTANTIATE_TEST_SUITE_P(All, ActivationTest, testing::ValuesIn(activation_kernels()),
                         testing_support::KernelName{});

}  // namespace
}  // namespace qsf::kernels
