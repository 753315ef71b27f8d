// SPDX-License-Identifier: MIT
//
// The cosine between two vectors, of the sums that were taken over them.

#ifndef QSF_BASE_COSINE_H_
#define QSF_BASE_COSINE_H_

#include <cmath>

namespace qsf {

// Returns the cosine of a and b, given the sums of a * b, a * a and b * b. Two vectors of zeros are
// equal, so theirs is 1; it is 0 where one alone is zero.
inline double cosine_of_sums(double ab, double aa, double bb) noexcept {
  if (aa == 0.0 && bb == 0.0) return 1.0;
  return aa > 0.0 && bb > 0.0 ? ab / std::sqrt(aa * bb) : 0.0;
}

}  // namespace qsf

#endif  // QSF_BASE_COSINE_H_
