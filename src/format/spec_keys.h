// SPDX-License-Identifier: MIT
//
// The metadata keys of version 1. docs/format-metadata.md has types, ranges and defaults.

#ifndef QSF_FORMAT_SPEC_KEYS_H_
#define QSF_FORMAT_SPEC_KEYS_H_

#include <algorithm>
#include <iterator>
#include <string_view>

namespace qsf::keys {

inline constexpr const char* kArchitecture = "architecture";
inline constexpr const char* kAttentionBf16Biases = "attention.bf16_biases";
inline constexpr const char* kAttentionBidirectional = "attention.bidirectional";
inline constexpr const char* kAttentionChunked = "attention.chunked";
inline constexpr const char* kAttentionClip = "attention.clip";
inline constexpr const char* kAttentionHeadDims = "attention.head_dims";
inline constexpr const char* kAttentionKeyValues = "attention.key_values";
inline constexpr const char* kAttentionKvHeads = "attention.kv_heads";
inline constexpr const char* kAttentionKvLayers = "attention.kv_layers";
inline constexpr const char* kAttentionPositionScale = "attention.position_scale";
inline constexpr const char* kAttentionPositionStep = "attention.position_step";
inline constexpr const char* kAttentionScale = "attention.scale";
inline constexpr const char* kAttentionSoftCap = "attention.soft_cap";
inline constexpr const char* kAttentionUnitNorms = "attention.unit_norms";
inline constexpr const char* kAttentionValueNorms = "attention.value_norms";
inline constexpr const char* kAttentionWindow = "attention.window";
inline constexpr const char* kBlockParallel = "block.parallel";
inline constexpr const char* kEmbeddingDense = "embedding.dense";
inline constexpr const char* kEmbeddingOnly = "embedding.only";
inline constexpr const char* kEmbeddingPooling = "embedding.pooling";
inline constexpr const char* kEmbeddingScale = "embedding.scale";
inline constexpr const char* kExpertBesideFfn = "expert.beside_ffn";
inline constexpr const char* kExpertCount = "expert.count";
inline constexpr const char* kExpertEpsilon = "expert.epsilon";
inline constexpr const char* kExpertFfn = "expert.ffn";
inline constexpr const char* kExpertGroups = "expert.groups";
inline constexpr const char* kExpertGroupsUsed = "expert.groups_used";
inline constexpr const char* kExpertHits = "expert.hits";
inline constexpr const char* kExpertLayers = "expert.layers";
inline constexpr const char* kExpertMargin = "expert.margin";
inline constexpr const char* kExpertRenormalised = "expert.renormalised";
inline constexpr const char* kExpertScale = "expert.scale";
inline constexpr const char* kExpertScoring = "expert.scoring";
inline constexpr const char* kExpertSharedFfn = "expert.shared_ffn";
inline constexpr const char* kExpertWeighsInputs = "expert.weighs_inputs";
inline constexpr const char* kExpertUsed = "expert.used";
inline constexpr const char* kFfnActivation = "ffn.activation";
inline constexpr const char* kFfnCutoff = "ffn.cutoff";
inline constexpr const char* kFfnCutoffLayers = "ffn.cutoff_layers";
inline constexpr const char* kFfnGated = "ffn.gated";
inline constexpr const char* kFfnLayers = "ffn.layers";
inline constexpr const char* kFfnRows = "ffn.rows";
inline constexpr const char* kFileBytes = "file.bytes";
inline constexpr const char* kHeadTied = "head.tied";
inline constexpr const char* kInt8Rows = "input.int8_rows";
inline constexpr const char* kLatentColumns = "latent.columns";
inline constexpr const char* kLatentEpsilon = "latent.epsilon";
inline constexpr const char* kLatentKeyColumns = "latent.key_columns";
inline constexpr const char* kLatentQueryColumns = "latent.query_columns";
inline constexpr const char* kLatentValueColumns = "latent.value_columns";
inline constexpr const char* kLaurelColumns = "laurel.columns";
inline constexpr const char* kLayerInputColumns = "layer_input.columns";
inline constexpr const char* kLayerInputRows = "layer_input.rows";
inline constexpr const char* kLogitScale = "logit.scale";
inline constexpr const char* kLogitSoftCap = "logit.soft_cap";
inline constexpr const char* kMixerGroups = "mixer.groups";
inline constexpr const char* kMixerHeadDim = "mixer.head_dim";
inline constexpr const char* kMixerHeads = "mixer.heads";
inline constexpr const char* kMixerHeadsInTurn = "mixer.heads_in_turn";
inline constexpr const char* kMixerLayers = "mixer.layers";
inline constexpr const char* kMixerState = "mixer.state";
inline constexpr const char* kMixerTaps = "mixer.taps";
inline constexpr const char* kMtpBlock = "mtp.block";
inline constexpr const char* kNormEpsilon = "norm.epsilon";
inline constexpr const char* kNormStream = "norm.stream";
inline constexpr const char* kQuantiser = "quantiser";
inline constexpr const char* kResidualScale = "residual.scale";
inline constexpr const char* kRopeAttentionFactor = "rope.attention_factor";
inline constexpr const char* kRopeBetaFast = "rope.beta_fast";
inline constexpr const char* kRopeBetaSlow = "rope.beta_slow";
inline constexpr const char* kRopeDims = "rope.dims";
inline constexpr const char* kRopeFactor = "rope.factor";
inline constexpr const char* kRopeHigh = "rope.high_freq_factor";
inline constexpr const char* kRopeLayers = "rope.layers";
inline constexpr const char* kRopeLocalTheta = "rope.local_theta";
inline constexpr const char* kRopeLow = "rope.low_freq_factor";
inline constexpr const char* kRopeLongFactors = "rope.long_factors";
inline constexpr const char* kRopeOriginalContext = "rope.original_context";
inline constexpr const char* kRopeScaling = "rope.scaling";
inline constexpr const char* kRopeShortAttentionFactor = "rope.short_attention_factor";
inline constexpr const char* kRopeShortFactors = "rope.short_factors";
inline constexpr const char* kRopeTruncate = "rope.truncate";
inline constexpr const char* kRopeTurning = "rope.turning";
inline constexpr const char* kSource = "source";
inline constexpr const char* kStreams = "streams.count";
inline constexpr const char* kChatTemplate = "tokenizer.chat_template";
inline constexpr const char* kEosIds = "tokenizer.eos_ids";

inline constexpr std::string_view kAll[] = {kArchitecture,
                                            kAttentionBf16Biases,
                                            kAttentionBidirectional,
                                            kAttentionChunked,
                                            kAttentionClip,
                                            kAttentionHeadDims,
                                            kAttentionKeyValues,
                                            kAttentionKvHeads,
                                            kAttentionKvLayers,
                                            kAttentionPositionScale,
                                            kAttentionPositionStep,
                                            kAttentionScale,
                                            kAttentionSoftCap,
                                            kAttentionUnitNorms,
                                            kAttentionValueNorms,
                                            kAttentionWindow,
                                            kBlockParallel,
                                            kEmbeddingDense,
                                            kEmbeddingOnly,
                                            kEmbeddingPooling,
                                            kEmbeddingScale,
                                            kExpertBesideFfn,
                                            kExpertCount,
                                            kExpertEpsilon,
                                            kExpertFfn,
                                            kExpertGroups,
                                            kExpertGroupsUsed,
                                            kExpertHits,
                                            kExpertLayers,
                                            kExpertMargin,
                                            kExpertRenormalised,
                                            kExpertScale,
                                            kExpertScoring,
                                            kExpertSharedFfn,
                                            kExpertUsed,
                                            kExpertWeighsInputs,
                                            kFfnActivation,
                                            kFfnCutoff,
                                            kFfnCutoffLayers,
                                            kFfnGated,
                                            kFfnLayers,
                                            kFfnRows,
                                            kFileBytes,
                                            kHeadTied,
                                            kInt8Rows,
                                            kLatentColumns,
                                            kLatentEpsilon,
                                            kLatentKeyColumns,
                                            kLatentQueryColumns,
                                            kLatentValueColumns,
                                            kLaurelColumns,
                                            kLayerInputColumns,
                                            kLayerInputRows,
                                            kLogitScale,
                                            kLogitSoftCap,
                                            kMixerGroups,
                                            kMixerHeadDim,
                                            kMixerHeads,
                                            kMixerHeadsInTurn,
                                            kMixerLayers,
                                            kMixerState,
                                            kMixerTaps,
                                            kMtpBlock,
                                            kNormEpsilon,
                                            kNormStream,
                                            kQuantiser,
                                            kResidualScale,
                                            kRopeAttentionFactor,
                                            kRopeBetaFast,
                                            kRopeBetaSlow,
                                            kRopeDims,
                                            kRopeFactor,
                                            kRopeHigh,
                                            kRopeLayers,
                                            kRopeLocalTheta,
                                            kRopeLongFactors,
                                            kRopeLow,
                                            kRopeOriginalContext,
                                            kRopeScaling,
                                            kRopeShortAttentionFactor,
                                            kRopeShortFactors,
                                            kRopeTruncate,
                                            kRopeTurning,
                                            kSource,
                                            kStreams,
                                            kChatTemplate,
                                            kEosIds};

inline bool is_known(std::string_view key) noexcept {
  return std::find(std::begin(kAll), std::end(kAll), key) != std::end(kAll);
}

}  // namespace qsf::keys

#endif  // QSF_FORMAT_SPEC_KEYS_H_
