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

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_ENCODER_TENSORS_H_
