// SPDX-License-Identifier: MIT
//
// Checks of what each layer of a model consists of: what mixes positions, and an FFN or none.

#ifndef QSF_FORMAT_LAYER_CHECKS_H_
#define QSF_FORMAT_LAYER_CHECKS_H_

#include "base/status.h"
#include "format/model_spec.h"

namespace qsf {

// Checks the lists of mixers and of FFNs by layer, and the sizes of scans and delta rules. Behind
// it, attends(), keeps_state() and has_ffn() of every layer are defined.
// Fails  kInvalidArgument, naming the field
Status check_layers(const ModelSpec& spec);

}  // namespace qsf

#endif  // QSF_FORMAT_LAYER_CHECKS_H_
