// SPDX-License-Identifier: MIT
//
// Activations by their definition, for the parts of NaiveModel.

#ifndef QSF_MODEL_TESTING_NAIVE_ACTIVATIONS_H_
#define QSF_MODEL_TESTING_NAIVE_ACTIVATIONS_H_

#include <algorithm>
#include <cmath>
#include <numbers>

#include "format/model_spec.h"
#include "format/qsf_layout.h"

namespace qsf::testing_support {

// A kind that none of these models has, for a product without a bias.
inline constexpr TensorKind kNone = TensorKind::kFfnBiases;

inline double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::kGeluTanh:
      return 0.5 * x *
             (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::kGeluErf: return 0.5 * x * (1.0 + std::erf(x / std::numbers::sqrt2));
    case Activation::kSilu: return x / (1.0 + std::exp(-x));
    case Activation::kRelu: return std::max(x, 0.0);
    case Activation::kReluSquared: return std::max(x, 0.0) * std::max(x, 0.0);
    case Activation::kSwishClamped: break;  // gated alone
  }
  return std::nan("");
}

// What the down projection takes of a gated FFN.
inline double gated(Activation activation, double gate, double up) {
  if (activation != Activation::kSwishClamped) return activated(activation, gate) * up;
  const double g = std::min(gate, 7.0);
  return (std::clamp(up, -7.0, 7.0) + 1.0) * g / (1.0 + std::exp(-1.702 * g));
}

}  // namespace qsf::testing_support

#endif  // QSF_MODEL_TESTING_NAIVE_ACTIVATIONS_H_
