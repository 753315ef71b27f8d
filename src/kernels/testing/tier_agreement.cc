// SPDX-License-Identifier: MIT

#include "kernels/testing/tier_agreement.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "base/bit_cast.h"

namespace qsf::kernels::testing_support {
namespace {

float special_value(SeededRng& rng) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kValues[] = {kInfinity, -kInfinity, kNaN, -kNaN, 0.0F, -0.0F};
  return kValues[rng.get().below(std::size(kValues))];
}

float make_value(RowData data, SeededRng& rng) {
  const float normal = rng.get().next_normal();
  switch (data) {
    case RowData::kUniform: return rng.uniform(-1.0F, 1.0F);
    case RowData::kNormal: return normal;
    case RowData::kOutliers: return rng.get().below(50) == 0 ? 100.0F * normal : normal;
    case RowData::kTiny: return normal * 0x1p-130F;
    case RowData::kHuge: return rng.uniform(-1.0F, 1.0F) * std::numeric_limits<float>::max();
    case RowData::kZeros: return normal < 0.0F ? -0.0F : 0.0F;
    case RowData::kSpecial: return rng.get().below(10) == 0 ? special_value(rng) : normal;
  }
  return normal;
}

}  // namespace

std::vector<std::uint32_t> sizes_around_vectors() {
  std::vector<std::uint32_t> sizes(71);
  std::iota(sizes.begin(), sizes.end(), 0U);
  for (const std::uint32_t size : {127U, 128U, 129U, 172U, 511U, 512U, 513U, 1000U, 4097U}) {
    sizes.push_back(size);
  }
  return sizes;
}

GuardedArray<float> make_data(RowData data, std::size_t n_values, SeededRng& rng) {
  GuardedArray<float> values(n_values);
  for (float& value : values) value = make_value(data, rng);
  return values;
}

::testing::AssertionResult same_bits(const float* got, const float* want, std::size_t n_values) {
  for (std::size_t i = 0; i < n_values; ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    if (bit_cast<std::uint32_t>(got[i]) == bit_cast<std::uint32_t>(want[i])) continue;
    return ::testing::AssertionFailure() << "value " << i << " of " << n_values << ": " << got[i]
                                         << " where the scalar tier has " << want[i];
  }
  return ::testing::AssertionSuccess();
}

}  // namespace qsf::kernels::testing_support
