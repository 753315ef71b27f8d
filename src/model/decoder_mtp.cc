// SPDX-License-Identifier: MIT
//
// What blocks for multi-token prediction take and give: rows behind a model's final norm.
//
// Based on: DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 2.2. The published weights
// of DeepSeek-V3 and GLM-4.5 are for [norm(embedding); norm(row)], in this order, and for rows
// behind a final norm, the model's and then the block's own, as in SGLang (deepseek_nextn.py,
// glm4_moe_nextn.py) and TensorRT-LLM (modeling_deepseekv3.py).

#include "base/check.h"
#include "model/decoder.h"

namespace qsf {

// hidden = W [norm(hidden); norm'(the other model's row)]
Status Decoder::join_rows(const Pass& pass) {
  QSF_DCHECK(pass.hidden.size() == std::size_t{counts_.n_rows} * spec_.hidden);
  const LayerWeights& w = weights_.layers.front();
  for (std::uint32_t i = 0; i < counts_.n_rows; ++i) {
    backend_.upload_row(buffers_.projected, i,
                        pass.hidden.subspan(std::size_t{i} * spec_.hidden, spec_.hidden));
  }
  norm(buffers_.hidden, buffers_.normed, w.mtp_token_norm, {});
  copy_stream(buffers_.normed, 0, buffers_.mtp_rows, 0);
  norm(buffers_.projected, buffers_.normed, w.mtp_hidden_norm, {});
  copy_stream(buffers_.normed, 0, buffers_.mtp_rows, spec_.hidden);
  const Product product = {&w.mtp_projection, {}, buffers_.hidden};
  return multiply(pass, OperatorKind::kGateUp, buffers_.mtp_rows, {&product, 1}, {});
}

Status Decoder::store_keys(std::uint32_t layer) {
  backend_.store_kv(kv_places_[layer], buffers_.k, buffers_.v);
  return ok_status();
}

// The final norm of every row, where it stays until the next pass.
void Decoder::norm_rows() {
  norm(buffers_.hidden, buffers_.normed, weights_.final_norm, weights_.final_norm_bias);
}

void Decoder::hand_out(const NormedRows& to) {
  for (std::uint32_t i = 0; i < counts_.n_rows; ++i) {
    to.take(i, backend_.read_row(buffers_.normed, i), to.user);
  }
}

}  // namespace qsf
