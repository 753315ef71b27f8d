// SPDX-License-Identifier: MIT
//
// Experts beside an FFN, each with norms of its own.

#include <array>

#include "model/decoder.h"

namespace qsf {

// hidden += norm(norm1(FFN in) + norm2(experts norm3(hidden))). The router reads the stream itself,
// first of all, so that missing experts are read while the FFN is computed.
Status Decoder::run_experts_beside(const Pass& pass, const LayerWeights& w, Buffer in) {
  norm(buffers_.hidden, buffers_.expert_in, w.router_norm, {});
  QSF_RETURN_IF_ERROR(route(pass, w, buffers_.expert_in));
  const std::array<Product, 2> gate_up = {
      {{&w.gate, w.gate_bias, buffers_.gate}, {&w.up, w.up_bias, buffers_.up}}};
  QSF_RETURN_IF_ERROR(
      multiply(pass, OperatorKind::kGateUp, in, gate_up_products(gate_up), gate_up_epilogue()));
  const Product down = {&w.down, w.down_bias, buffers_.dense};
  QSF_RETURN_IF_ERROR(multiply(pass, OperatorKind::kDown, activated(), {&down, 1}, {}));
  norm(buffers_.dense, buffers_.dense, w.dense_post_norm, {});
  QSF_RETURN_IF_ERROR(guess_experts(pass, w, &buffers_.dense));
  norm(buffers_.hidden, buffers_.normed, w.expert_norm, {});
  backend_.clear(buffers_.projected);
  QSF_RETURN_IF_ERROR(multiply_experts(pass, w, buffers_.normed));
  norm(buffers_.projected, buffers_.projected, w.expert_post_norm, {});
  backend_.add(buffers_.projected, buffers_.dense);
  norm(buffers_.projected, buffers_.projected, w.ffn_post_norm, {});
  backend_.add(buffers_.hidden, buffers_.projected);
  return ok_status();
}

}  // namespace qsf
