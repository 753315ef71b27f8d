// SPDX-License-Identifier: MIT
//
// The model that the fuzzers of adapters read adapters for.

#ifndef QSF_FUZZ_ADAPTED_MODEL_H_
#define QSF_FUZZ_ADAPTED_MODEL_H_

#include <string_view>

#include "format/model_spec.h"

namespace qsf_fuzz {

inline qsf::ModelSpec adapted_model(std::string_view architecture) {
  qsf::ModelSpec spec;
  spec.architecture = architecture;
  spec.n_layers = 2;
  spec.hidden = 8;
  spec.n_heads = 2;
  spec.n_kv_heads = 1;
  spec.head_dim = 4;
  spec.n_vocab = 9;
  spec.ffn = 12;
  spec.gated_ffn = true;
  spec.norm = qsf::NormType::kRmsNorm;
  spec.positions = qsf::PositionEncoding::kRope;
  spec.tied_head = true;
  if (architecture == "qwen3moe") {
    spec.n_experts = 3;
    spec.n_experts_used = 1;
    spec.expert_ffn = 5;
  }
  return spec;
}

}  // namespace qsf_fuzz

#endif  // QSF_FUZZ_ADAPTED_MODEL_H_
