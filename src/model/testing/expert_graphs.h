// SPDX-License-Identifier: MIT
//
// Graphs of mixtures of experts for the decoder's tests, as changes of a plain LLaMA's spec of two
// layers: dense layers among those with experts, shared experts.

#ifndef QSF_MODEL_TESTING_EXPERT_GRAPHS_H_
#define QSF_MODEL_TESTING_EXPERT_GRAPHS_H_

#include "format/model_spec.h"

namespace qsf::testing_support {

struct ExpertGraph {
  const char* name;
  void (*change)(ModelSpec&);
};

inline constexpr ExpertGraph kExpertGraphs[] = {
    {"qwen3moe_dense_layer",
     [](ModelSpec& s) {
       s.architecture = "qwen3moe";
       s.n_layers = 3;
       s.n_experts = 5;
       s.n_experts_used = 3;
       s.expert_ffn = 20;
       s.expert_layers = {1, 0, 1};
     }},
    {"qwen2moe",  // whose shared expert is the widest FFN
     [](ModelSpec& s) {
       s.architecture = "qwen2moe";
       s.ffn = 150;  // of no layer
       s.n_experts = 6;
       s.n_experts_used = 3;
       s.expert_ffn = 12;
       s.shared_ffn = 52;
     }},
    {"shared_expert_of_equal_weight",
     [](ModelSpec& s) {
       s.architecture = "granitemoe";
       s.residual_scale = 0.4F;
       s.n_layers = 3;
       s.n_experts = 4;
       s.n_experts_used = 2;
       s.expert_ffn = 20;
       s.expert_renormalised = true;
       s.shared_ffn = 28;
       s.expert_layers = {0, 1, 1};
     }},
};

}  // namespace qsf::testing_support

#endif  // QSF_MODEL_TESTING_EXPERT_GRAPHS_H_
