// SPDX-License-Identifier: MIT
//
// Graphs of mixtures of experts for the decoder's tests, as changes of a plain LLaMA's spec of two
// layers: dense layers among those with experts, shared experts, rules of routing.

#ifndef QSF_MODEL_TESTING_EXPERT_GRAPHS_H_
#define QSF_MODEL_TESTING_EXPERT_GRAPHS_H_

#include "format/model_spec.h"

namespace qsf::testing_support {

struct ExpertGraph {
  const char* name;
  void (*change)(ModelSpec&);
  std::uint32_t context = 32;  // what the model is opened for
};

inline void set_phimoe(ModelSpec& s) {
  s.architecture = "phimoe";
  s.norm = NormType::kLayerNorm;
  s.rope.scaling = RopeScaling::kLongrope;
  s.rope.original_context = 32;
  s.rope.attention_factor = 1.3F;
  s.rope.short_attention_factor = 0.8F;
  s.rope.short_factors = {1.0F, 1.1F, 1.5F, 2.0F};
  s.rope.long_factors = {1.3F, 4.0F, 20.0F, 30.0F};
  s.n_experts = 5;
  s.n_experts_used = 2;
  s.expert_ffn = 20;
  s.expert_scoring = ExpertScoring::kSparsemixer;
  s.expert_margin = 0.2F;
}

inline void set_latent(ModelSpec& s) {
  s.architecture = "deepseek2";
  s.n_heads = 6;
  s.n_kv_heads = 1;
  s.latent_dim = 32;
  s.latent_key_dim = 20;
  s.latent_value_dim = 16;
  s.rope.dims = 16;
  s.head_dim = 48;
  s.attention_scale = 0.2F;
  s.latent_epsilon = 0.01F;
  s.n_experts = 6;
  s.n_experts_used = 3;
  s.expert_ffn = 12;
  s.shared_ffn = 24;
  s.expert_layers = {0, 1};
}

inline constexpr ExpertGraph kExpertGraphs[] = {
    {"latent",
     [](ModelSpec& s) {
       set_latent(s);
       s.expert_scale = 1.7F;
       s.expert_groups = 3;
       s.expert_groups_used = 2;
     }},
    {"latent_queries",
     [](ModelSpec& s) {
       set_latent(s);
       s.latent_query_dim = 28;
       s.latent_dim = 144;  // heads of more columns than a page has slots
       s.head_dim = 160;
       s.latent_value_dim = 80;
       s.rope.theta = 50.0F;
       s.rope.scaling = RopeScaling::kYarn;
       s.rope.factor = 4.0F;
       s.rope.original_context = 8;
       s.rope.beta_fast = 1.5F;
       s.rope.beta_slow = 0.2F;
       s.rope.truncate = false;
       s.rope.attention_factor = 1.2F;
       s.expert_scoring = ExpertScoring::kSigmoid;
       s.expert_renormalised = true;
       s.expert_epsilon = 1e-20F;
       s.sliding_window = {9, 0};
     }},
    {"llama4",
     [](ModelSpec& s) {
       s.architecture = "llama4";
       s.n_experts = 5;
       s.n_experts_used = 1;
       s.expert_ffn = 12;
       s.shared_ffn = 12;
       s.expert_scoring = ExpertScoring::kSigmoid;
       s.weighs_expert_inputs = true;
       s.unit_head_norms = true;
       s.layer_rope = {1, 0};
       s.sliding_window = {7, 0};
       s.chunked_windows = true;
       s.query_position_scale = 0.8F;
       s.query_position_step = 5;
     }},
    {"llama4_dense_layer",
     [](ModelSpec& s) {
       s.architecture = "llama4";
       s.n_experts = 5;
       s.n_experts_used = 2;
       s.expert_ffn = 12;
       s.shared_ffn = 12;
       s.expert_layers = {0, 1};
       s.expert_scoring = ExpertScoring::kSigmoid;
       s.weighs_expert_inputs = true;
       s.sliding_window = {11};
       s.chunked_windows = true;
     }},
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
    {"glm4moe",
     [](ModelSpec& s) {
       s.architecture = "glm4moe";
       s.n_layers = 3;
       s.rope.dims = 4;
       s.n_experts = 6;
       s.n_experts_used = 3;
       s.expert_ffn = 12;
       s.expert_renormalised = true;
       s.expert_scoring = ExpertScoring::kSigmoid;
       s.expert_epsilon = 1e-20F;
       s.expert_scale = 1.7F;
       s.expert_layers = {0, 1, 1};
       s.shared_ffn = 24;
     }},
    {"sigmoid_groups",
     [](ModelSpec& s) {
       s.architecture = "glm4moe";
       s.n_experts = 12;
       s.n_experts_used = 4;
       s.expert_ffn = 12;
       s.expert_scoring = ExpertScoring::kSigmoid;
       s.expert_groups = 4;
       s.expert_groups_used = 2;
     }},
    {"sigmoid_with_epsilon",
     [](ModelSpec& s) {
       s.architecture = "mixtral";
       s.n_experts = 5;
       s.n_experts_used = 2;
       s.expert_ffn = 20;
       s.expert_renormalised = true;
       s.expert_scoring = ExpertScoring::kSigmoid;
       s.expert_epsilon = 0.5F;
     }},
    {"phimoe_short", set_phimoe},
    {"phimoe_long", set_phimoe, 33},
};

}  // namespace qsf::testing_support

#endif  // QSF_MODEL_TESTING_EXPERT_GRAPHS_H_
