// SPDX-License-Identifier: MIT
//
// Numbers that kernels treat apart, by short names, for tests.

#ifndef QSF_KERNELS_TESTING_SPECIAL_VALUES_H_
#define QSF_KERNELS_TESTING_SPECIAL_VALUES_H_

#include <limits>

namespace qsf::kernels::testing_support {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

}  // namespace qsf::kernels::testing_support

#endif  // QSF_KERNELS_TESTING_SPECIAL_VALUES_H_
