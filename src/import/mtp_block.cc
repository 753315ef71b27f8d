// SPDX-License-Identifier: MIT

#include "import/mtp_block.h"

namespace qsf {

Result<ModelSpec> mtp_block_spec(const ModelSpec& model, std::uint32_t n_blocks) {
  if (n_blocks == 0) {
    return invalid_argument("the model has no block for multi-token prediction");
  }
  if (!model.layer_rope.empty() || model.sliding_window.size() > 1 || model.has_state() ||
      model.has_streams() || !model.layer_mixers.empty() || !model.ffn_layers.empty() ||
      !model.layer_heads.empty() || !model.key_value_layers.empty() || model.shares_kv() ||
      !model.layer_ffn.empty() || model.layer_input_dim != 0) {
    return unsupported(
        "multi-token prediction of a %s: expected layers that are alike but for their experts",
        model.architecture.c_str());
  }
  if (model.n_experts != 0 && !model.has_experts(model.n_layers - 1)) {
    return unsupported("multi-token prediction of a mixture of experts whose last layer has none");
  }
  ModelSpec block = model;
  block.mtp_block = true;
  block.n_layers = 1;
  block.expert_layers.clear();
  block.expert_hits.clear();
  block.chat_template.clear();
  return block;
}

std::string left_out_blocks(const ModelSpec& model, std::size_t n_tensors) {
  std::string warning =
      "left out " + std::to_string(n_tensors) + " tensors that predict further tokens";
  if (mtp_block_spec(model, 1)) warning += "; 'qsf convert --mtp' makes a draft model of them";
  return warning;
}

}  // namespace qsf
