// SPDX-License-Identifier: MIT
//
// The keys of families whose attention and FFN may stand side by side, and of MPT.

#include <string>

#include "import/gguf/gguf_families.h"

namespace qsf {

// The layout has all queries, all keys, all values. The first models have ALiBi in place of RoPE,
// which no key says; they are the ones with biases.
Status finish_falcon(const GgufFile& file, GgufFields& fields, ModelSpec& spec) {
  const std::string layout = fields.text("tensor_data_layout", "jploski");
  QSF_RETURN_IF_ERROR(fields.status());
  if (layout != "jploski") {
    return unsupported("GGUF: tensor_data_layout \"%s\" is not supported; expected jploski",
                       shown_gguf_text(layout).c_str());
  }
  if (file.find("blk.0.attn_qkv.bias") == nullptr) return ok_status();
  return unsupported("GGUF: a %s with biases is one with ALiBi, which is not supported",
                     spec.architecture.c_str());
}

bool has_falcon_attention_norm(const GgufFile& file) {
  return file.find("blk.0.attn_norm_2.weight") != nullptr;
}

// The 20B model, known by its layers, is the one whose GELU is an approximation.
Status finish_gptneox(const GgufFile&, GgufFields& fields, ModelSpec& spec) {
  if (spec.n_layers == 44) spec.activation = Activation::kGeluTanh;
  spec.parallel_block = fields.boolean("use_parallel_residual", true);
  return fields.status();
}

Status finish_mpt(const GgufFile&, GgufFields& fields, ModelSpec& spec) {
  spec.qkv_clip = fields.positive_or("attention.clamp_kqv", 0.0F);
  const float most = fields.positive_or("attention.max_alibi_bias", 0.0F);
  if (!fields.status().ok() || most == 8.0F) return fields.status();
  return unsupported("GGUF: attention.max_alibi_bias is %g, expected 8", static_cast<double>(most));
}

Status finish_stablelm(const GgufFile&, GgufFields& fields, ModelSpec& spec) {
  spec.parallel_block = fields.boolean("use_parallel_residual", true);
  return fields.status();
}

}  // namespace qsf
