// SPDX-License-Identifier: MIT

#include "import/hf/hf_tensors.h"

#include "import/hf/hf_encoder_tensors.h"
#include "import/hf/hf_gemma3n_tensors.h"
#include "import/hf/hf_gemma4_tensors.h"
#include "import/hf/hf_hybrid_tensors.h"
#include "import/hf/hf_qwen35_tensors.h"
#include "import/hf/hf_state_tensors.h"

namespace qsf {
namespace {

using K = TensorKind;
using P = Presence;
using S = Storage;

constexpr TensorPlace kEmbedTokens[] = {{K::kTokenEmbedding, "embed_tokens.weight"}};

constexpr TensorPlace kGpt2Embedding[] = {{K::kTokenEmbedding, "wte.weight"},
                                          {K::kPositionEmbedding, "wpe.weight"}};
constexpr TensorPlace kGpt2Layer[] = {{K::kAttnNorm, "ln_1.weight"},
                                      {K::kAttnNormBias, "ln_1.bias"},
                                      {K::kAttnQ, "attn.c_attn.weight", S::kFusedQkvTransposed},
                                      {K::kAttnQBias, "attn.c_attn.bias", S::kFusedQkv},
                                      {K::kAttnK, "attn.c_attn.weight", S::kFusedQkvTransposed},
                                      {K::kAttnKBias, "attn.c_attn.bias", S::kFusedQkv},
                                      {K::kAttnV, "attn.c_attn.weight", S::kFusedQkvTransposed},
                                      {K::kAttnVBias, "attn.c_attn.bias", S::kFusedQkv},
                                      {K::kAttnO, "attn.c_proj.weight", S::kTransposed},
                                      {K::kAttnOBias, "attn.c_proj.bias"},
                                      {K::kFfnNorm, "ln_2.weight"},
                                      {K::kFfnNormBias, "ln_2.bias"},
                                      {K::kFfnUp, "mlp.c_fc.weight", S::kTransposed},
                                      {K::kFfnUpBias, "mlp.c_fc.bias"},
                                      {K::kFfnDown, "mlp.c_proj.weight", S::kTransposed},
                                      {K::kFfnDownBias, "mlp.c_proj.bias"}};
constexpr TensorPlace kLnFinal[] = {{K::kFinalNorm, "ln_f.weight"},
                                    {K::kFinalNormBias, "ln_f.bias"}};

// The second position is the first that the model was trained with.
constexpr TensorPlace kOptEmbedding[] = {
    {K::kTokenEmbedding, "decoder.embed_tokens.weight"},
    {K::kPositionEmbedding, "decoder.embed_positions.weight", S::kBehindTwoRows}};
constexpr TensorPlace kOptLayer[] = {
    {K::kAttnNorm, "self_attn_layer_norm.weight"},
    {K::kAttnNormBias, "self_attn_layer_norm.bias"},
    {K::kAttnQ, "self_attn.q_proj.weight"},
    {K::kAttnQBias, "self_attn.q_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnK, "self_attn.k_proj.weight"},
    {K::kAttnKBias, "self_attn.k_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnV, "self_attn.v_proj.weight"},
    {K::kAttnVBias, "self_attn.v_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnO, "self_attn.out_proj.weight"},
    {K::kAttnOBias, "self_attn.out_proj.bias", S::kPlain, P::kAttnOutBias},
    {K::kFfnNorm, "final_layer_norm.weight"},
    {K::kFfnNormBias, "final_layer_norm.bias"},
    {K::kFfnUp, "fc1.weight"},
    {K::kFfnUpBias, "fc1.bias", S::kPlain, P::kFfnBias},
    {K::kFfnDown, "fc2.weight"},
    {K::kFfnDownBias, "fc2.bias", S::kPlain, P::kFfnBias}};
constexpr TensorPlace kOptFinal[] = {{K::kFinalNorm, "decoder.final_layer_norm.weight"},
                                     {K::kFinalNormBias, "decoder.final_layer_norm.bias"}};

constexpr TensorPlace kBloomEmbedding[] = {
    {K::kTokenEmbedding, "word_embeddings.weight"},
    {K::kEmbeddingNorm, "word_embeddings_layernorm.weight"},
    {K::kEmbeddingNormBias, "word_embeddings_layernorm.bias"}};
constexpr TensorPlace kBloomLayer[] = {
    {K::kAttnNorm, "input_layernorm.weight"},
    {K::kAttnNormBias, "input_layernorm.bias"},
    {K::kAttnQ, "self_attention.query_key_value.weight", S::kFusedQkvByGroup},
    {K::kAttnQBias, "self_attention.query_key_value.bias", S::kFusedQkvByGroup},
    {K::kAttnK, "self_attention.query_key_value.weight", S::kFusedQkvByGroup},
    {K::kAttnKBias, "self_attention.query_key_value.bias", S::kFusedQkvByGroup},
    {K::kAttnV, "self_attention.query_key_value.weight", S::kFusedQkvByGroup},
    {K::kAttnVBias, "self_attention.query_key_value.bias", S::kFusedQkvByGroup},
    {K::kAttnO, "self_attention.dense.weight"},
    {K::kAttnOBias, "self_attention.dense.bias"},
    {K::kFfnNorm, "post_attention_layernorm.weight"},
    {K::kFfnNormBias, "post_attention_layernorm.bias"},
    {K::kFfnUp, "mlp.dense_h_to_4h.weight"},
    {K::kFfnUpBias, "mlp.dense_h_to_4h.bias"},
    {K::kFfnDown, "mlp.dense_4h_to_h.weight"},
    {K::kFfnDownBias, "mlp.dense_4h_to_h.bias"}};

constexpr TensorPlace kFalconEmbedding[] = {{K::kTokenEmbedding, "word_embeddings.weight"}};
constexpr TensorPlace kFalconLayer[] = {
    {K::kAttnNorm, "input_layernorm.weight"},
    {K::kAttnNormBias, "input_layernorm.bias"},
    {K::kAttnQ, "self_attention.query_key_value.weight", S::kFusedQkvByGroup},
    {K::kAttnQBias, "self_attention.query_key_value.bias", S::kFusedQkvByGroup, P::kQkvBias},
    {K::kAttnK, "self_attention.query_key_value.weight", S::kFusedQkvByGroup},
    {K::kAttnKBias, "self_attention.query_key_value.bias", S::kFusedQkvByGroup, P::kQkvBias},
    {K::kAttnV, "self_attention.query_key_value.weight", S::kFusedQkvByGroup},
    {K::kAttnVBias, "self_attention.query_key_value.bias", S::kFusedQkvByGroup, P::kQkvBias},
    {K::kAttnO, "self_attention.dense.weight"},
    {K::kAttnOBias, "self_attention.dense.bias", S::kPlain, P::kAttnOutBias},
    {K::kFfnNorm, "post_attention_layernorm.weight", S::kPlain, P::kSequential},
    {K::kFfnNormBias, "post_attention_layernorm.bias", S::kPlain, P::kSequential},
    {K::kFfnUp, "mlp.dense_h_to_4h.weight"},
    {K::kFfnUpBias, "mlp.dense_h_to_4h.bias", S::kPlain, P::kFfnBias},
    {K::kFfnDown, "mlp.dense_4h_to_h.weight"},
    {K::kFfnDownBias, "mlp.dense_4h_to_h.bias", S::kPlain, P::kFfnBias}};
constexpr TensorPlace kFalconTwoNormsLayer[] = {
    {K::kAttnNorm, "ln_attn.weight"},
    {K::kAttnNormBias, "ln_attn.bias"},
    {K::kAttnQ, "self_attention.query_key_value.weight", S::kFusedQkvByGroup},
    {K::kAttnQBias, "self_attention.query_key_value.bias", S::kFusedQkvByGroup, P::kQkvBias},
    {K::kAttnK, "self_attention.query_key_value.weight", S::kFusedQkvByGroup},
    {K::kAttnKBias, "self_attention.query_key_value.bias", S::kFusedQkvByGroup, P::kQkvBias},
    {K::kAttnV, "self_attention.query_key_value.weight", S::kFusedQkvByGroup},
    {K::kAttnVBias, "self_attention.query_key_value.bias", S::kFusedQkvByGroup, P::kQkvBias},
    {K::kAttnO, "self_attention.dense.weight"},
    {K::kAttnOBias, "self_attention.dense.bias", S::kPlain, P::kAttnOutBias},
    {K::kFfnNorm, "ln_mlp.weight"},
    {K::kFfnNormBias, "ln_mlp.bias"},
    {K::kFfnUp, "mlp.dense_h_to_4h.weight"},
    {K::kFfnUpBias, "mlp.dense_h_to_4h.bias", S::kPlain, P::kFfnBias},
    {K::kFfnDown, "mlp.dense_4h_to_h.weight"},
    {K::kFfnDownBias, "mlp.dense_4h_to_h.bias", S::kPlain, P::kFfnBias}};

constexpr TensorPlace kGptNeoxEmbedding[] = {{K::kTokenEmbedding, "embed_in.weight"}};
constexpr TensorPlace kGptNeoxFinal[] = {{K::kFinalNorm, "final_layer_norm.weight"},
                                         {K::kFinalNormBias, "final_layer_norm.bias"}};
constexpr TensorPlace kGptNeoxLayer[] = {
    {K::kAttnNorm, "input_layernorm.weight"},
    {K::kAttnNormBias, "input_layernorm.bias"},
    {K::kAttnQ, "attention.query_key_value.weight", S::kFusedQkvByGroup},
    {K::kAttnQBias, "attention.query_key_value.bias", S::kFusedQkvByGroup, P::kQkvBias},
    {K::kAttnK, "attention.query_key_value.weight", S::kFusedQkvByGroup},
    {K::kAttnKBias, "attention.query_key_value.bias", S::kFusedQkvByGroup, P::kQkvBias},
    {K::kAttnV, "attention.query_key_value.weight", S::kFusedQkvByGroup},
    {K::kAttnVBias, "attention.query_key_value.bias", S::kFusedQkvByGroup, P::kQkvBias},
    {K::kAttnO, "attention.dense.weight"},
    {K::kAttnOBias, "attention.dense.bias", S::kPlain, P::kAttnOutBias},
    {K::kFfnNorm, "post_attention_layernorm.weight"},
    {K::kFfnNormBias, "post_attention_layernorm.bias"},
    {K::kFfnUp, "mlp.dense_h_to_4h.weight"},
    {K::kFfnUpBias, "mlp.dense_h_to_4h.bias"},
    {K::kFfnDown, "mlp.dense_4h_to_h.weight"},
    {K::kFfnDownBias, "mlp.dense_4h_to_h.bias"}};

constexpr TensorPlace kMptEmbedding[] = {{K::kTokenEmbedding, "wte.weight"}};
constexpr TensorPlace kMptLayer[] = {{K::kAttnNorm, "norm_1.weight"},
                                     {K::kAttnQ, "attn.Wqkv.weight", S::kFusedQkv},
                                     {K::kAttnK, "attn.Wqkv.weight", S::kFusedQkv},
                                     {K::kAttnV, "attn.Wqkv.weight", S::kFusedQkv},
                                     {K::kAttnO, "attn.out_proj.weight"},
                                     {K::kFfnNorm, "norm_2.weight"},
                                     {K::kFfnUp, "ffn.up_proj.weight"},
                                     {K::kFfnDown, "ffn.down_proj.weight"}};
constexpr TensorPlace kMptFinal[] = {{K::kFinalNorm, "norm_f.weight"}};

constexpr TensorPlace kStarcoder2Layer[] = {
    {K::kAttnNorm, "input_layernorm.weight"},
    {K::kAttnNormBias, "input_layernorm.bias"},
    {K::kAttnQ, "self_attn.q_proj.weight"},
    {K::kAttnQBias, "self_attn.q_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnK, "self_attn.k_proj.weight"},
    {K::kAttnKBias, "self_attn.k_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnV, "self_attn.v_proj.weight"},
    {K::kAttnVBias, "self_attn.v_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnO, "self_attn.o_proj.weight"},
    {K::kAttnOBias, "self_attn.o_proj.bias", S::kPlain, P::kAttnOutBias},
    {K::kFfnNorm, "post_attention_layernorm.weight"},
    {K::kFfnNormBias, "post_attention_layernorm.bias"},
    {K::kFfnUp, "mlp.c_fc.weight"},
    {K::kFfnUpBias, "mlp.c_fc.bias", S::kPlain, P::kFfnBias},
    {K::kFfnDown, "mlp.c_proj.weight"},
    {K::kFfnDownBias, "mlp.c_proj.bias", S::kPlain, P::kFfnBias}};

// In all tables the gate comes directly before up: their tiles alternate in the file.
constexpr TensorPlace kLlamaLayer[] = {
    {K::kAttnNorm, "input_layernorm.weight"},
    {K::kAttnQ, "self_attn.q_proj.weight"},
    {K::kAttnQBias, "self_attn.q_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnK, "self_attn.k_proj.weight"},
    {K::kAttnKBias, "self_attn.k_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnV, "self_attn.v_proj.weight"},
    {K::kAttnVBias, "self_attn.v_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnO, "self_attn.o_proj.weight"},
    {K::kAttnOBias, "self_attn.o_proj.bias", S::kPlain, P::kAttnOutBias},
    {K::kFfnNorm, "post_attention_layernorm.weight"},
    {K::kFfnGateBias, "mlp.gate_proj.bias", S::kPlain, P::kFfnBias},
    {K::kFfnUpBias, "mlp.up_proj.bias", S::kPlain, P::kFfnBias},
    {K::kFfnGate, "mlp.gate_proj.weight"},
    {K::kFfnUp, "mlp.up_proj.weight"},
    {K::kFfnDown, "mlp.down_proj.weight"},
    {K::kFfnDownBias, "mlp.down_proj.bias", S::kPlain, P::kFfnBias}};
constexpr TensorPlace kNormFinal[] = {{K::kFinalNorm, "norm.weight"}};

constexpr TensorPlace kQwen3Layer[] = {
    {K::kAttnNorm, "input_layernorm.weight"},
    {K::kAttnQ, "self_attn.q_proj.weight"},
    {K::kAttnQBias, "self_attn.q_proj.bias", S::kPlain, P::kQkvBias},
    {K::kQNorm, "self_attn.q_norm.weight"},
    {K::kAttnK, "self_attn.k_proj.weight"},
    {K::kAttnKBias, "self_attn.k_proj.bias", S::kPlain, P::kQkvBias},
    {K::kKNorm, "self_attn.k_norm.weight"},
    {K::kAttnV, "self_attn.v_proj.weight"},
    {K::kAttnVBias, "self_attn.v_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnO, "self_attn.o_proj.weight"},
    {K::kAttnOBias, "self_attn.o_proj.bias", S::kPlain, P::kAttnOutBias},
    {K::kFfnNorm, "post_attention_layernorm.weight"},
    {K::kFfnGate, "mlp.gate_proj.weight"},
    {K::kFfnUp, "mlp.up_proj.weight"},
    {K::kFfnDown, "mlp.down_proj.weight"}};

// Mixtures of experts. In files of newer versions of transformers the experts may be stacked.
constexpr TensorPlace kMixtralLayer[] = {
    {K::kAttnNorm, "input_layernorm.weight"},    {K::kAttnQ, "self_attn.q_proj.weight"},
    {K::kAttnK, "self_attn.k_proj.weight"},      {K::kAttnV, "self_attn.v_proj.weight"},
    {K::kAttnO, "self_attn.o_proj.weight"},      {K::kFfnNorm, "post_attention_layernorm.weight"},
    {K::kRouter, "block_sparse_moe.gate.weight"}};
constexpr TensorPlace kMixtralExperts[] = {
    {K::kExpertGate, "block_sparse_moe.experts.*.w1.weight"},
    {K::kExpertUp, "block_sparse_moe.experts.*.w3.weight"},
    {K::kExpertDown, "block_sparse_moe.experts.*.w2.weight"}};
// A layer without experts is a LLaMA's.
constexpr TensorPlace kQwen3MoeLayer[] = {
    {K::kAttnNorm, "input_layernorm.weight"},
    {K::kAttnQ, "self_attn.q_proj.weight"},
    {K::kAttnQBias, "self_attn.q_proj.bias", S::kPlain, P::kQkvBias},
    {K::kQNorm, "self_attn.q_norm.weight"},
    {K::kAttnK, "self_attn.k_proj.weight"},
    {K::kAttnKBias, "self_attn.k_proj.bias", S::kPlain, P::kQkvBias},
    {K::kKNorm, "self_attn.k_norm.weight"},
    {K::kAttnV, "self_attn.v_proj.weight"},
    {K::kAttnVBias, "self_attn.v_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnO, "self_attn.o_proj.weight"},
    {K::kAttnOBias, "self_attn.o_proj.bias", S::kPlain, P::kAttnOutBias},
    {K::kFfnNorm, "post_attention_layernorm.weight"},
    {K::kFfnGate, "mlp.gate_proj.weight", S::kPlain, P::kDense},
    {K::kFfnUp, "mlp.up_proj.weight", S::kPlain, P::kDense},
    {K::kFfnDown, "mlp.down_proj.weight", S::kPlain, P::kDense},
    {K::kRouter, "mlp.gate.weight", S::kPlain, P::kExperts}};
// As Mixtral's, with biases of norms and others.
constexpr TensorPlace kPhimoeLayer[] = {
    {K::kAttnNorm, "input_layernorm.weight"},
    {K::kAttnNormBias, "input_layernorm.bias"},
    {K::kAttnQ, "self_attn.q_proj.weight"},
    {K::kAttnQBias, "self_attn.q_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnK, "self_attn.k_proj.weight"},
    {K::kAttnKBias, "self_attn.k_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnV, "self_attn.v_proj.weight"},
    {K::kAttnVBias, "self_attn.v_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnO, "self_attn.o_proj.weight"},
    {K::kAttnOBias, "self_attn.o_proj.bias", S::kPlain, P::kAttnOutBias},
    {K::kFfnNorm, "post_attention_layernorm.weight"},
    {K::kFfnNormBias, "post_attention_layernorm.bias"},
    {K::kRouter, "block_sparse_moe.gate.weight"}};
constexpr TensorPlace kQwen2MoeLayer[] = {
    {K::kAttnNorm, "input_layernorm.weight"},
    {K::kAttnQ, "self_attn.q_proj.weight"},
    {K::kAttnQBias, "self_attn.q_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnK, "self_attn.k_proj.weight"},
    {K::kAttnKBias, "self_attn.k_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnV, "self_attn.v_proj.weight"},
    {K::kAttnVBias, "self_attn.v_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnO, "self_attn.o_proj.weight"},
    {K::kFfnNorm, "post_attention_layernorm.weight"},
    {K::kFfnGate, "mlp.gate_proj.weight", S::kPlain, P::kDense},
    {K::kFfnUp, "mlp.up_proj.weight", S::kPlain, P::kDense},
    {K::kFfnDown, "mlp.down_proj.weight", S::kPlain, P::kDense},
    {K::kRouter, "mlp.gate.weight", S::kPlain, P::kExperts},
    {K::kSharedWeight, "mlp.shared_expert_gate.weight", S::kPlain, P::kShared},
    {K::kSharedGate, "mlp.shared_expert.gate_proj.weight", S::kPlain, P::kShared},
    {K::kSharedUp, "mlp.shared_expert.up_proj.weight", S::kPlain, P::kShared},
    {K::kSharedDown, "mlp.shared_expert.down_proj.weight", S::kPlain, P::kShared}};
// Norms of heads in some. Further blocks, which predict more tokens, are left out.
constexpr TensorPlace kGlm4MoeLayer[] = {
    {K::kAttnNorm, "input_layernorm.weight"},
    {K::kAttnQ, "self_attn.q_proj.weight"},
    {K::kAttnQBias, "self_attn.q_proj.bias", S::kPlain, P::kQkvBias},
    {K::kQNorm, "self_attn.q_norm.weight", S::kPlain, P::kHeadNorms},
    {K::kAttnK, "self_attn.k_proj.weight"},
    {K::kAttnKBias, "self_attn.k_proj.bias", S::kPlain, P::kQkvBias},
    {K::kKNorm, "self_attn.k_norm.weight", S::kPlain, P::kHeadNorms},
    {K::kAttnV, "self_attn.v_proj.weight"},
    {K::kAttnVBias, "self_attn.v_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnO, "self_attn.o_proj.weight"},
    {K::kFfnNorm, "post_attention_layernorm.weight"},
    {K::kFfnGate, "mlp.gate_proj.weight", S::kPlain, P::kDense},
    {K::kFfnUp, "mlp.up_proj.weight", S::kPlain, P::kDense},
    {K::kFfnDown, "mlp.down_proj.weight", S::kPlain, P::kDense},
    {K::kRouter, "mlp.gate.weight", S::kPlain, P::kExperts},
    {K::kRouterCorrection, "mlp.gate.e_score_correction_bias", S::kPlain, P::kExperts},
    {K::kSharedGate, "mlp.shared_experts.gate_proj.weight", S::kPlain, P::kShared},
    {K::kSharedUp, "mlp.shared_experts.up_proj.weight", S::kPlain, P::kShared},
    {K::kSharedDown, "mlp.shared_experts.down_proj.weight", S::kPlain, P::kShared}};
// DeepSeek's latent attention. Tensors come in the order in which the decoder takes them.
constexpr TensorPlace kDeepseek2Layer[] = {
    {K::kAttnNorm, "input_layernorm.weight"},
    {K::kLatentQuery, "self_attn.q_a_proj.weight", S::kPlain, P::kQueryRow},
    {K::kAttnK, "self_attn.kv_a_proj_with_mqa.weight", S::kLatentRow},
    {K::kLatentQueryNorm, "self_attn.q_a_layernorm.weight", S::kPlain, P::kQueryRow},
    {K::kLatentNorm, "self_attn.kv_a_layernorm.weight"},
    {K::kAttnQ, "self_attn.q_b_proj.weight", S::kLatentQuery, P::kQueryRow},
    {K::kAttnQ, "self_attn.q_proj.weight", S::kLatentQuery, P::kNoQueryRow},
    {K::kLatentKeys, "self_attn.kv_b_proj.weight", S::kLatentKeys},
    {K::kLatentValues, "self_attn.kv_b_proj.weight", S::kLatentValues},
    {K::kAttnO, "self_attn.o_proj.weight"},
    {K::kFfnNorm, "post_attention_layernorm.weight"},
    {K::kFfnGate, "mlp.gate_proj.weight", S::kPlain, P::kDense},
    {K::kFfnUp, "mlp.up_proj.weight", S::kPlain, P::kDense},
    {K::kFfnDown, "mlp.down_proj.weight", S::kPlain, P::kDense},
    {K::kRouter, "mlp.gate.weight", S::kPlain, P::kExperts},
    {K::kRouterCorrection, "mlp.gate.e_score_correction_bias", S::kPlain, P::kRouterCorrection},
    {K::kSharedGate, "mlp.shared_experts.gate_proj.weight", S::kPlain, P::kShared},
    {K::kSharedUp, "mlp.shared_experts.up_proj.weight", S::kPlain, P::kShared},
    {K::kSharedDown, "mlp.shared_experts.down_proj.weight", S::kPlain, P::kShared}};
constexpr TensorPlace kLlama4Layer[] = {
    {K::kAttnNorm, "input_layernorm.weight"},
    {K::kAttnQ, "self_attn.q_proj.weight", S::kPairedRope},
    {K::kAttnQBias, "self_attn.q_proj.bias", S::kPairedRope, P::kQkvBias},
    {K::kAttnK, "self_attn.k_proj.weight", S::kPairedRope},
    {K::kAttnKBias, "self_attn.k_proj.bias", S::kPairedRope, P::kQkvBias},
    {K::kAttnV, "self_attn.v_proj.weight"},
    {K::kAttnVBias, "self_attn.v_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnO, "self_attn.o_proj.weight"},
    {K::kAttnOBias, "self_attn.o_proj.bias", S::kPlain, P::kAttnOutBias},
    {K::kFfnNorm, "post_attention_layernorm.weight"},
    {K::kFfnGate, "feed_forward.gate_proj.weight", S::kPlain, P::kDense},
    {K::kFfnUp, "feed_forward.up_proj.weight", S::kPlain, P::kDense},
    {K::kFfnDown, "feed_forward.down_proj.weight", S::kPlain, P::kDense},
    {K::kRouter, "feed_forward.router.weight", S::kPlain, P::kExperts},
    {K::kSharedGate, "feed_forward.shared_expert.gate_proj.weight", S::kPlain, P::kShared},
    {K::kSharedUp, "feed_forward.shared_expert.up_proj.weight", S::kPlain, P::kShared},
    {K::kSharedDown, "feed_forward.shared_expert.down_proj.weight", S::kPlain, P::kShared}};
constexpr TensorPlace kLlama4Experts[] = {
    {K::kExpertGate, "feed_forward.experts.gate_up_proj", S::kStackedTransposedGateUp},
    {K::kExpertUp, "feed_forward.experts.gate_up_proj", S::kStackedTransposedGateUp},
    {K::kExpertDown, "feed_forward.experts.down_proj", S::kStackedTransposed}};
// As Qwen 3's, with norms of queries and keys that run over all heads.
constexpr TensorPlace kOlmoeLayer[] = {
    {K::kAttnNorm, "input_layernorm.weight"},
    {K::kAttnQ, "self_attn.q_proj.weight"},
    {K::kAttnQBias, "self_attn.q_proj.bias", S::kPlain, P::kQkvBias},
    {K::kQNorm, "self_attn.q_norm.weight", S::kPlain, P::kAlways, true},
    {K::kAttnK, "self_attn.k_proj.weight"},
    {K::kAttnKBias, "self_attn.k_proj.bias", S::kPlain, P::kQkvBias},
    {K::kKNorm, "self_attn.k_norm.weight", S::kPlain, P::kAlways, true},
    {K::kAttnV, "self_attn.v_proj.weight"},
    {K::kAttnVBias, "self_attn.v_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnO, "self_attn.o_proj.weight"},
    {K::kAttnOBias, "self_attn.o_proj.bias", S::kPlain, P::kAttnOutBias},
    {K::kFfnNorm, "post_attention_layernorm.weight"},
    {K::kRouter, "mlp.gate.weight"}};
constexpr TensorPlace kQwenExperts[] = {{K::kExpertGate, "mlp.experts.*.gate_proj.weight"},
                                        {K::kExpertUp, "mlp.experts.*.up_proj.weight"},
                                        {K::kExpertDown, "mlp.experts.*.down_proj.weight"}};
constexpr TensorPlace kQwenStackedExperts[] = {
    {K::kExpertGate, "mlp.experts.gate_up_proj", S::kStackedGateUp},
    {K::kExpertUp, "mlp.experts.gate_up_proj", S::kStackedGateUp},
    {K::kExpertDown, "mlp.experts.down_proj", S::kStacked}};
constexpr TensorPlace kGraniteMoeLayer[] = {
    {K::kAttnNorm, "input_layernorm.weight"},
    {K::kAttnQ, "self_attn.q_proj.weight"},
    {K::kAttnQBias, "self_attn.q_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnK, "self_attn.k_proj.weight"},
    {K::kAttnKBias, "self_attn.k_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnV, "self_attn.v_proj.weight"},
    {K::kAttnVBias, "self_attn.v_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnO, "self_attn.o_proj.weight"},
    {K::kAttnOBias, "self_attn.o_proj.bias", S::kPlain, P::kAttnOutBias},
    {K::kFfnNorm, "post_attention_layernorm.weight"},
    {K::kRouter, "block_sparse_moe.router.layer.weight"},
    {K::kSharedGate, "shared_mlp.input_linear.weight", S::kFusedGateUp, P::kShared},
    {K::kSharedUp, "shared_mlp.input_linear.weight", S::kFusedGateUp, P::kShared},
    {K::kSharedDown, "shared_mlp.output_linear.weight", S::kPlain, P::kShared}};
constexpr TensorPlace kGraniteMoeExperts[] = {
    {K::kExpertGate, "block_sparse_moe.input_linear.weight", S::kStackedGateUp},
    {K::kExpertUp, "block_sparse_moe.input_linear.weight", S::kStackedGateUp},
    {K::kExpertDown, "block_sparse_moe.output_linear.weight", S::kStacked}};

constexpr TensorPlace kGptOssLayer[] = {
    {K::kAttnNorm, "input_layernorm.weight"},
    {K::kAttnQ, "self_attn.q_proj.weight"},
    {K::kAttnQBias, "self_attn.q_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnK, "self_attn.k_proj.weight"},
    {K::kAttnKBias, "self_attn.k_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnV, "self_attn.v_proj.weight"},
    {K::kAttnVBias, "self_attn.v_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnSinks, "self_attn.sinks"},
    {K::kAttnO, "self_attn.o_proj.weight"},
    {K::kAttnOBias, "self_attn.o_proj.bias", S::kPlain, P::kAttnOutBias},
    {K::kFfnNorm, "post_attention_layernorm.weight"},
    {K::kRouter, "mlp.router.weight"},
    {K::kRouterBias, "mlp.router.bias"}};
constexpr TensorPlace kGptOssExperts[] = {
    {K::kExpertGate, "mlp.experts.gate_up_proj_blocks", S::kMxfp4Pairs},
    {K::kExpertGateBias, "mlp.experts.gate_up_proj_bias", S::kStackedPairs},
    {K::kExpertUp, "mlp.experts.gate_up_proj_blocks", S::kMxfp4Pairs},
    {K::kExpertUpBias, "mlp.experts.gate_up_proj_bias", S::kStackedPairs},
    {K::kExpertDown, "mlp.experts.down_proj_blocks", S::kMxfp4},
    {K::kExpertDownBias, "mlp.experts.down_proj_bias", S::kStacked}};
constexpr TensorPlace kGptOssStackedExperts[] = {
    {K::kExpertGate, "mlp.experts.gate_up_proj", S::kStackedTransposedPairs},
    {K::kExpertGateBias, "mlp.experts.gate_up_proj_bias", S::kStackedPairs},
    {K::kExpertUp, "mlp.experts.gate_up_proj", S::kStackedTransposedPairs},
    {K::kExpertUpBias, "mlp.experts.gate_up_proj_bias", S::kStackedPairs},
    {K::kExpertDown, "mlp.experts.down_proj", S::kStackedTransposed},
    {K::kExpertDownBias, "mlp.experts.down_proj_bias", S::kStacked}};

// The FFN of a layer without experts is the shared expert alone.
constexpr TensorPlace kGranite4Layer[] = {
    {K::kAttnNorm, "input_layernorm.weight"},
    {K::kAttnQ, "self_attn.q_proj.weight"},
    {K::kAttnQBias, "self_attn.q_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnK, "self_attn.k_proj.weight"},
    {K::kAttnKBias, "self_attn.k_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnV, "self_attn.v_proj.weight"},
    {K::kAttnVBias, "self_attn.v_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnO, "self_attn.o_proj.weight"},
    {K::kAttnOBias, "self_attn.o_proj.bias", S::kPlain, P::kAttnOutBias},
    {K::kFfnNorm, "post_attention_layernorm.weight"},
    {K::kFfnGate, "shared_mlp.input_linear.weight", S::kFusedGateUp},
    {K::kFfnUp, "shared_mlp.input_linear.weight", S::kFusedGateUp},
    {K::kFfnDown, "shared_mlp.output_linear.weight"}};

constexpr TensorPlace kInternlm2Embedding[] = {{K::kTokenEmbedding, "tok_embeddings.weight"}};
constexpr TensorPlace kInternlm2Layer[] = {
    {K::kAttnNorm, "attention_norm.weight"},
    {K::kAttnQ, "attention.wqkv.weight", S::kFusedQkvByGroup},
    {K::kAttnQBias, "attention.wqkv.bias", S::kFusedQkvByGroup, P::kQkvBias},
    {K::kAttnK, "attention.wqkv.weight", S::kFusedQkvByGroup},
    {K::kAttnKBias, "attention.wqkv.bias", S::kFusedQkvByGroup, P::kQkvBias},
    {K::kAttnV, "attention.wqkv.weight", S::kFusedQkvByGroup},
    {K::kAttnVBias, "attention.wqkv.bias", S::kFusedQkvByGroup, P::kQkvBias},
    {K::kAttnO, "attention.wo.weight"},
    {K::kAttnOBias, "attention.wo.bias", S::kPlain, P::kAttnOutBias},
    {K::kFfnNorm, "ffn_norm.weight"},
    {K::kFfnGate, "feed_forward.w1.weight"},
    {K::kFfnUp, "feed_forward.w3.weight"},
    {K::kFfnDown, "feed_forward.w2.weight"}};

constexpr TensorPlace kPhi3Layer[] = {{K::kAttnNorm, "input_layernorm.weight"},
                                      {K::kAttnQ, "self_attn.qkv_proj.weight", S::kFusedQkv},
                                      {K::kAttnK, "self_attn.qkv_proj.weight", S::kFusedQkv},
                                      {K::kAttnV, "self_attn.qkv_proj.weight", S::kFusedQkv},
                                      {K::kAttnO, "self_attn.o_proj.weight"},
                                      {K::kFfnNorm, "post_attention_layernorm.weight"},
                                      {K::kFfnGate, "mlp.gate_up_proj.weight", S::kFusedGateUp},
                                      {K::kFfnUp, "mlp.gate_up_proj.weight", S::kFusedGateUp},
                                      {K::kFfnDown, "mlp.down_proj.weight"}};

constexpr TensorPlace kPhi2Layer[] = {{K::kAttnNorm, "input_layernorm.weight"},
                                      {K::kAttnNormBias, "input_layernorm.bias"},
                                      {K::kAttnQ, "self_attn.q_proj.weight"},
                                      {K::kAttnQBias, "self_attn.q_proj.bias"},
                                      {K::kAttnK, "self_attn.k_proj.weight"},
                                      {K::kAttnKBias, "self_attn.k_proj.bias"},
                                      {K::kAttnV, "self_attn.v_proj.weight"},
                                      {K::kAttnVBias, "self_attn.v_proj.bias"},
                                      {K::kAttnO, "self_attn.dense.weight"},
                                      {K::kAttnOBias, "self_attn.dense.bias"},
                                      {K::kFfnUp, "mlp.fc1.weight"},
                                      {K::kFfnUpBias, "mlp.fc1.bias"},
                                      {K::kFfnDown, "mlp.fc2.weight"},
                                      {K::kFfnDownBias, "mlp.fc2.bias"}};
constexpr TensorPlace kPhi2Final[] = {{K::kFinalNorm, "final_layernorm.weight"},
                                      {K::kFinalNormBias, "final_layernorm.bias"}};

constexpr TensorPlace kStablelmLayer[] = {
    {K::kAttnNorm, "input_layernorm.weight"},
    {K::kAttnNormBias, "input_layernorm.bias"},
    {K::kAttnQ, "self_attn.q_proj.weight"},
    {K::kAttnQBias, "self_attn.q_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnK, "self_attn.k_proj.weight"},
    {K::kAttnKBias, "self_attn.k_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnV, "self_attn.v_proj.weight"},
    {K::kAttnVBias, "self_attn.v_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnO, "self_attn.o_proj.weight"},
    {K::kFfnNorm, "post_attention_layernorm.weight", S::kPlain, P::kSequential},
    {K::kFfnNormBias, "post_attention_layernorm.bias", S::kPlain, P::kSequential},
    {K::kFfnGate, "mlp.gate_proj.weight"},
    {K::kFfnUp, "mlp.up_proj.weight"},
    {K::kFfnDown, "mlp.down_proj.weight"}};
constexpr TensorPlace kStablelmFinal[] = {{K::kFinalNorm, "norm.weight"},
                                          {K::kFinalNormBias, "norm.bias"}};

// One norm for attention and FFN, without a bias. In Command-R+ heads of queries and keys have
// norms, each head with gains of its own.
constexpr TensorPlace kCohereLayer[] = {
    {K::kAttnNorm, "input_layernorm.weight"},
    {K::kAttnQ, "self_attn.q_proj.weight", S::kPairedRope},
    {K::kAttnQBias, "self_attn.q_proj.bias", S::kPairedRope, P::kQkvBias},
    {K::kQNorm, "self_attn.q_norm.weight", S::kPairedRopeOfHeads, P::kHeadNorms, true},
    {K::kAttnK, "self_attn.k_proj.weight", S::kPairedRope},
    {K::kAttnKBias, "self_attn.k_proj.bias", S::kPairedRope, P::kQkvBias},
    {K::kKNorm, "self_attn.k_norm.weight", S::kPairedRopeOfHeads, P::kHeadNorms, true},
    {K::kAttnV, "self_attn.v_proj.weight"},
    {K::kAttnVBias, "self_attn.v_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnO, "self_attn.o_proj.weight"},
    {K::kAttnOBias, "self_attn.o_proj.bias", S::kPlain, P::kAttnOutBias},
    {K::kFfnGate, "mlp.gate_proj.weight"},
    {K::kFfnUp, "mlp.up_proj.weight"},
    {K::kFfnDown, "mlp.down_proj.weight"}};

constexpr TensorPlace kGemmaLayer[] = {
    {K::kAttnNorm, "input_layernorm.weight", S::kLessOne},
    {K::kAttnQ, "self_attn.q_proj.weight"},
    {K::kAttnQBias, "self_attn.q_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnK, "self_attn.k_proj.weight"},
    {K::kAttnKBias, "self_attn.k_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnV, "self_attn.v_proj.weight"},
    {K::kAttnVBias, "self_attn.v_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnO, "self_attn.o_proj.weight"},
    {K::kAttnOBias, "self_attn.o_proj.bias", S::kPlain, P::kAttnOutBias},
    {K::kFfnNorm, "post_attention_layernorm.weight", S::kLessOne},
    {K::kFfnGate, "mlp.gate_proj.weight"},
    {K::kFfnUp, "mlp.up_proj.weight"},
    {K::kFfnDown, "mlp.down_proj.weight"}};
constexpr TensorPlace kGemmaFinal[] = {{K::kFinalNorm, "norm.weight", S::kLessOne}};

// In Gemma 2 post_attention_layernorm, elsewhere the norm before the FFN, follows the attention.
constexpr TensorPlace kGemma2Layer[] = {
    {K::kAttnNorm, "input_layernorm.weight", S::kLessOne},
    {K::kAttnQ, "self_attn.q_proj.weight"},
    {K::kAttnQBias, "self_attn.q_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnK, "self_attn.k_proj.weight"},
    {K::kAttnKBias, "self_attn.k_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnV, "self_attn.v_proj.weight"},
    {K::kAttnVBias, "self_attn.v_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnO, "self_attn.o_proj.weight"},
    {K::kAttnOBias, "self_attn.o_proj.bias", S::kPlain, P::kAttnOutBias},
    {K::kAttnPostNorm, "post_attention_layernorm.weight", S::kLessOne},
    {K::kFfnNorm, "pre_feedforward_layernorm.weight", S::kLessOne},
    {K::kFfnGate, "mlp.gate_proj.weight"},
    {K::kFfnUp, "mlp.up_proj.weight"},
    {K::kFfnDown, "mlp.down_proj.weight"},
    {K::kFfnPostNorm, "post_feedforward_layernorm.weight", S::kLessOne}};

constexpr TensorPlace kGemma3Layer[] = {
    {K::kAttnNorm, "input_layernorm.weight", S::kLessOne},
    {K::kAttnQ, "self_attn.q_proj.weight"},
    {K::kAttnQBias, "self_attn.q_proj.bias", S::kPlain, P::kQkvBias},
    {K::kQNorm, "self_attn.q_norm.weight", S::kLessOne},
    {K::kAttnK, "self_attn.k_proj.weight"},
    {K::kAttnKBias, "self_attn.k_proj.bias", S::kPlain, P::kQkvBias},
    {K::kKNorm, "self_attn.k_norm.weight", S::kLessOne},
    {K::kAttnV, "self_attn.v_proj.weight"},
    {K::kAttnVBias, "self_attn.v_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnO, "self_attn.o_proj.weight"},
    {K::kAttnOBias, "self_attn.o_proj.bias", S::kPlain, P::kAttnOutBias},
    {K::kAttnPostNorm, "post_attention_layernorm.weight", S::kLessOne},
    {K::kFfnNorm, "pre_feedforward_layernorm.weight", S::kLessOne},
    {K::kFfnGate, "mlp.gate_proj.weight"},
    {K::kFfnUp, "mlp.up_proj.weight"},
    {K::kFfnDown, "mlp.down_proj.weight"},
    {K::kFfnPostNorm, "post_feedforward_layernorm.weight", S::kLessOne}};

// No norms before the sublayers. OLMo's norms of queries and keys run over all heads.
constexpr TensorPlace kOlmo2Layer[] = {
    {K::kAttnQ, "self_attn.q_proj.weight"},
    {K::kAttnQBias, "self_attn.q_proj.bias", S::kPlain, P::kQkvBias},
    {K::kQNorm, "self_attn.q_norm.weight", S::kPlain, P::kAlways, true},
    {K::kAttnK, "self_attn.k_proj.weight"},
    {K::kAttnKBias, "self_attn.k_proj.bias", S::kPlain, P::kQkvBias},
    {K::kKNorm, "self_attn.k_norm.weight", S::kPlain, P::kAlways, true},
    {K::kAttnV, "self_attn.v_proj.weight"},
    {K::kAttnVBias, "self_attn.v_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnO, "self_attn.o_proj.weight"},
    {K::kAttnOBias, "self_attn.o_proj.bias", S::kPlain, P::kAttnOutBias},
    {K::kAttnPostNorm, "post_attention_layernorm.weight"},
    {K::kFfnGate, "mlp.gate_proj.weight"},
    {K::kFfnUp, "mlp.up_proj.weight"},
    {K::kFfnDown, "mlp.down_proj.weight"},
    {K::kFfnPostNorm, "post_feedforward_layernorm.weight"}};
constexpr TensorPlace kExaone4Layer[] = {{K::kAttnQ, "self_attn.q_proj.weight"},
                                         {K::kQNorm, "self_attn.q_norm.weight"},
                                         {K::kAttnK, "self_attn.k_proj.weight"},
                                         {K::kKNorm, "self_attn.k_norm.weight"},
                                         {K::kAttnV, "self_attn.v_proj.weight"},
                                         {K::kAttnO, "self_attn.o_proj.weight"},
                                         {K::kAttnPostNorm, "post_attention_layernorm.weight"},
                                         {K::kFfnGate, "mlp.gate_proj.weight"},
                                         {K::kFfnUp, "mlp.up_proj.weight"},
                                         {K::kFfnDown, "mlp.down_proj.weight"},
                                         {K::kFfnPostNorm, "post_feedforward_layernorm.weight"}};

// post_attention_layernorm is the norm before the FFN here.
constexpr TensorPlace kGlm4Layer[] = {
    {K::kAttnNorm, "input_layernorm.weight"},
    {K::kAttnQ, "self_attn.q_proj.weight", S::kPairedRope},
    {K::kAttnQBias, "self_attn.q_proj.bias", S::kPairedRope, P::kQkvBias},
    {K::kAttnK, "self_attn.k_proj.weight", S::kPairedRope},
    {K::kAttnKBias, "self_attn.k_proj.bias", S::kPairedRope, P::kQkvBias},
    {K::kAttnV, "self_attn.v_proj.weight"},
    {K::kAttnVBias, "self_attn.v_proj.bias", S::kPlain, P::kQkvBias},
    {K::kAttnO, "self_attn.o_proj.weight"},
    {K::kAttnPostNorm, "post_self_attn_layernorm.weight"},
    {K::kFfnNorm, "post_attention_layernorm.weight"},
    {K::kFfnGate, "mlp.gate_up_proj.weight", S::kFusedGateUp},
    {K::kFfnUp, "mlp.gate_up_proj.weight", S::kFusedGateUp},
    {K::kFfnDown, "mlp.down_proj.weight"},
    {K::kFfnPostNorm, "post_mlp_layernorm.weight"}};

// Names of Microsoft and of 1bitLLM.
constexpr TensorPlace kBitnetLayer[] = {{K::kAttnNorm, "input_layernorm.weight"},
                                        {K::kAttnQ, "self_attn.q_proj.weight"},
                                        {K::kAttnK, "self_attn.k_proj.weight"},
                                        {K::kAttnV, "self_attn.v_proj.weight"},
                                        {K::kAttnSubNorm, "self_attn.attn_sub_norm.weight"},
                                        {K::kAttnO, "self_attn.o_proj.weight"},
                                        {K::kFfnNorm, "post_attention_layernorm.weight"},
                                        {K::kFfnGate, "mlp.gate_proj.weight"},
                                        {K::kFfnUp, "mlp.up_proj.weight"},
                                        {K::kFfnSubNorm, "mlp.ffn_sub_norm.weight"},
                                        {K::kFfnDown, "mlp.down_proj.weight"}};
constexpr TensorPlace kBitnet1bitLayer[] = {{K::kAttnNorm, "input_layernorm.weight"},
                                            {K::kAttnQ, "self_attn.q_proj.weight"},
                                            {K::kAttnK, "self_attn.k_proj.weight"},
                                            {K::kAttnV, "self_attn.v_proj.weight"},
                                            {K::kAttnSubNorm, "self_attn.inner_attn_ln.weight"},
                                            {K::kAttnO, "self_attn.o_proj.weight"},
                                            {K::kFfnNorm, "post_attention_layernorm.weight"},
                                            {K::kFfnGate, "mlp.gate_proj.weight"},
                                            {K::kFfnUp, "mlp.up_proj.weight"},
                                            {K::kFfnSubNorm, "mlp.ffn_layernorm.weight"},
                                            {K::kFfnDown, "mlp.down_proj.weight"}};

constexpr TensorTable kTables[] = {
    {"gpt2", "transformer.", "h.", kGpt2Embedding, kGpt2Layer, kLnFinal},
    {"bloom", "transformer.", "h.", kBloomEmbedding, kBloomLayer, kLnFinal},
    {"opt", "model.", "decoder.layers.", kOptEmbedding, kOptLayer, kOptFinal},
    {"llama", "model.", "layers.", kEmbedTokens, kLlamaLayer, kNormFinal},
    {"mistral", "model.", "layers.", kEmbedTokens, kLlamaLayer, kNormFinal},
    {"qwen2", "model.", "layers.", kEmbedTokens, kLlamaLayer, kNormFinal},
    {"qwen3", "model.", "layers.", kEmbedTokens, kQwen3Layer, kNormFinal},
    {"phi2", "model.", "layers.", kEmbedTokens, kPhi2Layer, kPhi2Final, true},
    {"phi3", "model.", "layers.", kEmbedTokens, kPhi3Layer, kNormFinal},
    {"stablelm", "model.", "layers.", kEmbedTokens, kStablelmLayer, kStablelmFinal},
    {"gemma", "model.", "layers.", kEmbedTokens, kGemmaLayer, kGemmaFinal},
    {"gemma2", "model.", "layers.", kEmbedTokens, kGemma2Layer, kGemmaFinal},
    {"gemma3", "model.", "layers.", kEmbedTokens, kGemma3Layer, kGemmaFinal},
    {"gemma3n", "model.", "layers.", kGemma4Embedding, kGemma3nLayer, kNormFinal},
    {"gemma4", "model.", "layers.", kGemma4Embedding, kGemma4Layer, kNormFinal},
    {.architecture = "gemma4moe",
     .base_prefix = "model.",
     .layer_prefix = "layers.",
     .embedding = kEmbedTokens,
     .layer = kGemma4Layer,
     .final = kNormFinal,
     .experts = kGemma4Experts},
    {.architecture = "mixtral",
     .base_prefix = "model.",
     .layer_prefix = "layers.",
     .embedding = kEmbedTokens,
     .layer = kMixtralLayer,
     .final = kNormFinal,
     .experts = kMixtralExperts},
    {"qwen2moe", "model.", "layers.", kEmbedTokens, kQwen2MoeLayer, kNormFinal, false,
     "lm_head.weight", kQwenExperts, kQwenStackedExperts},
    {"glm4moe", "model.", "layers.", kEmbedTokens, kGlm4MoeLayer, kNormFinal, false,
     "lm_head.weight", kQwenExperts, kQwenStackedExperts},
    {"deepseek2", "model.", "layers.", kEmbedTokens, kDeepseek2Layer, kNormFinal, false,
     "lm_head.weight", kQwenExperts, kQwenStackedExperts},
    {"llama4", "model.", "layers.", kEmbedTokens, kLlama4Layer, kNormFinal, false, "lm_head.weight",
     kLlama4Experts},
    {"phimoe", "model.", "layers.", kEmbedTokens, kPhimoeLayer, kStablelmFinal, false,
     "lm_head.weight", kMixtralExperts},
    {"qwen3moe", "model.", "layers.", kEmbedTokens, kQwen3MoeLayer, kNormFinal, false,
     "lm_head.weight", kQwenExperts, kQwenStackedExperts},
    {"olmoe", "model.", "layers.", kEmbedTokens, kOlmoeLayer, kNormFinal, false, "lm_head.weight",
     kQwenExperts, kQwenStackedExperts},
    {"granitemoe", "model.", "layers.", kEmbedTokens, kGraniteMoeLayer, kNormFinal, false,
     "lm_head.weight", kGraniteMoeExperts},
    {"gpt-oss", "model.", "layers.", kEmbedTokens, kGptOssLayer, kNormFinal, false,
     "lm_head.weight", kGptOssExperts, kGptOssStackedExperts},
    {"smollm3", "model.", "layers.", kEmbedTokens, kLlamaLayer, kNormFinal},
    {"granite4", "model.", "layers.", kEmbedTokens, kGranite4Layer, kNormFinal},
    {.architecture = "granitehybrid",
     .base_prefix = "model.",
     .layer_prefix = "layers.",
     .embedding = kEmbedTokens,
     .layer = kGranite4Layer,
     .final = kNormFinal,
     .state_layer = kGranite4StateLayer},
    {.architecture = "granitemoehybrid",
     .base_prefix = "model.",
     .layer_prefix = "layers.",
     .embedding = kEmbedTokens,
     .layer = kGraniteMoeLayer,
     .final = kNormFinal,
     .experts = kGraniteMoeExperts,
     .state_layer = kGranite4StateLayer},
    {"granite", "model.", "layers.", kEmbedTokens, kLlamaLayer, kNormFinal},
    {"mistral3", "model.", "layers.", kEmbedTokens, kLlamaLayer, kNormFinal},
    {"internlm2", "model.", "layers.", kInternlm2Embedding, kInternlm2Layer, kNormFinal, false,
     "output.weight"},
    {"olmo2", "model.", "layers.", kEmbedTokens, kOlmo2Layer, kNormFinal},
    {"exaone4", "model.", "layers.", kEmbedTokens, kExaone4Layer, kNormFinal},
    {"glm4", "model.", "layers.", kEmbedTokens, kGlm4Layer, kNormFinal},
    {"command-r", "model.", "layers.", kEmbedTokens, kCohereLayer, kNormFinal},
    {"cohere2", "model.", "layers.", kEmbedTokens, kCohereLayer, kNormFinal},
    {"falcon", "transformer.", "h.", kFalconEmbedding, kFalconLayer, kLnFinal},
    {"falcon-two-norms", "transformer.", "h.", kFalconEmbedding, kFalconTwoNormsLayer, kLnFinal},
    {"gptneox", "gpt_neox.", "layers.", kGptNeoxEmbedding, kGptNeoxLayer, kGptNeoxFinal, false,
     "embed_out.weight"},
    {"starcoder2", "model.", "layers.", kEmbedTokens, kStarcoder2Layer, kStablelmFinal},
    {"modernbert", "model.", "layers.", kModernBertEmbedding, kModernBertLayer, kModernBertFinal},
    {.architecture = "nomic-bert",
     .base_prefix = "nomic_bert.",
     .layer_prefix = "encoder.layers.",
     .embedding = kNomicBertEmbedding,
     .layer = kNomicBertLayer,
     .final = kNomicBertFinal,
     .added_row = "embeddings.token_type_embeddings.weight"},
    {"mpt", "transformer.", "blocks.", kMptEmbedding, kMptLayer, kMptFinal},
    {.architecture = "falcon-h1",
     .base_prefix = "model.",
     .layer_prefix = "layers.",
     .embedding = kEmbedTokens,
     .layer = {},
     .final = kFalconH1Final,
     .state_layer = kFalconH1Layer},
    {.architecture = "nemotron_h",
     .base_prefix = "backbone.",
     .layer_prefix = "layers.",
     .embedding = kNemotronEmbedding,
     .layer = kNemotronLayer,
     .final = kNemotronFinal,
     .state_layer = kNemotronStateLayer,
     .ffn_layer = kNemotronFfnLayer,
     .other_prefix = "model."},
    {.architecture = "nemotron_h_moe",
     .base_prefix = "backbone.",
     .layer_prefix = "layers.",
     .embedding = kNemotronEmbedding,
     .layer = kNemotronLayer,
     .final = kNemotronFinal,
     .experts = kNemotronExperts,
     .stacked_experts = kNemotronStackedExperts,
     .state_layer = kNemotronStateLayer,
     .ffn_layer = kNemotronFfnLayer,
     .other_prefix = "model."},
    {.architecture = "lfm2",
     .base_prefix = "model.",
     .layer_prefix = "layers.",
     .embedding = kEmbedTokens,
     .layer = kLfm2Layer,
     .final = kLfm2Final,
     .state_layer = kLfm2StateLayer},
    {.architecture = "lfm2moe",
     .base_prefix = "model.",
     .layer_prefix = "layers.",
     .embedding = kEmbedTokens,
     .layer = kLfm2Layer,
     .final = kLfm2Final,
     .experts = kLfm2Experts,
     .stacked_experts = kLfm2StackedExperts,
     .state_layer = kLfm2StateLayer},
    {"qwen35",
     "model.",
     "layers.",
     kEmbedTokens,
     kQwen35Layer,
     kGemmaFinal,
     false,
     "lm_head.weight",
     {},
     {},
     kQwen35StateLayer},
    {"qwen35moe", "model.", "layers.", kEmbedTokens, kQwen35Layer, kGemmaFinal, false,
     "lm_head.weight", kQwenExperts, kQwenStackedExperts, kQwen35StateLayer},
    {"qwen3next", "model.", "layers.", kEmbedTokens, kQwen35Layer, kGemmaFinal, false,
     "lm_head.weight", kQwenExperts, kQwenStackedExperts, kQwen3NextStateLayer},
    {"bitnet-b1.58", "model.", "layers.", kEmbedTokens, kBitnetLayer, kNormFinal},
    {"bitnet", "model.", "layers.", kEmbedTokens, kBitnet1bitLayer, kNormFinal},
};

}  // namespace

const TensorTable* find_tensor_table(std::string_view architecture) noexcept {
  for (const TensorTable& table : kTables) {
    if (table.architecture == architecture) return &table;
  }
  return nullptr;
}

const TensorTable& hf_tensor_table(const HfConfig& config) {
  return tensor_table(config.tensor_table.empty() ? config.spec.architecture : config.tensor_table);
}

TensorShape place_shape(const ModelSpec& spec, std::uint32_t layer,
                        const TensorPlace& place) noexcept {
  TensorShape shape = tensor_shape(spec, layer, place.kind);
  if (place.all_heads) shape.cols = place.kind == K::kQNorm ? spec.q_dim() : spec.kv_dim();
  return shape;
}

}  // namespace qsf
