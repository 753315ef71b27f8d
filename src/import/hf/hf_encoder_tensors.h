// SPDX-License-Identifier: MIT
//
// Tensors of Hugging Face folders of encoders, in the order of a .qsf file: part of hf_tensors.cc.

#ifndef QSF_IMPORT_HF_HF_ENCODER_TENSORS_H_
#define QSF_IMPORT_HF_HF_ENCODER_TENSORS_H_

#include "import/hf/hf_tensors.h"

namespace qsf {

inline constexpr TensorPlace kModernBertEmbedding[] = {
    {TensorKind::kTokenEmbedding, "embeddings.tok_embeddings.weight"},
    {TensorKind::kEmbeddingNorm, "embeddings.norm.weight"}};
inline constexpr TensorPlace kModernBertLayer[] = {
    {TensorKind::kAttnNorm, "attn_norm.weight", Storage::kPlain, Presence::kBehindFirst},
    {TensorKind::kAttnQ, "attn.Wqkv.weight", Storage::kFusedQkv},
    {TensorKind::kAttnK, "attn.Wqkv.weight", Storage::kFusedQkv},
    {TensorKind::kAttnV, "attn.Wqkv.weight", Storage::kFusedQkv},
    {TensorKind::kAttnO, "attn.Wo.weight"},
    {TensorKind::kFfnNorm, "mlp_norm.weight"},
    {TensorKind::kFfnGate, "mlp.Wi.weight", Storage::kFusedGateUp},
    {TensorKind::kFfnUp, "mlp.Wi.weight", Storage::kFusedGateUp},
    {TensorKind::kFfnDown, "mlp.Wo.weight"}};
inline constexpr TensorPlace kModernBertFinal[] = {{TensorKind::kFinalNorm, "final_norm.weight"}};

// A norm of a sum is that of what takes the sum: the second one of a layer that of the next.
inline constexpr TensorPlace kNomicBertEmbedding[] = {
    {TensorKind::kTokenEmbedding, "embeddings.word_embeddings.weight"},
    {TensorKind::kEmbeddingNorm, "emb_ln.weight"},
    {TensorKind::kEmbeddingNormBias, "emb_ln.bias"}};
inline constexpr TensorPlace kNomicBertLayer[] = {
    {.kind = TensorKind::kAttnNorm,
     .name = "norm2.weight",
     .presence = Presence::kBehindFirst,
     .of_layer_before = true},
    {.kind = TensorKind::kAttnNormBias,
     .name = "norm2.bias",
     .presence = Presence::kBehindFirst,
     .of_layer_before = true},
    {TensorKind::kAttnQ, "attn.Wqkv.weight", Storage::kFusedQkv},
    {TensorKind::kAttnK, "attn.Wqkv.weight", Storage::kFusedQkv},
    {TensorKind::kAttnV, "attn.Wqkv.weight", Storage::kFusedQkv},
    {TensorKind::kAttnO, "attn.out_proj.weight"},
    {TensorKind::kFfnNorm, "norm1.weight"},
    {TensorKind::kFfnNormBias, "norm1.bias"},
    {TensorKind::kFfnGate, "mlp.fc12.weight"},
    {TensorKind::kFfnUp, "mlp.fc11.weight"},
    {TensorKind::kFfnDown, "mlp.fc2.weight"}};
inline constexpr TensorPlace kNomicBertFinal[] = {
    {.kind = TensorKind::kFinalNorm, .name = "norm2.weight", .of_layer_before = true},
    {.kind = TensorKind::kFinalNormBias, .name = "norm2.bias", .of_layer_before = true}};

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_ENCODER_TENSORS_H_
