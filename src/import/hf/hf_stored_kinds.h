// SPDX-License-Identifier: MIT
//
// How a Hugging Face folder stores tensors of each kind.

#ifndef QSF_IMPORT_HF_HF_STORED_KINDS_H_
#define QSF_IMPORT_HF_HF_STORED_KINDS_H_

#include "format/qsf_layout.h"

namespace qsf {

// Vectors are stored with one dimension; a matrix keeps its two also when it has one row.
inline bool is_vector(TensorKind kind) noexcept {
  switch (kind) {
    case TensorKind::kAttnQ:
    case TensorKind::kAttnK:
    case TensorKind::kAttnV:
    case TensorKind::kAttnO:
    case TensorKind::kFfnGate:
    case TensorKind::kFfnUp:
    case TensorKind::kFfnDown:
    case TensorKind::kTokenEmbedding:
    case TensorKind::kLayerEmbedding:
    case TensorKind::kLayerInput:
    case TensorKind::kLayerInputGate:
    case TensorKind::kLayerInputOut:
    case TensorKind::kStreamIn:
    case TensorKind::kStreamOut:
    case TensorKind::kLaurelLeft:
    case TensorKind::kLaurelRight:
    case TensorKind::kRouter:
    case TensorKind::kMixerIn:
    case TensorKind::kMixerOut:
    case TensorKind::kLatentQuery:
    case TensorKind::kLatentKeys:
    case TensorKind::kLatentValues:
    case TensorKind::kMixerGate:
    case TensorKind::kDeltaRate:
    case TensorKind::kDeltaStep:
    case TensorKind::kAttnGate:
    case TensorKind::kExpertGate:
    case TensorKind::kExpertUp:
    case TensorKind::kExpertDown:
    case TensorKind::kSharedGate:
    case TensorKind::kSharedUp:
    case TensorKind::kSharedDown:
    case TensorKind::kSharedWeight:
    case TensorKind::kPositionEmbedding:
    case TensorKind::kHead: return false;
    default: return true;
  }
}

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_STORED_KINDS_H_
