// SPDX-License-Identifier: MIT

#ifndef QSF_OPS_SOFTPLUS_H_
#define QSF_OPS_SOFTPLUS_H_

#include <algorithm>
#include <cmath>

#include "kernels/math/math.h"

namespace qsf {

// log(1 + exp(x)). Where 1 + u has lost what u has, its logarithm is u.
inline float softplus(float x) noexcept {
  const double u = static_cast<double>(kernels::exp_f32(-std::fabs(x)));
  const double log1p = u < 0x1p-26 ? u : kernels::log_f64(1.0 + u);
  return std::max(x, 0.0F) + static_cast<float>(log1p);
}

}  // namespace qsf

#endif  // QSF_OPS_SOFTPLUS_H_
