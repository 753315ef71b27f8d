// SPDX-License-Identifier: MIT
//
// What tests of kernels with equal bits on every tier share: data of many kinds, sizes around every
// vector's, and the comparison.

#ifndef QSF_KERNELS_TESTING_TIER_AGREEMENT_H_
#define QSF_KERNELS_TESTING_TIER_AGREEMENT_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/testing/guard_pages.h"
#include "kernels/testing/seeded_rng.h"

namespace qsf::kernels::testing_support {

enum class RowData : std::uint8_t {
  kUniform,   // in [-1, 1)
  kNormal,    // standard normal
  kOutliers,  // normal, one in fifty a hundred times as large
  kTiny,      // subnormal and just above
  kHuge,      // up to the largest number
  kZeros,     // of both signs
  kSpecial,   // normal, with infinities, NaN and zeros among them
};
inline constexpr RowData kFiniteData[] = {RowData::kUniform, RowData::kNormal, RowData::kOutliers,
                                          RowData::kTiny,    RowData::kHuge,   RowData::kZeros};
inline constexpr RowData kAllRowData[] = {RowData::kUniform, RowData::kNormal, RowData::kOutliers,
                                          RowData::kTiny,    RowData::kHuge,   RowData::kZeros,
                                          RowData::kSpecial};

// Returns every size up to 70, and some around more vectors than a loop unrolls.
std::vector<std::uint32_t> sizes_around_vectors();

// Returns n values of that kind, between guards.
GuardedArray<float> make_data(RowData data, std::size_t n_values, SeededRng& rng);

// Whether both arrays hold the same bits, any NaN counting as any other.
::testing::AssertionResult same_bits(const float* got, const float* want, std::size_t n_values);

}  // namespace qsf::kernels::testing_support

#endif  // QSF_KERNELS_TESTING_TIER_AGREEMENT_H_
