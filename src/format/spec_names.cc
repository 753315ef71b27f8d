// SPDX-License-Identifier: MIT
//
// The values of a spec's fields as metadata and messages write them.

#include <string_view>

#include "format/model_spec.h"

namespace qsf {

std::string_view activation_name(Activation activation) noexcept {
  switch (activation) {
    case Activation::kGeluTanh: return "gelu_tanh";
    case Activation::kGeluErf: return "gelu_erf";
    case Activation::kSilu: return "silu";
    case Activation::kRelu: return "relu";
    case Activation::kReluSquared: return "relu_squared";
    case Activation::kSwishClamped: return "swish_clamped";
  }
  return "unknown";
}

std::string_view norm_type_name(NormType type) noexcept {
  return type == NormType::kLayerNorm ? "layer_norm" : "rms_norm";
}

std::string_view position_encoding_name(PositionEncoding encoding) noexcept {
  switch (encoding) {
    case PositionEncoding::kLearned: return "learned";
    case PositionEncoding::kRope: return "rope";
    case PositionEncoding::kAlibi: return "alibi";
  }
  return "unknown";
}

std::string_view expert_scoring_name(ExpertScoring scoring) noexcept {
  switch (scoring) {
    case ExpertScoring::kSoftmax: return "softmax";
    case ExpertScoring::kSigmoid: return "sigmoid";
    case ExpertScoring::kSparsemixer: return "sparsemixer";
  }
  return "unknown";
}

std::string_view pooling_name(Pooling pooling) noexcept {
  switch (pooling) {
    case Pooling::kMean: return "mean";
    case Pooling::kLast: return "last";
    case Pooling::kFirst: return "first";
  }
  return "unknown";
}

std::string_view rope_scaling_name(RopeScaling scaling) noexcept {
  switch (scaling) {
    case RopeScaling::kNone: return "none";
    case RopeScaling::kLinear: return "linear";
    case RopeScaling::kLlama3: return "llama3";
    case RopeScaling::kLongrope: return "longrope";
    case RopeScaling::kYarn: return "yarn";
  }
  return "unknown";
}

}  // namespace qsf
