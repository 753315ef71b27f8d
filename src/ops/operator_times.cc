// SPDX-License-Identifier: MIT

#include "ops/operator_times.h"

namespace qsf {

std::uint64_t OperatorProfile::product_ns() const noexcept {
  std::uint64_t ns = 0;
  for (std::size_t i = 0; i < kOperatorKinds; ++i) {
    if (is_product(static_cast<OperatorKind>(i))) ns += times_[i].ns;
  }
  return ns;
}

std::uint64_t OperatorProfile::total_ns() const noexcept {
  std::uint64_t ns = 0;
  for (const OperatorTimes& times : times_) ns += times.ns;
  return ns;
}

std::string_view operator_name(OperatorKind kind) noexcept {
  switch (kind) {
    case OperatorKind::kUpload: return "embedding rows";
    case OperatorKind::kNorm: return "norms";
    case OperatorKind::kInputRows: return "input rows";
    case OperatorKind::kQkv: return "query, key, value";
    case OperatorKind::kRope: return "rotation";
    case OperatorKind::kClamp: return "clamping";
    case OperatorKind::kScale: return "scaling of rows";
    case OperatorKind::kStoreKv: return "storing keys and values";
    case OperatorKind::kState: return "states";
    case OperatorKind::kAttend: return "attention";
    case OperatorKind::kAttentionOut: return "attention output";
    case OperatorKind::kRouter: return "experts' scores";
    case OperatorKind::kGuess: return "guesses of experts";
    case OperatorKind::kGather: return "experts' rows";
    case OperatorKind::kAdapters: return "adapters";
    case OperatorKind::kGateUp: return "gate and up";
    case OperatorKind::kDown: return "down";
    case OperatorKind::kResidual: return "residual sums";
    case OperatorKind::kHead: return "output head";
  }
  return "unknown";
}

}  // namespace qsf
