// SPDX-License-Identifier: MIT
//
// How a Hugging Face folder stores tensors of each kind.

#ifndef QSF_IMPORT_HF_HF_STORED_KINDS_H_
#define QSF_IMPORT_HF_HF_STORED_KINDS_H_

#include "format/qsf_layout.h"
#include "format/tensor_rules.h"

namespace qsf {

// Vectors are stored with one dimension, but for the weights of a shared expert.
inline bool is_vector(TensorKind kind) noexcept {
  return !is_matrix(kind) && kind != TensorKind::kSharedWeight;
}

}  // namespace qsf

#endif  // QSF_IMPORT_HF_HF_STORED_KINDS_H_
