// SPDX-License-Identifier: MIT
//
// The cosine of the angle between two vectors, from sums over their elements.

#ifndef QSF_BASE_COSINE_H_
#define QSF_BASE_COSINE_H_

#include <cmath>

namespace qsf {

// Returns the cosine of a and b, given the sums of a * b, a * a and b * b. For two
// zero vectors, which are equal, it is 1; if only one is zero, it is 0.
inline double cosine_of_sums(double ab, double aa, double bb) noexcept {
  if (aa == 0.0 && bb == 0.0) return 1.0;
  return aa > 0.0 && bb > 0.0 ? ab / std::sqrt(aa * bb) : 0.0;
}

}  // namespace qsf

#endif  // QSF_BASE_COSINE_H_
