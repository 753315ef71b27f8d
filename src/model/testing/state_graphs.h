// SPDX-License-Identifier: MIT
//
// Graphs of which some layers have a state for the decoder's tests, as changes of a plain LLaMA's
// spec of two layers: short convolutions, scans, delta rules; of others that attend as well, or
// that are an FFN or a mixer alone.

#ifndef QSF_MODEL_TESTING_STATE_GRAPHS_H_
#define QSF_MODEL_TESTING_STATE_GRAPHS_H_

#include "format/model_spec.h"

namespace qsf::testing_support {

struct StateGraph {
  const char* name;
  void (*change)(ModelSpec&);
  std::uint32_t context = 32;  // what the model is opened for
};

inline void set_granite_hybrid(ModelSpec& s) {
  s.architecture = "granitehybrid";
  s.n_layers = 4;
  s.layer_mixers = {2, 2, 0, 2};
  s.conv_taps = 4;
  s.mixer_heads = 6;
  s.mixer_head_dim = 5;
  s.mixer_state = 16;
  s.mixer_groups = 1;
  s.layer_rope = {0, 0, 0, 0};
  s.embedding_scale = 3.0F;
  s.attention_scale = 0.2F;
  s.residual_scale = 0.4F;
  s.logit_scale = 0.25F;
  s.tied_head = true;
}

// Scans in groups, attention without rotation, and FFNs without gates: each a layer.
inline void set_nemotron_h(ModelSpec& s) {
  s.architecture = "nemotron_h";
  s.n_layers = 6;
  s.layer_mixers = {2, 4, 2, 0, 4, 2};
  s.ffn_layers = {0, 1, 0, 0, 1, 0};
  s.conv_taps = 4;
  s.mixer_heads = 6;
  s.mixer_head_dim = 5;
  s.mixer_state = 8;
  s.mixer_groups = 2;
  s.layer_rope.assign(6, 0);
  s.activation = Activation::kReluSquared;
  s.gated_ffn = false;
}

// Which is not run: a layer of this model has one norm.
inline void set_two_parts_in_a_layer(ModelSpec& s) {
  set_nemotron_h(s);
  s.ffn_layers[0] = 1;
}

// Scans and attention of the same rows, summed.
inline void set_falcon_h1(ModelSpec& s) {
  s.architecture = "falcon-h1";
  s.n_layers = 3;
  s.layer_mixers = {5, 5, 5};
  s.conv_taps = 4;
  s.mixer_heads = 6;
  s.mixer_head_dim = 5;
  s.mixer_state = 16;
  s.mixer_groups = 1;
  s.embedding_scale = 3.0F;
  s.logit_scale = 0.25F;
}

inline void set_qwen35(ModelSpec& s) {
  s.architecture = "qwen35";
  s.n_layers = 4;
  s.layer_mixers = {3, 3, 0, 3};
  s.conv_taps = 4;
  s.mixer_heads = 6;
  s.mixer_head_dim = 5;
  s.mixer_state = 16;
  s.mixer_groups = 3;
  s.rope.dims = 4;
}

// Which is not run: its rates would be a matrix of one row.
inline void set_delta_rule_of_one_head(ModelSpec& s) {
  set_qwen35(s);
  s.mixer_heads = s.mixer_groups = 1;
}

inline constexpr StateGraph kStateGraphs[] = {
    {"lfm2",
     [](ModelSpec& s) {
       s.architecture = "lfm2";
       s.layer_mixers = {1, 0};
       s.conv_taps = 3;
       s.tied_head = true;
     }},
    {"lfm2_longer",
     [](ModelSpec& s) {
       s.architecture = "lfm2";
       s.layer_mixers = {0, 1};
       s.conv_taps = 5;
     }},
    {"lfm2_experts",
     [](ModelSpec& s) {
       s.architecture = "lfm2moe";
       s.n_layers = 4;
       s.layer_mixers = {1, 0, 1, 0};
       s.conv_taps = 3;
       s.n_experts = 5;
       s.n_experts_used = 3;
       s.expert_ffn = 20;
       s.expert_layers = {0, 1, 1, 1};
       s.expert_scoring = ExpertScoring::kSigmoid;
       s.expert_renormalised = true;
       s.expert_epsilon = 0.25F;
       s.expert_scale = 1.5F;
     }},
    {"granite_hybrid", set_granite_hybrid},
    {"granite_hybrid_groups",
     [](ModelSpec& s) {
       s.architecture = "granitehybrid";
       s.n_layers = 3;
       s.layer_mixers = {2, 0, 2};
       s.conv_taps = 3;
       s.mixer_heads = 6;
       s.mixer_head_dim = 4;
       s.mixer_state = 7;
       s.mixer_groups = 3;
     }},
    {"granite_hybrid_experts",
     [](ModelSpec& s) {
       set_granite_hybrid(s);
       s.architecture = "granitemoehybrid";
       s.layer_mixers = {0, 2, 2, 0};
       s.n_experts = 4;
       s.n_experts_used = 2;
       s.expert_ffn = 20;
       s.expert_renormalised = true;
       s.shared_ffn = 28;
     }},
    {"nemotron_h", set_nemotron_h},
    {"nemotron_h_experts",
     [](ModelSpec& s) {
       set_nemotron_h(s);
       s.architecture = "nemotron_h_moe";
       s.layer_mixers = {4, 2, 0, 4, 4, 2};
       s.ffn_layers = {1, 0, 0, 1, 1, 0};
       s.mixer_groups = 3;
       s.n_experts = 5;
       s.n_experts_used = 2;
       s.expert_ffn = 20;
       s.expert_layers = {0, 0, 0, 1, 1, 0};
       s.expert_scoring = ExpertScoring::kSigmoid;
       s.expert_renormalised = true;
       s.expert_epsilon = 1e-20F;
       s.expert_scale = 2.5F;
       s.shared_ffn = 28;
     }},
    {"falcon_h1", set_falcon_h1},
    {"falcon_h1_groups",
     [](ModelSpec& s) {
       set_falcon_h1(s);
       s.mixer_groups = 3;
       s.mixer_state = 7;
       s.conv_taps = 3;
       s.rope.dims = 4;
     }},
    {"qwen35", set_qwen35},
    {"qwen35_in_turn",
     [](ModelSpec& s) {
       set_qwen35(s);
       s.layer_mixers = {0, 3, 3, 0};
       s.conv_taps = 3;
       s.mixer_heads_in_turn = true;
       s.tied_head = true;
     }},
    {"qwen35moe",
     [](ModelSpec& s) {
       set_qwen35(s);
       s.architecture = "qwen35moe";
       s.mixer_groups = 1;
       s.mixer_state = 8;
       s.n_experts = 4;
       s.n_experts_used = 2;
       s.expert_ffn = 20;
       s.expert_renormalised = true;
       s.shared_ffn = 28;
     }},
    {"qwen3next",
     [](ModelSpec& s) {
       set_qwen35(s);
       s.architecture = "qwen3next";
       s.layer_mixers = {3, 0, 3, 0};
       s.mixer_groups = 6;
       s.n_experts = 4;
       s.n_experts_used = 3;
       s.expert_ffn = 12;
       s.shared_ffn = 10;
       s.expert_layers = {1, 0, 1, 1};
     }},
};

}  // namespace qsf::testing_support

#endif  // QSF_MODEL_TESTING_STATE_GRAPHS_H_
