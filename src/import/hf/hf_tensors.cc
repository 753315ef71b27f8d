// SPDX-License-Identifier: MIT

#include "import/hf/hf_tensors.h"

#include "base/check.h"

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
    {K::kAttnQ, "self_attention.query_key_value.weight", S::kFusedQkvByHead},
    {K::kAttnQBias, "self_attention.query_key_value.bias", S::kFusedQkvByHead},
    {K::kAttnK, "self_attention.query_key_value.weight", S::kFusedQkvByHead},
    {K::kAttnKBias, "self_attention.query_key_value.bias", S::kFusedQkvByHead},
    {K::kAttnV, "self_attention.query_key_value.weight", S::kFusedQkvByHead},
    {K::kAttnVBias, "self_attention.query_key_value.bias", S::kFusedQkvByHead},
    {K::kAttnO, "self_attention.dense.weight"},
    {K::kAttnOBias, "self_attention.dense.bias"},
    {K::kFfnNorm, "post_attention_layernorm.weight"},
    {K::kFfnNormBias, "post_attention_layernorm.bias"},
    {K::kFfnUp, "mlp.dense_h_to_4h.weight"},
    {K::kFfnUpBias, "mlp.dense_h_to_4h.bias"},
    {K::kFfnDown, "mlp.dense_4h_to_h.weight"},
    {K::kFfnDownBias, "mlp.dense_4h_to_h.bias"}};

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
    {"bitnet-b1.58", "model.", "layers.", kEmbedTokens, kBitnetLayer, kNormFinal},
    {"bitnet", "model.", "layers.", kEmbedTokens, kBitnet1bitLayer, kNormFinal},
};

}  // namespace

const TensorTable& tensor_table(std::string_view architecture) {
  for (const TensorTable& table : kTables) {
    if (table.architecture == architecture) return table;
  }
  QSF_CHECK(false);
}

}  // namespace qsf
