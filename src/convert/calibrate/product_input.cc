// SPDX-License-Identifier: MIT

#include "convert/calibrate/product_input.h"

namespace qsf {

std::optional<ProductInput> product_input_of(TensorKind kind, bool tied_head) noexcept {
  switch (kind) {
    case TensorKind::kAttnQ:
    case TensorKind::kAttnK:
    case TensorKind::kAttnV: return ProductInput::kQkv;
    case TensorKind::kAttnO: return ProductInput::kAttentionOut;
    case TensorKind::kFfnGate:
    case TensorKind::kFfnUp: return ProductInput::kGateUp;
    case TensorKind::kFfnDown: return ProductInput::kDown;
    case TensorKind::kHead: return ProductInput::kHead;
    case TensorKind::kTokenEmbedding:
      return tied_head ? std::optional(ProductInput::kHead) : std::nullopt;
    default: return std::nullopt;
  }
}

std::optional<ProductInput> product_input_of(OperatorKind kind) noexcept {
  switch (kind) {
    case OperatorKind::kQkv: return ProductInput::kQkv;
    case OperatorKind::kAttentionOut: return ProductInput::kAttentionOut;
    case OperatorKind::kGateUp: return ProductInput::kGateUp;
    case OperatorKind::kDown: return ProductInput::kDown;
    case OperatorKind::kHead: return ProductInput::kHead;
    default: return std::nullopt;
  }
}

std::uint32_t input_cols(const ModelSpec& spec, ProductInput input) noexcept {
  switch (input) {
    case ProductInput::kAttentionOut: return spec.q_dim();
    case ProductInput::kDown: return spec.ffn;
    case ProductInput::kQkv:
    case ProductInput::kGateUp:
    case ProductInput::kHead: break;
  }
  return spec.hidden;
}

}  // namespace qsf
