// SPDX-License-Identifier: MIT
//
// The fields of a ModelSpec by which the shapes of its layers differ: their heads and what values
// are made of. Checked, written and read here, for model_spec.cc.

#ifndef QSF_FORMAT_LAYER_SHAPES_H_
#define QSF_FORMAT_LAYER_SHAPES_H_

#include "base/status.h"
#include "format/metadata.h"
#include "format/model_spec.h"

namespace qsf {

// Requires  the sizes and the rope of the spec are valid
// Fails     kInvalidArgument, naming the field
Status check_layer_shapes(const ModelSpec& spec);
void encode_layer_shapes(const ModelSpec& spec, Metadata& metadata);
Status decode_layer_shapes(const Metadata& metadata, ModelSpec& spec);

}  // namespace qsf

#endif  // QSF_FORMAT_LAYER_SHAPES_H_
